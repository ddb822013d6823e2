package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// Stream is an open producer, with its first failure.
type Stream struct {
	client  *kgo.Client
	topic   string
	guard   sync.Mutex
	failure error
}

var streams []*Stream

func record(topic string, partition int32, message Message) *kgo.Record {
	made := &kgo.Record{Topic: topic, Partition: partition, Key: message.Key, Value: message.Value}
	if message.Timestamp != nil {
		made.Timestamp = time.UnixMilli(*message.Timestamp)
	}
	for _, one := range message.Headers {
		made.Headers = append(made.Headers, kgo.RecordHeader{Key: one.name, Value: one.content})
	}
	return made
}

func shown(record *kgo.Record) Message {
	timestamp := record.Timestamp.UnixMilli()
	message := Message{Offset: record.Offset, Timestamp: &timestamp, Key: record.Key, Value: record.Value}
	message.Headers = []header{}
	for _, one := range record.Headers {
		message.Headers = append(message.Headers, header{one.Key, one.Value})
	}
	return message
}

func write(within context.Context, order *Order) (any, error) {
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[order.Compression]),
		kgo.ProducerBatchMaxBytes(1_000_000),
		kgo.ProducerLinger(20 * time.Millisecond),
		kgo.AllowAutoTopicCreation(),
	}
	if !order.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := connect(order, options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, message := range order.Messages {
		records = append(records, record(order.Topic, order.Partition, message))
	}
	results := client.ProduceSync(within, records...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(records))
	for number, sent := range records {
		offsets[number] = sent.Offset
	}
	return offsets, nil
}

func openStream(_ context.Context, order *Order) (any, error) {
	client, err := connect(order, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	streams = append(streams, &Stream{client: client, topic: order.Topic})
	return len(streams) - 1, nil
}

func send(_ context.Context, order *Order) (any, error) {
	stream := streams[order.Stream]
	for _, message := range order.Messages {
		stream.client.Produce(context.Background(), record(stream.topic, 0, message), func(_ *kgo.Record, err error) {
			stream.guard.Lock()
			defer stream.guard.Unlock()
			stream.failure = errors.Join(stream.failure, err)
		})
	}
	return nil, nil
}

func closeStream(within context.Context, order *Order) (any, error) {
	stream := streams[order.Stream]
	defer stream.client.Close()
	err := stream.client.Flush(within)
	stream.guard.Lock()
	defer stream.guard.Unlock()
	return nil, errors.Join(err, stream.failure)
}

func read(within context.Context, order *Order) (any, error) {
	from := kgo.NewOffset().At(order.Offset)
	client, err := connect(
		order,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{order.Topic: {order.Partition: from}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []Message{}
	for len(found) < order.Count {
		fetches := client.PollRecords(within, order.Count-len(found))
		for _, failure := range fetches.Errors() {
			return nil, failure.Err
		}
		fetches.EachRecord(func(one *kgo.Record) { found = append(found, shown(one)) })
	}
	return found, nil
}

func ends(within context.Context, order *Order) (any, error) {
	return administer(order, func(admin *kadm.Client) (any, error) {
		first, err := admin.ListStartOffsets(within, order.Topic)
		if err != nil {
			return nil, err
		}
		following, err := admin.ListEndOffsets(within, order.Topic)
		if err != nil {
			return nil, err
		}
		low, _ := first.Lookup(order.Topic, order.Partition)
		high, _ := following.Lookup(order.Topic, order.Partition)
		return []int64{low.Offset, high.Offset}, errors.Join(low.Err, high.Err)
	})
}

// offsetForTime detects by the missing timestamp that kadm returned the log end, because no message is that new.
func offsetForTime(within context.Context, order *Order) (any, error) {
	return administer(order, func(admin *kadm.Client) (any, error) {
		found, err := admin.ListOffsetsAfterMilli(within, order.Timestamp, order.Topic)
		if err != nil {
			return nil, err
		}
		one, _ := found.Lookup(order.Topic, order.Partition)
		if one.Timestamp == -1 {
			return -1, one.Err
		}
		return one.Offset, one.Err
	})
}
