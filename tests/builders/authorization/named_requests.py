"""Builds one request for each API that names a topic or a group, with the fields of all versions."""

from collections.abc import Mapping
from typing import Any

from builders.batches import batch
from millstream.catalog.catalog import Topic
from millstream.model.names import NO_TOPIC_ID
from millstream.wire.schema_readers import Fields

NEW_TOPIC = "created"
"""The name of the topic in the CreateTopics request."""

BROKER = "1"


def named_requests(topic: Topic, group: str, iterator: bytes = b"") -> Mapping[str, Fields]:
    """Return the requests by API. `iterator` is a signed iterator of the topic's partition 0."""
    return {
        **_data_requests(topic),
        **_group_requests(topic, group),
        **_iterator_requests(topic, group, iterator),
        **_admin_requests(topic, group),
        **_own_requests(topic, group),
    }


def _data_requests(topic: Topic) -> dict[str, Fields]:
    both = {"name": topic.name, "topic_id": topic.topic_id}
    numbered = {"partition_index": 0, "timestamp": -1}
    return {
        "Produce": {"acks": -1, "topic_data": [{**both, "partition_data": [{"index": 0, "records": batch()}]}]},
        "Puts": {"acks": -1, "topics": [{"name": topic.name, "entries": [{"partition": 0, "records": batch()}]}]},
        "Fetch": {
            "topics": [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": [{"partition": 0}]}],
        },
        "ListOffsets": {"topics": [{"name": topic.name, "partitions": [numbered]}]},
        "OffsetForLeaderEpoch": {"topics": [{"topic": topic.name, "partitions": [{"partition": 0}]}]},
        "Metadata": {"topics": [{"name": topic.name, "topic_id": NO_TOPIC_ID}]},
        "InitProducerId": {"transactional_id": None},
        "ApiVersions": {"client_software_name": "test", "client_software_version": "1"},
    }


def _group_requests(topic: Topic, group: str) -> dict[str, Fields]:
    both = {"name": topic.name, "topic_id": topic.topic_id}
    member = {"group_id": group, "member_id": "m"}
    committed = {"partition_index": 0, "committed_offset": 3}
    by_name = {"name": topic.name, "partition_indexes": [0]}
    groups = [{"group_id": group, "topics": [{**both, "partition_indexes": [0]}]}]
    return {
        "OffsetCommit": {"group_id": group, "topics": [{**both, "partitions": [committed]}]},
        "OffsetFetch": {"group_id": group, "topics": [by_name], "groups": groups},
        "OffsetDelete": {
            "group_id": group,
            "topics": [{"name": topic.name, "partitions": [{"partition_index": 0}]}],
        },
        "FindCoordinator": {"key": group, "coordinator_keys": [group]},
        "JoinGroup": {
            **member,
            "protocol_type": "consumer",
            "session_timeout_ms": 10_000,
            "protocols": [{"name": "range", "metadata": b""}],
        },
        "SyncGroup": {**member, "protocol_type": "consumer", "protocol_name": "range"},
        "Heartbeat": member,
        "LeaveGroup": {**member, "members": [{"member_id": "m"}]},
        "DescribeGroups": {"groups": [group]},
        "ListGroups": {},
        "DeleteGroups": {"groups_names": [group]},
        "ConsumerGroupHeartbeat": {**member, "subscribed_topic_names": [topic.name], "rebalance_timeout_ms": 60_000},
        "ConsumerGroupDescribe": {"group_ids": [group]},
        "WatchMember": member,
    }


def _iterator_requests(topic: Topic, group: str, iterator: bytes) -> dict[str, Fields]:
    client = {"group_id": group, "client_id": "c"}
    return {
        "IteratorJoin": client,
        "IteratorHeartbeat": client,
        "IteratorLeave": client,
        "GetIterator": {**client, "topic": topic.name, "partition": 0},
        "ListIterators": client,
        "ReadIterator": {"iterator": iterator},
        "CommitIterator": {**client, "iterator": iterator, "count": 0},
        "DeliverIterator": {**client, "iterator": iterator, "count": 0},
    }


def _admin_requests(topic: Topic, group: str) -> dict[str, Fields]:
    name = topic.name
    resources: list[dict[str, Any]] = [
        {"resource_type": 2, "resource_name": name},
        {"resource_type": 4, "resource_name": BROKER},
        {"resource_type": 32, "resource_name": group},
    ]
    altered = [{**each, "configs": []} for each in resources]
    altered[0]["configs"] = [{"name": "retention.ms", "value": "1"}]
    return {
        "CreateTopics": {"topics": [{"name": NEW_TOPIC, "num_partitions": 1, "replication_factor": 1}]},
        "DeleteTopics": {"topics": [{"name": name}], "topic_names": [name]},
        "DeleteRecords": {
            "timeout_ms": 10_000,
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "offset": 1}]}],
        },
        "CreatePartitions": {"topics": [{"name": name, "count": 2, "assignments": None}]},
        "DescribeConfigs": {"resources": resources},
        "AlterConfigs": {"resources": altered},
        "IncrementalAlterConfigs": {"resources": altered},
        "ElectLeaders": {"topic_partitions": [{"topic": name, "partitions": [0]}]},
        "AlterPartitionReassignments": {
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "replicas": [int(BROKER)]}]}],
        },
        "DescribeProducers": {"topics": [{"name": name, "partition_indexes": [0]}]},
        "DescribeTopicPartitions": {"topics": [{"name": name}]},
        "CreateAcls": {"creations": [{}]},
        "DeleteAcls": {"filters": [{}]},
        "DescribeAcls": {},
        "DescribeLogDirs": {},
        "AlterReplicaLogDirs": {"dirs": [{"path": "/data", "topics": [{"name": name, "partitions": [0]}]}]},
        "ListPartitionReassignments": {},
        "DescribeClientQuotas": {},
        "DescribeUserScramCredentials": {},
        "DescribeCluster": {},
        "ListConfigResources": {},
    }


def _own_requests(topic: Topic, group: str) -> dict[str, Fields]:
    place = {"partition": 0, "offset": 0}
    return {
        "Info": {},
        "Role": {"role": 2},
        "Query": {"sql": "SELECT 1"},
        "ServiceMap": {"topics": [topic.name]},
        "BackupMap": {"topics": [topic.name]},
        "Subscribe": {
            "group_id": group,
            "window_messages": 10,
            "window_bytes": 100_000,
            "share_percent": 50,
            "otherwise": -1,
            "topics": [{"name": topic.name, "topic_id": NO_TOPIC_ID, "partitions": [place]}],
        },
        "SubscriptionCommit": {"topics": [{"name": topic.name, "partitions": [place]}]},
        "Unsubscribe": {},
    }
