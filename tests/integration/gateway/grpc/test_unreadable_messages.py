"""Tests that gRPC reads return what precedes messages that cannot be returned, and report where these are."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from builders.gateways.grpc import failure_of, grpc_gateway
from builders.sdk.bad_batches import COUNT, bad_batch
from millstream.gateway.budget import Budget, ReadBudget
from millstream.gateway.grpc.statuses import DETAILS_KEY
from millstream.gateway.grpc.v1 import consumers_pb2, events_pb2
from millstream.gateway.grpc.v1 import messages_pb2 as pb
from millstream.gateway.grpc.v1.topics_pb2 import CreateTopicRequest
from millstream.gateway.operations.clusters import ClientFactory
from millstream.records.batch import encode_batch
from millstream.sdk.wire_client import WireClient

Unused = Callable[[str], str]

MIB = 1024 * 1024
BAD = 2
FOLLOWING = BAD + COUNT
BEGINNING = events_pb2.Start(edge=events_pb2.EDGE_BEGINNING)


async def produce(bootstrap: str, topic: str, *batches: bytes | bytearray) -> None:
    async with WireClient(bootstrap) as writer:
        for batch in batches:
            await writer.produce(topic, 0, batch)


def batch(count: int = 1, size_bytes: int = 1, compression: str = "none") -> bytearray:
    return encode_batch([bytes(size_bytes)] * count, timestamps=0, compression=compression)


def offsets(messages: Iterable[events_pb2.Message]) -> list[int]:
    return [message.offset for message in messages]


async def collect(answers: Any, seen: list[int]) -> None:
    async for answer in answers:
        seen += offsets(getattr(answer, "messages", ()))


def where(error: grpc.RpcError) -> tuple[str, int, int]:
    """Return the topic, the offset and the next offset of an error."""
    assert isinstance(error, grpc.aio.AioRpcError)
    info = ErrorInfo()
    status = Status.FromString(dict(error.trailing_metadata() or ())[DETAILS_KEY])
    assert status.details[0].Unpack(info)
    assert info.metadata["partition"] == "0"
    return info.metadata["topic"], int(info.metadata["offset"]), int(info.metadata["next_offset"])


def test_get_and_tail_report_or_skip_a_batch_that_cannot_be_decoded(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            topic = unused("bad")
            settings = {"retention.ms": "-1"}
            await served.topics.CreateTopic(CreateTopicRequest(name=topic, partitions=1, settings=settings))
            await produce(bootstrap, topic, batch(2), bad_batch(), batch())
            found = await served.messages.Get(pb.GetRequest(topic=topic))
            assert offsets(found.messages) == [0, 1]
            with pytest.raises(grpc.RpcError) as raised:
                await served.messages.Get(pb.GetRequest(topic=topic, start=events_pb2.Start(offsets=found.next)))
            assert failure_of(raised.value).name == "UNDECODABLE_BATCH"
            assert failure_of(raised.value).status is grpc.StatusCode.DATA_LOSS
            assert where(raised.value) == (topic, BAD, FOLLOWING)
            after = pb.GetRequest(topic=topic, start=events_pb2.Start(offset=FOLLOWING))
            assert offsets((await served.messages.Get(after)).messages) == [FOLLOWING]
            skipping = pb.GetRequest(topic=topic, skip_bad_batches=True)
            assert offsets((await served.messages.Get(skipping)).messages) == [0, 1, FOLLOWING]

            tail = served.messages.Tail(pb.TailRequest(topic=topic, start=BEGINNING))
            seen: list[int] = []
            with pytest.raises(grpc.RpcError) as raised:
                await collect(tail, seen)
            assert seen == [0, 1]
            assert where(raised.value) == (topic, BAD, FOLLOWING)

    asyncio.run(story())


async def open_requests(first: pb.SubscribeRequest) -> AsyncIterator[pb.SubscribeRequest]:
    """A request stream that stays open: the server may end a subscription whose requests have ended."""
    yield first
    await asyncio.Event().wait()


def test_subscribe_and_poll_report_or_skip_a_batch_that_cannot_be_decoded(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            topic, group = unused("bad"), unused("group")
            settings = {"retention.ms": "-1"}
            await served.topics.CreateTopic(CreateTopicRequest(name=topic, partitions=1, settings=settings))
            await produce(bootstrap, topic, bad_batch(), batch())
            start = pb.SubscribeStart(topics=[topic], start=BEGINNING)
            call = served.messages.Subscribe(open_requests(pb.SubscribeRequest(start=start)))
            with pytest.raises(grpc.RpcError) as raised:
                await collect(call, [])
            assert where(raised.value) == (topic, 0, COUNT)
            request = consumers_pb2.PollRequest(group=group, consumer="a", topic=topic, wait_ms=30_000)
            with pytest.raises(grpc.RpcError) as raised:
                await served.consumers.Poll(request)
            assert where(raised.value) == (topic, 0, COUNT)
            request.skip_bad_batches = True
            assert offsets((await served.consumers.Poll(request)).messages) == [COUNT]

    asyncio.run(story())


def test_a_message_that_exceeds_the_budget_is_named_and_others_fit(bootstrap: str, unused: Unused) -> None:
    budget = Budget(32 * MIB)

    async def story() -> None:
        connecting = ClientFactory(memory=ReadBudget(budget))
        async with grpc_gateway(bootstrap, budget=budget, connecting=connecting) as served:
            topic = unused("large")
            settings = {"retention.ms": "-1"}
            await served.topics.CreateTopic(CreateTopicRequest(name=topic, partitions=1, settings=settings))
            large = [batch(1, size_bytes * MIB, "zstd") for size_bytes in (3, 24, 3)]
            await produce(bootstrap, topic, *large)
            found = await served.messages.Get(pb.GetRequest(topic=topic, max_bytes=16 * MIB))
            assert offsets(found.messages) == [0]
            with pytest.raises(grpc.RpcError) as raised:
                await served.messages.Get(pb.GetRequest(topic=topic, start=events_pb2.Start(offsets=found.next)))
            assert failure_of(raised.value).name == "RESPONSE_TOO_LARGE"
            assert failure_of(raised.value).status is grpc.StatusCode.FAILED_PRECONDITION
            assert where(raised.value) == (topic, 1, 2)
            after = pb.GetRequest(topic=topic, start=events_pb2.Start(offset=2))
            assert offsets((await served.messages.Get(after)).messages) == [2]
            assert budget.held_bytes <= 4 * MIB

    asyncio.run(story())
