"""Tests TopicService, GroupService and ClusterService."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import grpc
import pytest

from builders.gateways.grpc import Served, failure_of, grpc_gateway
from millstream.gateway.grpc.v1 import cluster_pb2, events_pb2, groups_pb2, messages_pb2, topics_pb2

Unused = Callable[[str], str]


async def create(served: Served, topic: str, partitions: int = 1) -> None:
    await served.topics.CreateTopic(topics_pb2.CreateTopicRequest(name=topic, partitions=partitions))


async def put(served: Served, topic: str, *values: bytes, partition: int | None = None) -> None:
    events = [events_pb2.Event(value=value, partition=partition) for value in values]
    await served.messages.PutMany(messages_pb2.PutManyRequest(topic=topic, events=events))


def test_a_topic_is_created_described_extended_and_deleted(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        topic = unused("orders")
        async with grpc_gateway(bootstrap) as served:
            request = topics_pb2.CreateTopicRequest(name=topic, partitions=2, settings={"retention.ms": "60000"})
            made = await served.topics.CreateTopic(request)
            again = topics_pb2.CreateTopicRequest(name=topic, exist_ok=True)
            assert UUID(made.topic_id) == UUID((await served.topics.CreateTopic(again)).topic_id)
            await put(served, topic, b"one", b"two", partition=1)
            await served.topics.AddPartitions(topics_pb2.AddPartitionsRequest(topic=topic, total=3))
            found = await served.topics.DescribeTopic(topics_pb2.DescribeTopicRequest(topic=topic))
            assert (found.name, found.topic_id, found.internal) == (topic, made.topic_id, False)
            assert [row.partition for row in found.partitions] == [0, 1, 2]
            assert [(row.first_offset, row.next_offset) for row in found.partitions] == [(0, 0), (0, 2), (0, 0)]
            assert found.partitions[1].size_bytes > 0
            assert list(found.partitions[1].in_sync) == [found.partitions[1].leader]
            await served.topics.DeleteTopic(topics_pb2.DeleteTopicRequest(topic=topic))
            with pytest.raises(grpc.RpcError) as caught:
                await served.topics.DescribeTopic(topics_pb2.DescribeTopicRequest(topic=topic))
            assert failure_of(caught.value).name == "UNKNOWN_TOPIC_OR_PARTITION"

    asyncio.run(story())


def test_topics_are_listed_in_pages_with_their_sizes(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        names = sorted(unused("listed") for _ in range(5))
        async with grpc_gateway(bootstrap) as served:
            for name in names:
                await create(served, name)
            await put(served, names[0], b"one", b"two")
            rows: list[topics_pb2.TopicSummary] = []
            token = ""
            while True:
                request = topics_pb2.ListTopicsRequest(page_size=2, page_token=token)
                page = await served.topics.ListTopics(request)
                assert len(page.topics) <= 2
                rows += page.topics
                token = page.next_page_token
                if not token:
                    break
            listed = {row.name: row for row in rows}
            assert len(listed) == len(rows)
            assert [name for name in listed if name in names] == names
            assert (listed[names[0]].message_count, listed[names[0]].partition_count) == (2, 1)
            assert listed[names[0]].size_bytes > listed[names[1]].size_bytes == 0

    asyncio.run(story())


def test_topic_settings_are_read_changed_and_unset(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        topic = unused("settings")
        async with grpc_gateway(bootstrap) as served:
            await create(served, topic)

            async def retention() -> topics_pb2.Setting:
                request = topics_pb2.GetTopicSettingsRequest(topic=topic, names=["retention.ms"])
                (found,) = (await served.topics.GetTopicSettings(request)).settings
                return found

            before = await retention()
            alter = topics_pb2.AlterTopicSettingsRequest(topic=topic, set={"retention.ms": "1234567"})
            await served.topics.AlterTopicSettings(alter)
            changed = await retention()
            assert (changed.value, changed.own, changed.source) == ("1234567", True, "topic")
            assert changed.documentation
            await served.topics.AlterTopicSettings(
                topics_pb2.AlterTopicSettingsRequest(topic=topic, unset=["retention.ms"])
            )
            assert await retention() == before
            everything = await served.topics.GetTopicSettings(topics_pb2.GetTopicSettingsRequest(topic=topic))
            assert len(everything.settings) > 10

    asyncio.run(story())


REFUSED = [
    (topics_pb2.CreateTopicRequest(name="no spaces"), "INVALID_ARGUMENT", "INVALID_TOPIC", "name"),
    (topics_pb2.CreateTopicRequest(name="x", partitions=-5), "INVALID_ARGUMENT", "INVALID_PARTITIONS", "partitions"),
    (
        topics_pb2.CreateTopicRequest(name="x", replication_factor=7),
        "INVALID_ARGUMENT",
        "INVALID_REPLICATION_FACTOR",
        "replication_factor",
    ),
    (
        topics_pb2.CreateTopicRequest(name="x", settings={"no.such": "1"}),
        "INVALID_ARGUMENT",
        "INVALID_CONFIG",
        "settings.no.such",
    ),
    (topics_pb2.CreateTopicRequest(name="there"), "ALREADY_EXISTS", "TOPIC_ALREADY_EXISTS", None),
    (topics_pb2.DescribeTopicRequest(topic="nowhere"), "NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION", None),
    (topics_pb2.DeleteTopicRequest(topic="nowhere"), "NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION", None),
    (topics_pb2.DeleteTopicRequest(topic="there", cluster="moon"), "NOT_FOUND", "UNKNOWN_CLUSTER", "cluster"),
    (topics_pb2.AddPartitionsRequest(topic="there", total=1), "INVALID_ARGUMENT", "INVALID_PARTITIONS", "total"),
    (topics_pb2.ListTopicsRequest(page_size=100_000), "INVALID_ARGUMENT", "INVALID_REQUEST", "page_size"),
    (
        topics_pb2.AlterTopicSettingsRequest(topic="there", set={"retention.ms": "soon"}),
        "INVALID_ARGUMENT",
        "INVALID_CONFIG",
        "set.retention.ms",
    ),
]


@pytest.mark.parametrize(("request_", "status", "name", "field"), REFUSED, ids=lambda each: type(each).__name__)
def test_invalid_topic_requests_name_error_and_field(
    bootstrap: str, request_: object, status: str, name: str, field: str | None
) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            await served.topics.CreateTopic(topics_pb2.CreateTopicRequest(name="there", exist_ok=True))
            method = getattr(served.topics, type(request_).__name__.removesuffix("Request"))
            with pytest.raises(grpc.RpcError) as caught:
                await method(request_)
            failure = failure_of(caught.value)
            assert (failure.status.name, failure.name, failure.field) == (status, name, field)
            assert failure.text.startswith(f"{name}: ")

    asyncio.run(story())


def test_group_offsets_are_committed_reset_and_deleted_over_grpc(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        topic, group = unused("places"), unused("group")
        async with grpc_gateway(bootstrap) as served:
            await create(served, topic, 2)
            await put(served, topic, *[b"%d" % number for number in range(10)], partition=0)

            async def offsets() -> dict[int, int]:
                found = await served.groups.GetOffsets(groups_pb2.GetOffsetsRequest(group=group))
                assert {row.topic for row in found.offsets} <= {topic}
                return {row.partition: row.offset for row in found.offsets}

            async def reset(to: events_pb2.Start, *, validate_only: bool = False) -> dict[int, int]:
                request = groups_pb2.ResetOffsetsRequest(group=group, topic=topic, to=to, validate_only=validate_only)
                found = await served.groups.ResetOffsets(request)
                return {row.partition: row.offset for row in found.offsets}

            assert await offsets() == {}
            row = groups_pb2.CommittedOffset(topic=topic, partition=0, offset=3, metadata="by hand")
            await served.groups.CommitOffsets(groups_pb2.CommitOffsetsRequest(group=group, offsets=[row]))
            assert await offsets() == {0: 3}
            assert await reset(events_pb2.Start(edge=events_pb2.EDGE_END), validate_only=True) == {0: 10, 1: 0}
            assert await offsets() == {0: 3}
            assert await reset(events_pb2.Start(offset=5)) == {0: 5, 1: 0} == await offsets()
            assert await reset(events_pb2.Start(timestamp_ms=0)) == {0: 0, 1: 0}
            assert await reset(events_pb2.Start(timestamp_ms=2**46)) == {0: 10, 1: 0}
            some = events_pb2.PartitionOffsets(offsets=[events_pb2.PartitionOffset(partition=0, offset=77)])
            assert await reset(events_pb2.Start(offsets=some)) == {0: 10}
            listed = await served.groups.ListGroups(groups_pb2.ListGroupsRequest())
            assert group in [each.group for each in listed.groups]
            described = await served.groups.DescribeGroup(groups_pb2.DescribeGroupRequest(group=group))
            assert (described.group, list(described.members)) == (group, [])
            place = events_pb2.TopicPartition(topic=topic, partition=0)
            await served.groups.DeleteOffsets(groups_pb2.DeleteOffsetsRequest(group=group, partitions=[place]))
            assert await offsets() == {1: 0}
            await served.groups.DeleteGroup(groups_pb2.DeleteGroupRequest(group=group))
            assert await offsets() == {}
            with pytest.raises(grpc.RpcError) as caught:
                await served.groups.DeleteGroup(groups_pb2.DeleteGroupRequest(group=group))
            assert failure_of(caught.value).name == "GROUP_ID_NOT_FOUND"

    asyncio.run(story())


def test_cluster_info_service_map_and_backup_map_are_returned(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        topic = unused("mapped")
        async with grpc_gateway(bootstrap) as served:
            await create(served, topic)
            assert list((await served.cluster.ListClusters(cluster_pb2.ListClustersRequest())).clusters) == ["default"]
            info = await served.cluster.GetInfo(cluster_pb2.GetInfoRequest())
            assert [f"{row.host}:{row.port}" for row in info.brokers] == [bootstrap]
            assert info.version
            assert info.server_time_ms > 0
            services = await served.cluster.GetServiceMap(cluster_pb2.GetServiceMapRequest(topics=[topic]))
            assert "kafka" in [row.kind for row in services.services]
            assert [(row.topic, row.leader) for row in services.leaders] == [(topic, info.node_id)]
            backups = await served.cluster.GetBackupMap(cluster_pb2.GetBackupMapRequest(topics=[topic]))
            assert [(row.topic, row.leader, list(row.followers)) for row in backups.partitions] == [
                (topic, info.node_id, [])
            ]
            assert backups.note
            with pytest.raises(grpc.RpcError) as caught:
                await served.cluster.CreateCluster(cluster_pb2.CreateClusterRequest(name="mine"))
            failure = failure_of(caught.value)
            assert (failure.status.name, failure.name) == ("UNIMPLEMENTED", "NO_SUPERVISOR")

    asyncio.run(story())
