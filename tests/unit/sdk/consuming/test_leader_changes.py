"""Tests that a consumer follows leader changes, and backs off after refusals."""

import asyncio

import pytest

from builders.sdk.engines import Put
from builders.sdk.scripted_broker import NAMES, PartitionLog, Refuse, Scene, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.aio.consumer import AsyncConsumer
from millstream.sdk.consuming.fetch_session import Poll, without_session
from millstream.sdk.feed.partition_feed import FeedPosition
from millstream.sdk.responses import NotLeaderError
from millstream.wire.value_writers import unsigned_varint

WAIT_S = 10.0


def topic(scene: Scene, partitions: int = 1) -> list[PartitionLog]:
    scene.cluster.version_max[NAMES["Fetch"]] = 12  # Scripted brokers give topics no ids.
    return scene.cluster.topic("t", partitions)


async def values(consumer: AsyncConsumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            found += [message.value for message in await consumer.poll(1.0)]
    return found


def test_consumer_continues_at_the_new_leader() -> None:
    async def body(scene: Scene) -> None:
        log = topic(scene)[0]
        put, client = Put(scene), scene.client()
        async with client.consumer("t", start="beginning") as consumer:
            for number, leader in enumerate((1, 2, 1, 2)):
                log.leader = leader
                await put("t", b"%d" % number)
                assert await values(consumer, 1) == [b"%d" % number]
        assert {1, 2} <= set(scene.cluster.requests("Fetch"))

    play(body, nodes=2)


def test_a_leader_named_in_a_fetch_error_needs_no_metadata_request() -> None:
    async def body(scene: Scene) -> None:
        log = topic(scene)[0]
        scene.cluster.names_leaders = True
        put, client = Put(scene), scene.client()
        async with client.consumer("t", start="beginning") as consumer:
            for number, leader in enumerate((1, 2, 1, 2)):
                scene.cluster.move(log, leader)
                await put("t", b"%d" % number)
                assert await values(consumer, 1) == [b"%d" % number]
        assert {1, 2} <= set(scene.cluster.requests("Fetch"))
        assert len(scene.cluster.requests("Metadata")) == 2, "one of the producer and one of the consumer"

    play(body, nodes=2)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH]
)
def test_refused_fetches_are_retried_with_a_growing_backoff(code: ErrorCode) -> None:
    async def body(scene: Scene) -> None:
        topic(scene)
        put, client = Put(scene), scene.client()
        await put("t", b"v")
        scene.cluster.then("Fetch", *[Refuse(code)] * 1000)
        async with client.consumer("t", start="beginning") as consumer:
            assert await consumer.poll(30.0) == []
            assert 20 <= len(scene.cluster.requests("Fetch")) <= 80
            assert code.name in consumer.health().reason
            scene.cluster.faults.clear()
            assert await values(consumer, 1) == [b"v"]
            assert consumer.health().reason == ""

    play(body)


def test_a_partition_without_a_leader_does_not_block_others() -> None:
    async def body(scene: Scene) -> None:
        logs = topic(scene, 2)
        logs[1].leader = -1
        put, client = Put(scene), scene.client()
        async with client.consumer("t", start={0: 0, 1: 0}) as consumer:
            for number in range(20):
                await put("t", b"%d" % number, partition=0)
                assert await values(consumer, 1) == [b"%d" % number]
            assert "LEADER_NOT_AVAILABLE" in consumer.health().reason
            asked = len(scene.cluster.requests("Metadata"))
            await asyncio.sleep(30.0)
            assert len(scene.cluster.requests("Metadata")) - asked <= 60
            logs[1].leader = 1
            await put("t", b"last", partition=1)
            assert await values(consumer, 1) == [b"last"]

    play(body)


def fetch_answer(version: int, error: int, tagged: bytes) -> memoryview:
    """Build the body of an answer about partition 0 of topic t, with these tagged fields."""
    assert version == 12
    body = bytearray(4 + 2 + 4)  # Throttle time, error, session id.
    body += unsigned_varint(2) + unsigned_varint(2) + b"t" + unsigned_varint(2)
    body += (0).to_bytes(4, "big") + error.to_bytes(2, "big") + (-1).to_bytes(8, "big", signed=True) * 3
    body += unsigned_varint(0) + (-1).to_bytes(4, "big", signed=True) + unsigned_varint(1)
    return memoryview(bytes(body + tagged + b"\0\0"))


@pytest.mark.parametrize(
    ("tagged", "leader"),
    [
        (b"\0", None),
        (b"\1\1\x09" + (2).to_bytes(4, "big") + (7).to_bytes(4, "big") + b"\0", (2, 7)),
    ],
)
def test_a_refused_fetch_reports_the_named_leader(tagged: bytes, leader: tuple[int, int] | None) -> None:
    where = TopicPartition("t", 0)
    request = without_session(Poll({where: FeedPosition(5, 3)}, {}, 1, 1, 0))
    answer = request.decode(12, fetch_answer(12, ErrorCode.NOT_LEADER_OR_FOLLOWER.number, tagged), 0)
    assert not isinstance(answer, MillstreamError)
    error = answer[where]
    assert isinstance(error, MillstreamError)
    assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    found = (error.leader_id, error.leader_epoch) if isinstance(error, NotLeaderError) else None
    assert found == leader
