"""Implements the verbs with clients generated from the published gRPC contract."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grpc

from builders.gateways.grpc import failure_of
from integration.verbs.shapes import InFlight, Made, PartitionRow, Place, Read, Refused, Stored, StoredOnce, TopicRow
from millstream.gateway.grpc.v1 import (
    cluster_pb2,
    consumers_pb2,
    events_pb2,
    groups_pb2,
    iterators_pb2,
    messages_pb2,
    topics_pb2,
)
from millstream.gateway.grpc.v1.cluster_pb2_grpc import ClusterServiceStub
from millstream.gateway.grpc.v1.consumers_pb2_grpc import ConsumerServiceStub
from millstream.gateway.grpc.v1.groups_pb2_grpc import GroupServiceStub
from millstream.gateway.grpc.v1.iterators_pb2_grpc import IteratorServiceStub
from millstream.gateway.grpc.v1.messages_pb2_grpc import MessageServiceStub
from millstream.gateway.grpc.v1.topics_pb2_grpc import TopicServiceStub
from millstream.sdk.iterating.requests import GroupIterator

_EDGES = {
    "beginning": events_pb2.EDGE_BEGINNING,
    "earliest": events_pb2.EDGE_EARLIEST,
    "latest": events_pb2.EDGE_LATEST,
    "end": events_pb2.EDGE_END,
}
_UNKNOWN_EDGE: Any = 99


class OverGrpc:
    """Calls one gateway. Each request that can name a cluster names `cluster`."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.cluster = "default"
        self._topics: Any = TopicServiceStub(self._channel)
        self._messages: Any = MessageServiceStub(self._channel)
        self._groups: Any = GroupServiceStub(self._channel)
        self._iterators: Any = IteratorServiceStub(self._channel)
        self._consumers: Any = ConsumerServiceStub(self._channel)
        self._clusters: Any = ClusterServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def _ask(self, method: Any, request: Any) -> Any:
        if "cluster" in request.DESCRIPTOR.fields_by_name:
            request.cluster = self.cluster
        try:
            return method(request, timeout=90)
        except grpc.RpcError as error:
            raise _refused(error) from None

    # Topics.

    def list_topics(self, after: str, limit: int) -> list[TopicRow]:
        request = topics_pb2.ListTopicsRequest(page_token=after, page_size=limit)
        rows = self._ask(self._topics.ListTopics, request).topics
        return [TopicRow(row.name, row.partition_count, row.message_count) for row in rows]

    def create_topic(self, name: str, partitions: int = 0, settings: Mapping[str, str] | None = None) -> str:
        request = topics_pb2.CreateTopicRequest(name=name, partitions=partitions, settings=settings or {})
        made: str = self._ask(self._topics.CreateTopic, request).topic_id
        return made

    def add_partitions(self, topic: str, total: int) -> None:
        self._ask(self._topics.AddPartitions, topics_pb2.AddPartitionsRequest(topic=topic, total=total))

    def describe_topic(self, topic: str) -> list[PartitionRow]:
        rows = self._ask(self._topics.DescribeTopic, topics_pb2.DescribeTopicRequest(topic=topic)).partitions
        return [
            PartitionRow(
                row.partition, row.leader, tuple(row.replicas), tuple(row.in_sync), row.first_offset, row.next_offset
            )
            for row in rows
        ]

    def delete_topic(self, topic: str) -> None:
        self._ask(self._topics.DeleteTopic, topics_pb2.DeleteTopicRequest(topic=topic))

    def delete_messages(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        rows = [events_pb2.PartitionOffset(partition=number, offset=offset) for number, offset in before.items()]
        request = messages_pb2.DeleteMessagesRequest(topic=topic, before=rows)
        return {row.partition: row.offset for row in self._ask(self._messages.DeleteMessages, request).first}

    def topic_settings(self, topic: str) -> dict[str, str | None]:
        found = self._ask(self._topics.GetTopicSettings, topics_pb2.GetTopicSettingsRequest(topic=topic))
        return _own(found.settings)

    def change_topic_settings(self, topic: str, chosen: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        request = topics_pb2.AlterTopicSettingsRequest(topic=topic, set=chosen, unset=unset)
        self._ask(self._topics.AlterTopicSettings, request)

    # Writing.

    def put(self, topic: str, value: str | None, key: str | None = None, partition: int | None = None) -> Stored:
        return self._put(topic, value, key=None if key is None else key.encode(), partition=partition)

    def put_many(self, topic: str, values: Sequence[str]) -> list[Stored]:
        events = [events_pb2.Event(value=value.encode()) for value in values]
        found = self._ask(self._messages.PutMany, messages_pb2.PutManyRequest(topic=topic, events=events))
        return [Stored(*row) for row in zip(found.partitions, found.offsets, strict=True)]

    def put_by_hash(self, topic: str, value: str, hash: int) -> Stored:
        return self._put(topic, value, hash=hash)

    def put_once(self, topic: str, value: str, message_id: str) -> StoredOnce:
        event = events_pb2.Event(value=value.encode(), message_id=message_id.encode())
        place = self._ask(self._messages.Put, messages_pb2.PutRequest(topic=topic, event=event))
        return StoredOnce(place.partition, place.offset, place.duplicate)

    def put_tombstone(self, topic: str, key: str | None) -> Stored:
        event = events_pb2.Event(key=None if key is None else key.encode(), tombstone=True)
        place = self._ask(self._messages.Put, messages_pb2.PutRequest(topic=topic, event=event))
        return Stored(place.partition, place.offset)

    def _put(self, topic: str, value: str | None, **more: Any) -> Stored:
        event = events_pb2.Event(value=None if value is None else value.encode(), **more)
        place = self._ask(self._messages.Put, messages_pb2.PutRequest(topic=topic, event=event))
        return Stored(place.partition, place.offset)

    # Reading.

    def get(
        self, topic: str, partition: int, offset: int | str, max_messages: int = 0, wait_s: float = 0
    ) -> list[Read]:
        request = messages_pb2.GetRequest(
            topic=topic,
            partition=partition,
            start=events_pb2.Start(offset=offset) if isinstance(offset, int) else _start(offset),
            max_messages=max_messages,
            wait_ms=int(wait_s * 1000),
        )
        return _read(self._ask(self._messages.Get, request).messages)

    def long_poll(self, topic: str, offset: int) -> list[Read]:
        return self.get(topic, 0, offset, wait_s=60)

    def poll(self, topic: str) -> tuple[list[Read], int]:
        found = self._ask(self._messages.Get, messages_pb2.GetRequest(topic=topic))
        return _read(found.messages), found.next.offsets[0].offset

    def find_offsets(self, topic: str, at: str | int, *, in_wrong_unit: bool = False) -> dict[int, int]:
        at = at // 1000 if isinstance(at, int) and in_wrong_unit else at
        place = _start(at) if isinstance(at, str) else events_pb2.Start(timestamp_ms=at)
        found = self._ask(self._messages.FindOffsets, messages_pb2.FindOffsetsRequest(topic=topic, position=place))
        return {row.partition: row.offset for row in found.offsets}

    def subscribe(self, topic: str, count: int, start: str | None = None) -> list[Read]:
        first = messages_pb2.SubscribeStart(topics=[topic], start=_start(start), cluster=self.cluster)
        found: list[Read] = []
        is_read = threading.Event()

        def requests() -> Iterator[messages_pb2.SubscribeRequest]:
            yield messages_pb2.SubscribeRequest(start=first)
            is_read.wait()  # A subscription ends with its requests.

        call = self._messages.Subscribe(requests())
        try:
            for answer in call:
                found += _read(answer.batch.messages)
                if len(found) >= count:
                    break
        except grpc.RpcError as error:
            raise _refused(error) from None
        finally:
            is_read.set()
            call.cancel()
        return found

    # Groups.

    def read_in_group(self, topic: str, group: str, count: int, start: str | None = None) -> list[str]:
        found: list[str] = []
        edge: Any = None if start is None else _EDGES.get(start, _UNKNOWN_EDGE)
        request = consumers_pb2.PollRequest(topic=topic, group=group, consumer="grpc", wait_ms=60_000, start=edge)
        while len(found) < count:
            found += [message.value.decode() for message in self._ask(self._consumers.Poll, request).messages]
            self._ask(self._consumers.Commit, consumers_pb2.CommitRequest(group=group, consumer="grpc"))
        return found

    def list_groups(self) -> dict[str, str]:
        found = self._ask(self._groups.ListGroups, groups_pb2.ListGroupsRequest(page_size=1000))
        return {row.group: row.state for row in found.groups}

    def describe_group(self, group: str) -> tuple[str, list[str]]:
        found = self._ask(self._groups.DescribeGroup, groups_pb2.DescribeGroupRequest(group=group))
        return found.state, sorted(topic for member in found.members for topic in member.topics)

    def delete_group(self, group: str) -> None:
        self._ask(self._groups.DeleteGroup, groups_pb2.DeleteGroupRequest(group=group))

    def group_lag(self, group: str) -> dict[Place, int]:
        rows = self._ask(self._groups.DescribeGroup, groups_pb2.DescribeGroupRequest(group=group)).partitions
        return {Place(row.topic, row.partition): row.lag for row in rows}

    def group_offsets(self, group: str) -> dict[Place, int]:
        rows = self._ask(self._groups.GetOffsets, groups_pb2.GetOffsetsRequest(group=group)).offsets
        return {Place(row.topic, row.partition): row.offset for row in rows}

    def commit_offsets(self, group: str, topic: str, offset: int) -> None:
        rows = [groups_pb2.CommittedOffset(topic=topic, partition=0, offset=offset)]
        self._ask(self._groups.CommitOffsets, groups_pb2.CommitOffsetsRequest(group=group, offsets=rows))

    def reset_offsets(self, group: str, topic: str, to: str) -> dict[int, int]:
        request = groups_pb2.ResetOffsetsRequest(group=group, topic=topic, to=_start(to))
        return {row.partition: row.offset for row in self._ask(self._groups.ResetOffsets, request).offsets}

    def delete_offsets(self, group: str, topic: str) -> None:
        places = [events_pb2.TopicPartition(topic=topic, partition=0)]
        self._ask(self._groups.DeleteOffsets, groups_pb2.DeleteOffsetsRequest(group=group, partitions=places))

    def group_settings(self, group: str) -> dict[str, str | None]:
        found = self._ask(self._groups.GetGroupSettings, groups_pb2.GetGroupSettingsRequest(group=group))
        return _own(found.settings)

    def change_group_settings(self, group: str, chosen: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        request = groups_pb2.AlterGroupSettingsRequest(group=group, set=chosen, unset=unset)
        self._ask(self._groups.AlterGroupSettings, request)

    # Iterators.

    def join_group(self, group: str, client_id: str) -> list[Place]:
        request = iterators_pb2.JoinGroupRequest(group=group, client_id=client_id)
        return _owned(self._ask(self._iterators.JoinGroup, request))

    def heartbeat(self, group: str, client_id: str) -> list[Place]:
        return _owned(
            self._ask(self._iterators.Heartbeat, iterators_pb2.HeartbeatRequest(group=group, client_id=client_id))
        )

    def leave_group(self, group: str, client_id: str) -> None:
        self._ask(self._iterators.LeaveGroup, iterators_pb2.LeaveGroupRequest(group=group, client_id=client_id))

    def get_iterator(self, group: str, client_id: str, topic: str, partition: int = 0) -> Place:
        request = iterators_pb2.GetIteratorRequest(group=group, client_id=client_id, topic=topic, partition=partition)
        found = self._ask(self._iterators.GetIterator, request).iterator
        return Place(found.topic, found.partition)

    def list_iterators(self, group: str) -> list[InFlight]:
        found = self._ask(self._iterators.ListIterators, iterators_pb2.ListIteratorsRequest(group=group))
        return [InFlight(row.client_id, row.topic, row.partition) for row in found.iterators]

    def read_iterator(self, iterator: GroupIterator) -> list[Read]:
        request = iterators_pb2.ReadIteratorRequest(iterator=_told(iterator), wait_ms=0)
        return _read(self._ask(self._iterators.ReadIterator, request).messages)

    def deliver_iterator(self, group: str, client_id: str, iterator: GroupIterator, count: int) -> None:
        request = iterators_pb2.DeliverIteratorRequest(
            group=group, client_id=client_id, iterator=_told(iterator), count=count
        )
        self._ask(self._iterators.DeliverIterator, request)

    def commit_iterator(self, group: str, client_id: str, iterator: GroupIterator, count: int | None) -> int:
        read: dict[str, Any] = {"delivered": True} if count is None else {"count": count}
        request = iterators_pb2.CommitIteratorRequest(
            group=group, client_id=client_id, iterator=_told(iterator), **read
        )
        position: int = self._ask(self._iterators.CommitIterator, request).position
        return position

    # The cluster.

    def create_cluster(self, name: str, brokers: int) -> Made:
        made = self._ask(self._clusters.CreateCluster, cluster_pb2.CreateClusterRequest(name=name, brokers=brokers))
        return Made(made.name, len(made.brokers), False)

    def list_clusters(self) -> list[str]:
        return list(self._ask(self._clusters.ListClusters, cluster_pb2.ListClustersRequest()).clusters)

    def stop_cluster(self, name: str) -> Made:
        return _made(self._ask(self._clusters.StopCluster, cluster_pb2.StopClusterRequest(name=name)))

    def start_cluster(self, name: str) -> Made:
        return _made(self._ask(self._clusters.StartCluster, cluster_pb2.StartClusterRequest(name=name)))

    def delete_cluster(self, name: str) -> None:
        self._ask(self._clusters.DeleteCluster, cluster_pb2.DeleteClusterRequest(name=name))

    def service_map(self, topics: Sequence[str]) -> dict[Place, int]:
        found = self._ask(self._clusters.GetServiceMap, cluster_pb2.GetServiceMapRequest(topics=topics))
        return {Place(row.topic, row.partition): row.leader for row in found.leaders}

    def backup_map(self, topics: Sequence[str]) -> dict[Place, int]:
        found = self._ask(self._clusters.GetBackupMap, cluster_pb2.GetBackupMapRequest(topics=topics))
        return {Place(row.topic, row.partition): row.end_offset for row in found.partitions}

    def query(self, sql: str) -> tuple[list[str], list[list[Any]]]:
        found = self._ask(self._clusters.RunQuery, cluster_pb2.RunQueryRequest(sql=sql))
        return list(found.columns), [[_value(cell) for cell in row.cells] for row in found.rows]

    def info(self) -> tuple[str, str]:
        found = self._ask(self._clusters.GetInfo, cluster_pb2.GetInfoRequest())
        return found.version, found.cluster_id

    def describe_cluster(self) -> dict[int, int]:
        found = self._ask(self._clusters.GetInfo, cluster_pb2.GetInfoRequest())
        return {row.node_id: row.port for row in found.brokers}

    def broker_settings(self, broker: int) -> dict[str, str | None]:
        request = cluster_pb2.GetBrokerSettingsRequest(broker=broker)
        found = self._ask(self._clusters.GetBrokerSettings, request)
        return {row.name: row.value if row.HasField("value") else None for row in found.settings}

    def change_broker_settings(self, broker: int, chosen: Mapping[str, str]) -> None:
        request = cluster_pb2.AlterBrokerSettingsRequest(broker=broker, set=chosen)
        self._ask(self._clusters.AlterBrokerSettings, request)


def _start(word: str | None) -> events_pb2.Start | None:
    """The start position of a word. An unknown word becomes an unknown number."""
    return None if word is None else events_pb2.Start(edge=_EDGES.get(word, _UNKNOWN_EDGE))


def _refused(error: grpc.RpcError) -> Refused:
    told = failure_of(error)
    return Refused(told.name, told.field, told.text)


def _own(rows: Any) -> dict[str, str | None]:
    return {row.name: row.value if row.HasField("value") else None for row in rows if row.own}


def _read(messages: Any) -> list[Read]:
    return [Read(message.offset, message.value.decode()) for message in messages]


def _owned(answer: Any) -> list[Place]:
    return [Place(row.topic, row.partition) for row in answer.membership.owned]


def _told(iterator: GroupIterator) -> iterators_pb2.Iterator:
    topic, partition, offset, max_messages, generation, server, token = iterator
    return iterators_pb2.Iterator(
        topic=topic,
        partition=partition,
        offset=offset,
        max_messages=max_messages,
        generation=generation,
        host=server.host,
        port=server.port,
        token=token,
    )


def _value(cell: Any) -> Any:
    kind = cell.WhichOneof("value")
    return None if kind is None else getattr(cell, kind)


def _made(answer: Any) -> Made:
    return Made(answer.name, len(answer.brokers), answer.stopped)
