package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ibm is sarama, which IBM maintains.
type ibm struct{}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = 1200
	config.Metadata.Retry.Backoff = 50 * time.Millisecond
	return config
}

// murmur2 chooses the partitions that Java's client chooses; sarama's own hash is another.
type murmur2 struct{ partitioner kgo.TopicPartitioner }

func newMurmur2(topic string) sarama.Partitioner {
	return murmur2{kgo.StickyKeyPartitioner(nil).ForTopic(topic)}
}

func (m murmur2) Partition(message *sarama.ProducerMessage, partitions int32) (int32, error) {
	key, err := message.Key.Encode()
	return int32(m.partitioner.Partition(&kgo.Record{Key: key}, int(partitions))), err
}

func (murmur2) RequiresConsistency() bool {
	return true
}

func (ibm) produce(c command) (any, error) {
	config := settings()
	config.Producer.Compression = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}[c.Codec]
	config.Producer.RequiredAcks = sarama.RequiredAcks(c.Acks)
	config.Producer.Idempotent = c.Idempotent
	if c.Idempotent {
		config.Net.MaxOpenRequests = 1 // It insists.
	}
	config.Producer.Partitioner = newMurmur2
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 600
	producer, err := sarama.NewAsyncProducer([]string{c.Address}, config)
	if err != nil {
		return nil, err
	}
	var open sync.WaitGroup
	go func() {
		for number, record := range c.Records {
			open.Add(1)
			producer.Input() <- &sarama.ProducerMessage{
				Topic: c.Topic, Key: sarama.ByteEncoder(blob(record[0])), Value: sarama.ByteEncoder(blob(record[1])),
				Metadata: number,
			}
			c.rest(number, open.Wait)
		}
	}()
	acknowledged := [][3]int64{}
	limit := time.After(2 * patience)
	for len(acknowledged) < len(c.Records) && err == nil {
		select {
		case found := <-producer.Successes():
			open.Done()
			number := int64(found.Metadata.(int))
			acknowledged = append(acknowledged, [3]int64{number, int64(found.Partition), found.Offset})
		case failed := <-producer.Errors():
			err = failed
		case <-limit:
			err = errors.New("some records have no answer")
		}
	}
	producer.AsyncClose()
	return acknowledged, err
}

func (ibm) consume(c command) (any, error) {
	client, err := sarama.NewClient([]string{c.Address}, settings())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	rows := make(chan [4]any)
	done := make(chan struct{})
	defer close(done)
	for number := range c.Partitions {
		partition := int32(number)
		start := sarama.OffsetOldest
		switch from := c.From.(type) {
		case float64:
			if start, err = client.GetOffset(c.Topic, partition, int64(from)); err != nil {
				return nil, err
			}
			// -1 is OffsetNewest, too: nothing is as young as that.
		case string:
			start = map[string]int64{"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest}[from]
		}
		reader, err := consumer.ConsumePartition(c.Topic, partition, start)
		if err != nil {
			return nil, err
		}
		go func() {
			defer reader.Close()
			for {
				select {
				case each := <-reader.Messages():
					row := [4]any{each.Partition, each.Offset, text(each.Key), text(each.Value)}
					select {
					case rows <- row:
					case <-done:
						return
					}
				case <-done:
					return
				}
			}
		}()
	}
	found := [][4]any{}
	limit := time.After(patience)
	for len(found) < c.Count {
		select {
		case row := <-rows:
			found = append(found, row)
		case <-limit:
			return nil, fmt.Errorf("%d records came", len(found))
		}
	}
	return found, nil
}

type handler struct{ topic string }

func (h handler) Setup(session sarama.ConsumerGroupSession) error {
	sayAssigned(session.Claims()[h.topic])
	return nil
}

func (handler) Cleanup(sarama.ConsumerGroupSession) error {
	return nil
}

func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case each, open := <-claim.Messages():
			if !open {
				return nil
			}
			sayHandled(each.Partition, each.Offset, each.Value)
			session.MarkMessage(each, "")
			if len(claim.Messages()) == 0 || each.Offset%20 == 19 {
				session.Commit()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (ibm) group(c command) (any, error) {
	config := settings()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = time.Duration(c.SessionMs) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.Rebalance.Timeout = 10 * time.Second
	config.Consumer.Group.InstanceId = c.InstanceID
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	config.Consumer.Retry.Backoff = 100 * time.Millisecond
	config.Consumer.Return.Errors = true
	group, err := sarama.NewConsumerGroup([]string{c.Address}, c.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ends := ended()
	go func() {
		<-ends
		cancel()
	}()
	go func() {
		for err := range group.Errors() {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{c.Topic}, handler{c.Topic}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	return "left", group.Close()
}

func (ibm) create(c command) (any, error) {
	admin, err := sarama.NewClusterAdmin([]string{c.Address}, settings())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	detail := &sarama.TopicDetail{NumPartitions: int32(c.Partitions), ReplicationFactor: 1}
	detail.ConfigEntries = map[string]*string{}
	for name, value := range c.Configs {
		detail.ConfigEntries[name] = &value
	}
	return nil, admin.CreateTopic(c.Topic, detail, false)
}

func (ibm) manage(c command) (any, error) {
	client, err := sarama.NewClient([]string{c.Address}, settings())
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	alter := func(name, value string) error {
		entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}
		entries := map[string]sarama.IncrementalAlterConfigsEntry{name: entry}
		return admin.IncrementalAlterConfig(sarama.TopicResource, c.Topic, entries, false)
	}
	if err := alter("retention.ms", c.RetentionMs); err != nil {
		return nil, err
	}
	report := map[string]any{}
	var refused sarama.KError
	if err := alter("nonsense", "1"); errors.As(err, &refused) {
		report["refusal"] = int(refused)
	}
	described, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: c.Topic})
	if err != nil {
		return nil, err
	}
	configs := map[string]string{}
	for _, each := range described {
		if each.Source == sarama.SourceTopic {
			configs[each.Name] = each.Value
		}
	}
	report["configs"] = configs
	if err := admin.CreatePartitions(c.Topic, int32(c.Partitions), nil, false); err != nil {
		return nil, err
	}
	found, err := admin.DescribeTopics([]string{c.Topic})
	if err != nil {
		return nil, err
	}
	report["partitions"] = len(found[0].Partitions)
	if err := admin.DeleteRecords(c.Topic, map[int32]int64{0: 2, 1: -1}); err != nil {
		return nil, err
	}
	marks := map[int32]int64{}
	for partition := range int32(2) {
		if marks[partition], err = client.GetOffset(c.Topic, partition, sarama.OffsetOldest); err != nil {
			return nil, err
		}
	}
	report["low_watermarks"] = marks
	brokers, _, err := admin.DescribeCluster()
	if err != nil {
		return nil, err
	}
	nodes := []string{}
	for _, each := range brokers {
		nodes = append(nodes, each.Addr())
	}
	report["nodes"] = nodes
	return report, nil
}

func (ibm) remove(c command) (any, error) {
	admin, err := sarama.NewClusterAdmin([]string{c.Address}, settings())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	return nil, admin.DeleteTopic(c.Topic)
}
