package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func administer(order *Order, work func(*kadm.Client) (any, error)) (any, error) {
	client, err := connect(order)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return work(kadm.NewClient(client))
}

func topics(within context.Context, order *Order) (any, error) {
	return administer(order, func(admin *kadm.Client) (any, error) {
		listed, err := admin.ListTopics(within)
		found := map[string]int{}
		for name, topic := range listed {
			found[name] = len(topic.Partitions)
		}
		return found, err
	})
}

func create(within context.Context, order *Order) (any, error) {
	chosen := map[string]*string{}
	for name, value := range order.Settings {
		chosen[name] = &value
	}
	return administer(order, func(admin *kadm.Client) (any, error) {
		_, err := admin.CreateTopic(within, order.Partitions, order.Replication, chosen, order.Topic)
		return nil, err
	})
}

func deleteTopic(within context.Context, order *Order) (any, error) {
	return administer(order, func(admin *kadm.Client) (any, error) {
		_, err := admin.DeleteTopic(within, order.Topic)
		return nil, err
	})
}

func grow(within context.Context, order *Order) (any, error) {
	return administer(order, func(admin *kadm.Client) (any, error) {
		answers, err := admin.UpdatePartitions(within, order.Total, order.Topic)
		if err != nil {
			return nil, err
		}
		return nil, answers.Error()
	})
}

func settings(within context.Context, order *Order) (any, error) {
	return administer(order, func(admin *kadm.Client) (any, error) {
		described, err := admin.DescribeTopicConfigs(within, order.Topic)
		if err != nil {
			return nil, err
		}
		topic, err := described.On(order.Topic, nil)
		if err != nil {
			return nil, err
		}
		found := map[string][]any{}
		for _, one := range topic.Configs {
			found[one.Key] = []any{one.Value, one.Source == kmsg.ConfigSourceDynamicTopicConfig}
		}
		return found, topic.Err
	})
}

func alter(within context.Context, order *Order) (any, error) {
	var changes []kadm.AlterConfig
	for name, value := range order.Settings {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	return administer(order, func(admin *kadm.Client) (any, error) {
		answers, err := admin.AlterTopicConfigs(within, changes, order.Topic)
		if err != nil {
			return nil, err
		}
		answer, err := answers.On(order.Topic, nil)
		if err != nil {
			return nil, err
		}
		return nil, answer.Err
	})
}

func deleteRecords(within context.Context, order *Order) (any, error) {
	var before kadm.Offsets
	before.AddOffset(order.Topic, order.Partition, order.Before, -1)
	return administer(order, func(admin *kadm.Client) (any, error) {
		answers, err := admin.DeleteRecords(within, before)
		if err != nil {
			return nil, err
		}
		answer, _ := answers.Lookup(order.Topic, order.Partition)
		return answer.LowWatermark, answer.Err
	})
}

func groups(within context.Context, order *Order) (any, error) {
	return administer(order, func(admin *kadm.Client) (any, error) {
		listed, err := admin.ListGroups(within)
		return listed.Groups(), err
	})
}

// describeGroup describes a group of the newer protocol or, if it is not one, a classic group.
func describeGroup(within context.Context, order *Order) (any, error) {
	return administer(order, func(admin *kadm.Client) (any, error) {
		shown, err := admin.DescribeConsumerGroups(within, order.Group)
		if group := shown[order.Group]; err == nil && group.Err == nil {
			return map[string]any{"state": group.State, "members": len(group.Members)}, nil
		}
		described, err := admin.DescribeGroups(within, order.Group)
		if err != nil {
			return nil, err
		}
		group := described[order.Group]
		return map[string]any{"state": group.State, "members": len(group.Members)}, group.Err
	})
}

func committed(within context.Context, order *Order) (any, error) {
	return administer(order, func(admin *kadm.Client) (any, error) {
		answers, err := admin.FetchOffsets(within, order.Group)
		found := map[int32]int64{}
		for partition, one := range answers[order.Topic] {
			found[partition] = one.At
		}
		return found, err
	})
}

func resetGroup(within context.Context, order *Order) (any, error) {
	var offsets kadm.Offsets
	for partition, offset := range order.Offsets {
		offsets.AddOffset(order.Topic, partition, offset, -1)
	}
	return administer(order, func(admin *kadm.Client) (any, error) {
		return nil, admin.CommitAllOffsets(within, order.Group, offsets)
	})
}

func deleteGroup(within context.Context, order *Order) (any, error) {
	return administer(order, func(admin *kadm.Client) (any, error) {
		_, err := admin.DeleteGroup(within, order.Group)
		return nil, err
	})
}
