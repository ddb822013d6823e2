package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Member is a consumer in a group, which polls until it leaves.
type Member struct {
	client   *kgo.Client
	stop     context.CancelFunc
	done     chan struct{}
	guard    sync.Mutex
	assigned map[int32]bool
	received [][]any
}

var members []*Member

func join(_ context.Context, order *Order) (any, error) {
	member := &Member{done: make(chan struct{}), assigned: map[int32]bool{}, received: [][]any{}}
	given := func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
		member.change(topics[order.Topic], true)
	}
	taken := func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
		member.change(topics[order.Topic], false)
	}
	base := context.Background()
	balancer := kgo.RangeBalancer()
	switch order.Protocol {
	case "cooperative":
		balancer = kgo.CooperativeStickyBalancer()
	case "new":
		// franz-go does this only if configured.
		base = context.WithValue(base, "opt_in_kafka_next_gen_balancer_beta", true) //nolint:staticcheck
		balancer = kgo.CooperativeStickyBalancer()
	}
	client, err := connect(
		order,
		kgo.WithContext(base),
		kgo.ConsumerGroup(order.Group),
		kgo.ConsumeTopics(order.Topic),
		kgo.Balancers(balancer),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.OnPartitionsAssigned(given),
		kgo.OnPartitionsRevoked(taken),
		kgo.OnPartitionsLost(taken),
	)
	if err != nil {
		return nil, err
	}
	member.client = client
	polling, stop := context.WithCancel(context.Background())
	member.stop = stop
	go member.poll(polling)
	members = append(members, member)
	return len(members) - 1, nil
}

func (member *Member) change(partitions []int32, have bool) {
	member.guard.Lock()
	defer member.guard.Unlock()
	for _, partition := range partitions {
		if have {
			member.assigned[partition] = true
		} else {
			delete(member.assigned, partition)
		}
	}
}

func (member *Member) poll(polling context.Context) {
	defer close(member.done)
	for polling.Err() == nil {
		fetches := member.client.PollFetches(polling)
		member.guard.Lock()
		fetches.EachRecord(func(one *kgo.Record) {
			member.received = append(member.received, []any{one.Partition, one.Offset, one.Value})
		})
		member.guard.Unlock()
	}
}

func assigned(_ context.Context, order *Order) (any, error) {
	member := members[order.Member]
	member.guard.Lock()
	defer member.guard.Unlock()
	return slices.AppendSeq([]int32{}, maps.Keys(member.assigned)), nil
}

func received(_ context.Context, order *Order) (any, error) {
	member := members[order.Member]
	member.guard.Lock()
	defer member.guard.Unlock()
	return slices.Clone(member.received), nil
}

func commit(within context.Context, order *Order) (any, error) {
	return nil, members[order.Member].client.CommitUncommittedOffsets(within)
}

func leave(within context.Context, order *Order) (any, error) {
	member := members[order.Member]
	member.stop()
	<-member.done
	err := member.client.LeaveGroupContext(within)
	member.client.Close()
	return nil, err
}
