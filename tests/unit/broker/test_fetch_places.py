"""Tests Fetch for readers on the broker's machine, which receive file positions instead of records."""

import os
from pathlib import Path
from typing import cast

import pytest

from builders.batches import numbered_batch
from builders.loops import for_each
from builders.requests import RawPeer
from builders.served import ServedBroker, fetch, fetch_one, produce, serve, topic_ref
from millstream.broker.fetch_pass import NEAR_RATIO
from millstream.catalog.catalog import Topic
from millstream.records.batch import decode_batches
from millstream.seams.file_part import FilePlace
from millstream.seams.local_disk import LocalDisk
from millstream.seams.local_file_part import LocalPart
from millstream.wire.fetch import FLEXIBLE_FROM, FetchedPartition, FetchPartition

EVERY_VERSION = range(4, 19)
HERE = "this machine"


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat all data as cached, also if the kernel cannot report it."""
    monkeypatch.setattr(LocalPart, "is_cached", lambda part: True)


def count(fetched: FetchedPartition) -> int:
    return len(decode_batches(bytes(cast(memoryview, fetched.records))))


def in_file(place: FilePlace) -> bytes:
    with open(place.path, "rb") as file:
        found = os.fstat(file.fileno())
        assert (found.st_dev, found.st_ino) == (place.device, place.inode)
        return os.pread(file.fileno(), place.size_bytes, place.position)


async def filled(broker: ServedBroker, batches: int, *, partitions: int = 1) -> tuple[RawPeer, Topic]:
    """Create partitions with this many batches of 10 kB, each with ten messages."""
    topic = await broker.topic(partitions=partitions)
    peer = await broker.peer()
    for partition in range(partitions):
        for _ in range(batches):
            await produce(peer, "events", numbered_batch(10, size_bytes=1_000), partition=partition)
    return peer, topic


@pytest.mark.parametrize(("asks", "served"), [("", HERE), ("another", HERE), ("", ""), (HERE, "")])
def test_a_remote_reader_receives_the_records(tmp_path: Path, in_memory: None, asks: str, served: str) -> None:
    async def story(broker: ServedBroker) -> None:
        peer, _ = await filled(broker, 20)
        fetched = await fetch_one(peer, "events", 0, machine=asks)
        assert fetched.place is None
        assert count(fetched) == 200

    serve(tmp_path, story, disk=LocalDisk(), machine=served)


@for_each("version", EVERY_VERSION)
@pytest.mark.parametrize("offset", [0, 15])
def test_a_local_reader_receives_file_positions(version: int, offset: int, tmp_path: Path, in_memory: None) -> None:
    async def story(broker: ServedBroker) -> None:
        peer, made = await filled(broker, 20)
        topic = topic_ref(made, version)
        sent = await fetch_one(peer, topic, offset, version=version)
        fetched = await fetch_one(peer, topic, offset, version=version, machine=HERE)
        if version < FLEXIBLE_FROM:
            assert (fetched.place, fetched.records) == (None, sent.records)
            return
        assert (len(fetched.records), fetched.next_offset, fetched.high_watermark) == (0, 200, 200)
        assert fetched.place is not None
        assert in_file(fetched.place) == bytes(cast(memoryview, sent.records))

    serve(tmp_path, story, disk=LocalDisk(), machine=HERE)


@pytest.mark.parametrize(("batches", "is_cached"), [(2, True), (20, False)])
def test_small_and_uncached_data_is_sent_as_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int, is_cached: bool
) -> None:
    monkeypatch.setattr(LocalPart, "is_cached", lambda part: is_cached)

    async def story(broker: ServedBroker) -> None:
        peer, _ = await filled(broker, batches)
        fetched = await fetch_one(peer, "events", 0, machine=HERE)
        assert (fetched.place, count(fetched)) == (None, 10 * batches)

    serve(tmp_path, story, disk=LocalDisk(), machine=HERE)


def test_file_positions_may_exceed_max_bytes_up_to_near_ratio(tmp_path: Path, in_memory: None) -> None:
    limit = 20_000

    async def story(broker: ServedBroker) -> None:
        peer, _ = await filled(broker, 70, partitions=3)
        wants = [("events", [FetchPartition(number, 0, limit) for number in range(3)])]
        answer = await fetch(peer, wants, max_bytes=2 * limit, machine=HERE)
        ((_, rows),) = answer.topics
        sizes = [0 if row.place is None else row.place.size_bytes for row in rows]
        assert all(NEAR_RATIO * limit * 0.9 < size <= NEAR_RATIO * limit for size in sizes[:2])
        assert sizes[2] + sum(len(row.records) for row in rows) <= limit

    serve(tmp_path, story, disk=LocalDisk(), machine=HERE)


def test_data_without_a_file_position_is_sent_as_records(
    tmp_path: Path, in_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalPart, "place", lambda part: None)

    async def story(broker: ServedBroker) -> None:
        peer, _ = await filled(broker, 70)
        near, far = [await fetch_one(peer, "events", 0, max_bytes=100_000, machine=machine) for machine in (HERE, "")]
        assert near == far
        assert near.place is None
        assert 0 < len(near.records) <= 100_000

    serve(tmp_path, story, disk=LocalDisk(), machine=HERE)


def test_a_fetch_session_returns_file_positions_too(tmp_path: Path, in_memory: None) -> None:
    async def story(broker: ServedBroker) -> None:
        peer, _ = await filled(broker, 10, partitions=2)
        wants = [("events", [FetchPartition(number, 0, 1_000_000) for number in range(2)])]
        answer = await fetch(peer, wants, session_epoch=0, machine=HERE)
        ((_, rows),) = answer.topics
        assert [(row.place is not None, row.next_offset) for row in rows] == [(True, 100)] * 2
        moved = [("events", [FetchPartition(0, 100, 1_000_000)])]
        answer = await fetch(peer, moved, session_id=answer.session_id, session_epoch=1, machine=HERE)
        ((_, (row,)),) = answer.topics
        assert (row.partition, row.place is not None) == (1, True)

    serve(tmp_path, story, disk=LocalDisk(), machine=HERE)
