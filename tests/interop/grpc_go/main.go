// A client in Go, generated from the published contract only: it does what a first program would do, and prints the
// results as one JSON object on standard output.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	millstream "millstream/v1"
)

const patience = 60 * time.Second

// Failure is an error as its gRPC details describe it.
type Failure struct {
	Code   string
	Reason string
	Domain string
	Field  string
}

func main() {
	address, topic, group := os.Args[1], os.Args[2], os.Args[3]
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	connection := must(grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer connection.Close()
	told := map[string]any{
		"created": create(within, connection, topic),
		"put":     put(within, connection, topic),
		"stream":  stream(within, connection, topic),
		"got":     get(within, connection, topic),
		"tailed":  tail(within, connection, topic),
		"polled":  poll(within, connection, topic, group),
		"refused": refused(within, connection, topic),
	}
	check(json.NewEncoder(os.Stdout).Encode(told))
}

func create(within context.Context, connection *grpc.ClientConn, topic string) bool {
	topics := millstream.NewTopicServiceClient(connection)
	made := must(topics.CreateTopic(within, &millstream.CreateTopicRequest{Name: topic, Partitions: 2}))
	found := must(topics.DescribeTopic(within, &millstream.DescribeTopicRequest{Topic: topic}))
	return found.TopicId == made.TopicId && len(found.Partitions) == 2
}

func put(within context.Context, connection *grpc.ClientConn, topic string) []int64 {
	messages := millstream.NewMessageServiceClient(connection)
	event := &millstream.Event{
		Value:     []byte("first"),
		Key:       []byte("key"),
		Headers:   []*millstream.Header{{Name: "from", Value: []byte("Go")}, {Name: "none"}},
		Partition: proto.Int32(1),
		MessageId: []byte("number one"),
	}
	request := &millstream.PutRequest{Topic: topic, Event: event}
	first := must(messages.Put(within, request))
	again := must(messages.Put(within, request))
	return []int64{int64(first.Partition), first.Offset, int64(again.Partition), again.Offset}
}

// stream writes ten batches before it reads the result of the first.
func stream(within context.Context, connection *grpc.ClientConn, topic string) []int64 {
	writer := must(millstream.NewMessageServiceClient(connection).PutStream(within))
	for number := range int64(10) {
		columns := &millstream.EventColumns{Partitions: []int32{0, 0, 0}}
		for row := range 3 {
			columns.Values = append(columns.Values, fmt.Appendf(nil, "%d.%d", number, row))
		}
		check(writer.Send(&millstream.PutStreamRequest{Topic: topic, Columns: columns, Sequence: number}))
	}
	check(writer.CloseSend())
	var offsets []int64
	for number := range int64(10) {
		told := must(writer.Recv())
		if told.Sequence != number || len(told.Failures) > 0 {
			panic(told)
		}
		offsets = append(offsets, told.Offsets...)
	}
	return offsets
}

func get(within context.Context, connection *grpc.ClientConn, topic string) []string {
	messages := millstream.NewMessageServiceClient(connection)
	var values []string
	start := &millstream.Start{Position: &millstream.Start_Edge{Edge: millstream.Edge_EDGE_BEGINNING}}
	for {
		request := &millstream.GetRequest{Topic: topic, Start: start, MaxMessages: 7, WaitMs: proto.Int32(0)}
		found := must(messages.Get(within, request))
		if len(found.Messages) == 0 {
			return values
		}
		for _, message := range found.Messages {
			values = append(values, string(message.Value))
			if string(message.Value) == "first" && (string(message.MessageId) != "number one" || len(message.Headers) != 2) {
				panic(message)
			}
		}
		start = &millstream.Start{Position: &millstream.Start_Offsets{Offsets: found.Next}}
	}
}

func tail(within context.Context, connection *grpc.ClientConn, topic string) string {
	within, cancel := context.WithCancel(within)
	defer cancel()
	messages := millstream.NewMessageServiceClient(connection)
	reader := must(messages.Tail(within, &millstream.TailRequest{Topic: topic}))
	must(reader.Recv()) // It says where it begins, so that nothing that is written from here on is missed.
	event := &millstream.Event{Value: []byte("live"), Partition: proto.Int32(1)}
	must(messages.Put(within, &millstream.PutRequest{Topic: topic, Event: event}))
	return string(must(reader.Recv()).Messages[0].Value)
}

func poll(within context.Context, connection *grpc.ClientConn, topic, group string) int {
	consumers := millstream.NewConsumerServiceClient(connection)
	request := &millstream.PollRequest{Group: group, Consumer: "go", Topic: topic, WaitMs: proto.Int32(5_000)}
	seen := map[string]bool{}
	for len(seen) < 32 {
		for _, message := range must(consumers.Poll(within, request)).Messages {
			seen[string(message.Value)] = true
		}
		must(consumers.Commit(within, &millstream.CommitRequest{Group: group, Consumer: "go"}))
	}
	must(consumers.Leave(within, &millstream.LeaveRequest{Group: group, Consumer: "go"}))
	return len(seen)
}

func refused(within context.Context, connection *grpc.ClientConn, topic string) []Failure {
	topics := millstream.NewTopicServiceClient(connection)
	var failures []Failure
	for _, name := range []string{topic, "no topic's name"} {
		_, err := topics.CreateTopic(within, &millstream.CreateTopicRequest{Name: name})
		told := status.Convert(err)
		failure := Failure{Code: told.Code().String()}
		for _, detail := range told.Details() {
			switch each := detail.(type) {
			case *errdetails.ErrorInfo:
				failure.Reason, failure.Domain = each.Reason, each.Domain
			case *errdetails.BadRequest:
				failure.Field = each.FieldViolations[0].Field
			}
		}
		failures = append(failures, failure)
	}
	return failures
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
