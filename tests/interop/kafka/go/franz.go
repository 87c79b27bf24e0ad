package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct{}

func within(seconds time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), seconds)
}

func (franz) produce(c command) (any, error) {
	codec := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[c.Codec]
	acks := map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}[c.Acks]
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Address), kgo.ProducerBatchCompression(codec), kgo.RequiredAcks(acks),
		kgo.ProducerLinger(5 * time.Millisecond), kgo.RecordDeliveryTimeout(patience),
	}
	if !c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var lock sync.Mutex
	var failure error
	acknowledged := [][3]int64{}
	ctx, cancel := within(2 * patience)
	defer cancel()
	for number, record := range c.Records {
		sent := &kgo.Record{Topic: c.Topic, Key: blob(record[0]), Value: blob(record[1])}
		client.Produce(context.Background(), sent, func(found *kgo.Record, err error) {
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				failure = err
			} else {
				acknowledged = append(acknowledged, [3]int64{int64(number), int64(found.Partition), found.Offset})
			}
		})
		c.rest(number, func() { client.Flush(ctx) })
	}
	if err := client.Flush(ctx); err != nil {
		return nil, err
	}
	return acknowledged, failure
}

func (franz) consume(c command) (any, error) {
	start := kgo.NewOffset()
	switch from := c.From.(type) {
	case float64:
		start = start.AfterMilli(int64(from))
	case string:
		start = map[string]kgo.Offset{"earliest": start.AtStart(), "latest": start.AtEnd()}[from]
	}
	partitions := map[int32]kgo.Offset{}
	for number := range c.Partitions {
		partitions[int32(number)] = start
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(c.Address), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: partitions}),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := within(patience)
	defer cancel()
	found := [][4]any{}
	for len(found) < c.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d records came: %w", len(found), err)
		}
		fetches.EachRecord(func(each *kgo.Record) {
			found = append(found, [4]any{each.Partition, each.Offset, text(each.Key), text(each.Value)})
		})
	}
	return found, nil
}

func (franz) group(c command) (any, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Address), kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(time.Duration(c.SessionMs) * time.Millisecond), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.RebalanceTimeout(10 * time.Second), kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			sayAssigned(given[c.Topic])
		}),
	}
	if c.InstanceID != "" {
		options = append(options, kgo.InstanceID(c.InstanceID))
	}
	switch c.Assignor {
	case "range":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative-sticky":
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	if c.Protocol == "consumer" {
		// The client asks for this word as long as it calls the protocol a beta.
		beta := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
		options = append(options, kgo.WithContext(beta), kgo.Balancers(kgo.StickyBalancer()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.CloseAllowingRebalance() // It leaves the group.
	ends := ended()
	go func() {
		<-ends
		cancel()
	}()
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, 20)
		records := fetches.Records()
		for _, each := range records {
			sayHandled(each.Partition, each.Offset, each.Value)
		}
		if len(records) > 0 {
			if err := client.CommitRecords(ctx, records...); err != nil {
				fmt.Fprintln(os.Stderr, err) // Fenced, or the broker is away: it is delivered again.
			}
		}
		client.AllowRebalance()
	}
	return "left", nil
}

func franzAdmin(c command) (*kadm.Client, context.Context, func(), error) {
	client, err := kadm.NewOptClient(kgo.SeedBrokers(c.Address))
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := within(patience)
	return client, ctx, func() { cancel(); client.Close() }, nil
}

func (franz) create(c command) (any, error) {
	admin, ctx, end, err := franzAdmin(c)
	if err != nil {
		return nil, err
	}
	defer end()
	configs := map[string]*string{}
	for name, value := range c.Configs {
		configs[name] = &value
	}
	_, err = admin.CreateTopic(ctx, int32(c.Partitions), 1, configs, c.Topic)
	return nil, err
}

func (franz) manage(c command) (any, error) {
	admin, ctx, end, err := franzAdmin(c)
	if err != nil {
		return nil, err
	}
	defer end()
	alter := func(name, value string) error {
		changes := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}
		answers, err := admin.AlterTopicConfigs(ctx, changes, c.Topic)
		if err != nil {
			return err
		}
		return answers[0].Err
	}
	if err := alter("retention.ms", c.RetentionMs); err != nil {
		return nil, err
	}
	report := map[string]any{}
	var refused *kerr.Error
	if err := alter("nonsense", "1"); errors.As(err, &refused) {
		report["refusal"] = refused.Code
	}
	described, err := admin.DescribeTopicConfigs(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	configs := map[string]string{}
	for _, each := range described[0].Configs {
		if each.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
			configs[each.Key] = *each.Value
		}
	}
	report["configs"] = configs
	grown, err := admin.UpdatePartitions(ctx, c.Partitions, c.Topic)
	if err == nil {
		err = grown.Error()
	}
	if err != nil {
		return nil, err
	}
	found, err := admin.Metadata(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	report["partitions"] = len(found.Topics[c.Topic].Partitions)
	var places kadm.Offsets
	places.AddOffset(c.Topic, 0, 2, -1)
	places.AddOffset(c.Topic, 1, -1, -1)
	deleted, err := admin.DeleteRecords(ctx, places)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		return nil, err
	}
	marks := map[int32]int64{}
	for _, each := range deleted.Sorted() {
		marks[each.Partition] = each.LowWatermark
	}
	report["low_watermarks"] = marks
	nodes := []string{}
	for _, each := range found.Brokers {
		nodes = append(nodes, fmt.Sprintf("%s:%d", each.Host, each.Port))
	}
	report["nodes"] = nodes
	var first kadm.TopicsSet
	first.Add(c.Topic, 0)
	producers, err := admin.DescribeProducers(ctx, first)
	if err != nil {
		return nil, err
	}
	active := [][2]int64{}
	for _, each := range producers.SortedProducers() {
		active = append(active, [2]int64{each.ProducerID, int64(each.LastSequence)})
	}
	report["producers"] = active
	directories, err := admin.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return nil, err
	}
	sizes := map[string]map[int32]int64{}
	for _, each := range directories.Sorted() {
		sizes[each.Dir] = map[int32]int64{}
		for _, place := range each.Topics.Sorted() {
			if place.Topic == c.Topic {
				sizes[each.Dir][place.Partition] = place.Size
			}
		}
	}
	report["log_dirs"] = sizes
	return report, nil
}

func (franz) remove(c command) (any, error) {
	admin, ctx, end, err := franzAdmin(c)
	if err != nil {
		return nil, err
	}
	defer end()
	_, err = admin.DeleteTopic(ctx, c.Topic)
	return nil, err
}
