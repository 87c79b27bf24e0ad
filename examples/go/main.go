// Sends five orders to a topic, and processes them as a worker of a queue group, in order per customer.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	pb "orders/logbroker/v1"
)

func main() {
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err, nil)
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	queues := pb.NewQueuesClient(connection)

	topic := &pb.NewTopic{Name: "orders-go", Partitions: proto.Int32(4)}
	created, err := pb.NewAdminClient(connection).CreateTopics(ctx, &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{topic}})
	check(err, nil)
	check(nil, created.Results[0].Status)
	_, err = queues.CreateQueue(ctx, &pb.CreateQueueRequest{GroupId: "billing-go", Topic: topic.Name})
	check(err, nil)

	records := &pb.PlainRecords{}
	for number := range 5 {
		key := fmt.Sprintf("customer-%d", number%2)
		records.Records = append(records.Records, &pb.Record{Key: []byte(key), Value: []byte(fmt.Sprintf("order %d", number))})
	}
	item := &pb.ProduceItem{Topic: topic.Name, Data: &pb.ProduceItem_Records{Records: records}}
	sent, err := pb.NewLogClient(connection).Produce(ctx, &pb.ProduceRequest{Items: []*pb.ProduceItem{item}})
	check(err, nil)
	check(nil, sent.Results[0].Status)

	for done := 0; done < 5; {
		ask := &pb.ReceiveRequest{GroupId: "billing-go", WorkerId: "go-1", MaxRecords: proto.Int32(10), MaxWaitMs: proto.Int32(5000), PlainRecords: true}
		received, err := queues.Receive(ctx, ask)
		check(err, nil)
		acks := &pb.Receipts{}
		for _, delivery := range received.Deliveries {
			for i, record := range delivery.Records {
				fmt.Printf("%s: %s\n", record.Key, record.Value)
				receipt := delivery.FirstReceipt + uint64(i)
				acks.Firsts, acks.Lasts = append(acks.Firsts, receipt), append(acks.Lasts, receipt)
				done++
			}
		}
		settled, err := queues.Settle(ctx, &pb.SettleRequest{GroupId: "billing-go", WorkerId: "go-1", Settle: &pb.Settle{Acks: acks}})
		check(err, nil)
		for _, failure := range settled.Answer.Failures {
			check(nil, failure.Status)
		}
	}
}

// check ends the program with the error of a whole call, or of one of its items. That the topic exists is no error.
func check(err error, status *pb.Status) {
	if err != nil {
		log.Fatal(err)
	}
	if status.GetCode() != 0 && status.Reason != "TOPIC_EXISTS" {
		log.Fatalf("%s: %s", status.Reason, status.Message)
	}
}
