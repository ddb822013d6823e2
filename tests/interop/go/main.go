// Drives franz-go for the tests: one order per line on standard input, one answer per line on standard output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

// Order has the operands of all orders; each order uses some of them. Bytes are Base64 in JSON, nil is null.
type Order struct {
	Do          string
	Bootstrap   string
	Topic       string
	Group       string
	Protocol    string
	Compression string
	Idempotent  bool
	Partition   int32
	Partitions  int32
	Total       int
	Replication int16
	Offset      int64
	Before      int64
	Timestamp   int64
	Count       int
	Member      int
	Stream      int
	Settings    map[string]string
	Offsets     map[int32]int64
	Messages    []Message
}

// Message is a message to write, or one that was read.
type Message struct {
	Offset    int64    `json:"offset"`
	Timestamp *int64   `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

type header struct {
	name    string
	content []byte
}

func (one header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{one.name, one.content})
}

func (one *header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&one.name, &one.content})
}

var orders = map[string]func(context.Context, *Order) (any, error){
	"write": write, "read": read, "ends": ends, "time": offsetForTime,
	"open stream": openStream, "send": send, "close stream": closeStream,
	"join": join, "assigned": assigned, "received": received, "commit": commit, "leave": leave,
	"topics": topics, "create": create, "delete": deleteTopic, "grow": grow,
	"settings": settings, "alter": alter, "delete records": deleteRecords,
	"groups": groups, "describe group": describeGroup, "committed": committed,
	"reset group": resetGroup, "delete group": deleteGroup,
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		if err := out.Encode(answer(line)); err != nil {
			panic(err)
		}
	}
}

func answer(line []byte) map[string]any {
	var order Order
	if err := json.Unmarshal(line, &order); err != nil {
		panic(err)
	}
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	said, err := orders[order.Do](within, &order)
	if err == nil {
		return map[string]any{"answer": said}
	}
	number := int16(-1)
	var refusal *kerr.Error
	if errors.As(err, &refusal) {
		number = refusal.Code
	}
	return map[string]any{"refused": number, "text": err.Error()}
}

func connect(order *Order, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(order.Bootstrap)}, options...)...)
}
