"""Tests which partitions an open write of a connection holds, while the flush of the broker's disk is held."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from builders.batches import batch
from builders.disks import HeldDisk
from builders.requests import RawPeer, request_frame
from builders.served import ServedBroker, fetch, serve, until
from millstream.model.errors import ErrorCode
from millstream.storage.store import FlushPolicy
from millstream.wire.fetch import FetchPartition
from millstream.wire.fetch_client import write_fetch_request
from millstream.wire.framing import read_correlation_id, read_response_header
from millstream.wire.produce import parse_produce_response, write_produce_request
from millstream.wire.topic_ref import TopicRef

LONG_MS = 60_000


def produce_frame(topic: TopicRef, partition: int, *, timeout_ms: int = LONG_MS, version: int = 9) -> bytes:
    body = write_produce_request(version, [(topic, [(partition, batch())])], acks=-1, timeout_ms=timeout_ms)
    return request_frame("Produce", version, body=body)


def fetch_frame(topic: TopicRef, partition: int, *, version: int = 12) -> bytes:
    body = write_fetch_request(version, [(topic, [FetchPartition(partition, 0, 1_000)])], max_wait_ms=0)
    return request_frame("Fetch", version, body=[body])


def list_frame(topic: TopicRef, partition: int) -> bytes:
    topics = [{"name": topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}]
    return request_frame("ListOffsets", 7, {"topics": topics})


def epoch_frame(topic: TopicRef, partition: int) -> bytes:
    topics = [{"topic": topic, "partitions": [{"partition": partition, "leader_epoch": 0}]}]
    return request_frame("OffsetForLeaderEpoch", 4, {"topics": topics})


def producers_frame(topic: TopicRef, partition: int) -> bytes:
    return request_frame("DescribeProducers", 0, {"topics": [{"name": topic, "partition_indexes": [partition]}]})


async def session_frame(broker: ServedBroker, peer: RawPeer, topic: TopicRef, partition: int) -> bytes:
    """Return a fetch that continues a session with this partition, and so names none."""
    begun = await fetch(peer, [(topic, [FetchPartition(partition, 0, 1_000)])], session_epoch=0)
    body = write_fetch_request(12, [], max_wait_ms=0, session_id=begun.session_id, session_epoch=1)
    return request_frame("Fetch", 12, body=[body])


Make = Callable[[ServedBroker, RawPeer, TopicRef, int], Awaitable[bytes]]


def simple(make: Callable[[TopicRef, int], bytes]) -> Make:
    async def frame(_broker: ServedBroker, _peer: RawPeer, topic: TopicRef, partition: int) -> bytes:
        return make(topic, partition)

    return frame


async def fetch_by_id(broker: ServedBroker, _peer: RawPeer, topic: TopicRef, partition: int) -> bytes:
    found = broker.cluster.image.topic(str(topic))
    assert found is not None
    return fetch_frame(found.topic_id, partition, version=13)


READS: dict[str, Make] = {
    "fetch": simple(fetch_frame),
    "fetch by topic id": fetch_by_id,
    "fetch of a session": session_frame,
    "list offsets": simple(list_frame),
    "epoch end": simple(epoch_frame),
    "describe producers": simple(producers_frame),
}


@pytest.mark.parametrize("kind", READS)
@pytest.mark.parametrize("is_same", [True, False])
def test_a_read_waits_for_an_unflushed_write_to_its_partition(kind: str, is_same: bool, tmp_path: Path) -> None:
    disk = HeldDisk()

    async def story(broker: ServedBroker) -> None:
        await broker.topic("events", 3)
        peer = await broker.peer()
        read = await READS[kind](broker, peer, "events", 0 if is_same else 1)
        written, following = broker.partitions.get("events", 0), broker.partitions.get("events", 2)
        assert written is not None
        assert following is not None
        disk.may_flush.clear()
        try:
            peer.send(produce_frame("events", 0), read, produce_frame("events", 2))
            await until(lambda: written.log.end_offset == 1)
            if is_same:
                for _ in range(100):
                    await asyncio.sleep(0)
                assert following.log.end_offset == 0, "a waiting request holds the later ones"
            else:
                await until(lambda: following.log.end_offset == 1)
        finally:
            disk.may_flush.set()
        assert len([await peer.frame() for _ in range(3)]) == 3
        assert following.log.end_offset == 1

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS, disk=disk)


def test_a_read_goes_on_when_the_write_before_it_times_out(tmp_path: Path) -> None:
    disk = HeldDisk()

    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        disk.may_flush.clear()
        try:
            peer.send(produce_frame("events", 0, timeout_ms=20), list_frame("events", 0))
            frame = await peer.frame()
            ((_, (result,)),) = parse_produce_response(9, frame, read_response_header("Produce", 9, frame)[1])
            assert result.error == ErrorCode.REQUEST_TIMED_OUT.number
            assert read_correlation_id(await peer.frame()) == 1
        finally:
            disk.may_flush.set()

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS, disk=disk)


def test_writes_to_one_partition_do_not_wait_for_each_other(tmp_path: Path) -> None:
    disk = HeldDisk()

    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer, partition = await broker.peer(), broker.partitions.get("events", 0)
        assert partition is not None
        disk.may_flush.clear()
        try:
            peer.send(*[produce_frame("events", 0) for _ in range(20)])
            await until(lambda: partition.log.end_offset == 20)
        finally:
            disk.may_flush.set()
        assert len([await peer.frame() for _ in range(20)]) == 20

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS, disk=disk)
