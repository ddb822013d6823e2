"""Tests a cluster whose brokers have separate catalogs, and a broker that is down for a while."""

import asyncio
from collections.abc import Iterator

import grpc
import pytest

from builders.gateways.grpc import HOST, Served, failure_of, grpc_gateway
from millstream.gateway.grpc.server import start_grpc
from millstream.gateway.grpc.v1 import cluster_pb2, consumers_pb2, events_pb2, groups_pb2, messages_pb2, topics_pb2
from millstream.gateway.operations.clusters import DEFAULT, ClientFactory, ServedClusters
from millstream.testing.embedded import EmbeddedBroker


@pytest.fixture
def brokers() -> Iterator[list[EmbeddedBroker]]:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        yield [one, other]


async def put(served: Served, topic: str, *values: bytes) -> None:
    columns = events_pb2.EventColumns(values=values)
    await served.messages.PutMany(messages_pb2.PutManyRequest(topic=topic, columns=columns))


def test_grpc_lists_topics_of_all_brokers_and_routes_calls_to_the_topics_broker(brokers: list[EmbeddedBroker]) -> None:
    async def story(served: Served) -> None:
        names = [f"topic-{number}" for number in range(12)]
        for name in names:
            await served.topics.CreateTopic(topics_pb2.CreateTopicRequest(name=name, partitions=1))
            await put(served, name, name.encode(), b"more")
        homes = [await served.clusters.get().home(name) for name in names]
        assert len(set(homes)) == 2, "both brokers have topics"
        listed: list[str] = []
        token = ""
        while not listed or token:
            page = await served.topics.ListTopics(topics_pb2.ListTopicsRequest(page_size=5, page_token=token))
            listed += [row.name for row in page.topics if not row.internal]
            assert all(row.message_count == 2 for row in page.topics if not row.internal)
            token = page.next_page_token
        assert listed == sorted(names)
        rows = [groups_pb2.CommittedOffset(topic=name, offset=1) for name in names]
        await served.groups.CommitOffsets(groups_pb2.CommitOffsetsRequest(group="all", offsets=rows))
        found = await served.groups.GetOffsets(groups_pb2.GetOffsetsRequest(group="all"))
        assert [(row.topic, row.offset) for row in found.offsets] == [(name, 1) for name in sorted(names)]
        groups = await served.groups.ListGroups(groups_pb2.ListGroupsRequest())
        assert [row.group for row in groups.groups] == ["all"]
        maps = await served.cluster.GetServiceMap(cluster_pb2.GetServiceMapRequest(topics=names))
        assert sorted(row.topic for row in maps.leaders) == sorted(names)
        one = await served.cluster.GetServiceMap(cluster_pb2.GetServiceMapRequest(topics=names[:1]))
        assert [row.topic for row in one.leaders] == names[:1]
        for each in (maps, one):
            ports = [row.port for row in each.services if row.kind == "kafka"]
            assert sorted(ports) == sorted(broker.port for broker in brokers), (
                "brokers without these topics are listed too"
            )
        await subscribed(served, names)
        for name in names:
            request = consumers_pb2.PollRequest(group="consumers", consumer="a", topic=name, wait_ms=10_000)
            polled = await served.consumers.Poll(request)
            assert [message.value for message in polled.messages] == [name.encode(), b"more"]
        await served.groups.DeleteGroup(groups_pb2.DeleteGroupRequest(group="all"))
        await served.topics.DeleteTopic(topics_pb2.DeleteTopicRequest(topic=names[0]))
        with pytest.raises(grpc.RpcError) as caught:
            await served.topics.DescribeTopic(topics_pb2.DescribeTopicRequest(topic=names[0]))
        assert failure_of(caught.value).name == "UNKNOWN_TOPIC_OR_PARTITION"

    async def whole() -> None:
        clusters = ServedClusters({DEFAULT: [broker.bootstrap for broker in brokers]})
        server = await start_grpc(clusters, host=HOST, port=0)
        try:
            async with grpc.aio.insecure_channel(f"{HOST}:{server.port}") as channel:
                await story(Served(server, clusters, channel))
        finally:
            await server.stop(0)
            await clusters.close()

    asyncio.run(whole())


async def subscribed(served: Served, topics: list[str]) -> None:
    """Read all topics, on both brokers, with one subscription."""
    stream = served.messages.Subscribe()
    start = messages_pb2.SubscribeStart(topics=topics, start=events_pb2.Start(edge=events_pb2.EDGE_BEGINNING))
    await stream.write(messages_pb2.SubscribeRequest(start=start))
    seen: set[str] = set()
    while seen != set(topics):
        answer = await stream.read()
        assert isinstance(answer, messages_pb2.SubscribeResponse)
        if answer.HasField("batch"):
            seen.add(answer.batch.topic)
    stream.cancel()


def test_an_unreachable_broker_is_reported_and_streams_resume_when_it_returns() -> None:
    async def story(broker: EmbeddedBroker) -> None:
        async with grpc_gateway(broker.bootstrap, connecting=ClientFactory(timeout_s=2.0)) as served:
            await put(served, "kept", b"before")
            stream = served.messages.PutStream()
            tail = served.messages.Tail(messages_pb2.TailRequest(topic="kept"))
            assert isinstance(await tail.read(), messages_pb2.TailResponse)
            await asyncio.to_thread(broker.kill)
            with pytest.raises(grpc.RpcError) as caught:
                await served.topics.ListTopics(topics_pb2.ListTopicsRequest())
            assert failure_of(caught.value).status is grpc.StatusCode.UNAVAILABLE
            columns = events_pb2.EventColumns(values=[b"during"], message_ids=[b"once"])
            request = messages_pb2.PutStreamRequest(topic="kept", columns=columns)
            await stream.write(request)
            await asyncio.to_thread(broker.start)
            answer = await stream.read()
            while isinstance(answer, messages_pb2.PutStreamResponse) and answer.failures:
                assert answer.failures[0].error.name in ("REQUEST_TIMED_OUT", "NETWORK_EXCEPTION")
                await stream.write(request)
                answer = await stream.read()
            stream.cancel()
            read: list[bytes] = []
            while read != [b"during"]:
                tailed = await tail.read()
                assert isinstance(tailed, messages_pb2.TailResponse)
                read += [message.value for message in tailed.messages]
            tail.cancel()
            found = await served.messages.Get(messages_pb2.GetRequest(topic="kept"))
            assert [message.value for message in found.messages] == [b"before", b"during"]

    with EmbeddedBroker() as broker:
        asyncio.run(story(broker))
