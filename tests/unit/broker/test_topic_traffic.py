"""Tests that produced and fetched bytes and messages of a topic are counted once, on every path."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders.batches import batch, numbered_batch
from builders.disks import ColdDisk
from builders.requests import RawPeer
from builders.sdk.subscriber import Subscriber
from builders.served import ServedBroker, fetch, fetch_one, produce, puts, serve, until
from millstream.groups.settings import GroupSettings
from millstream.partition.leadership import Leadership
from millstream.seams.local_disk import LocalDisk
from millstream.seams.local_file_part import LocalPart
from millstream.wire.fetch import FetchPartition

BATCH = bytes(numbered_batch(10, size_bytes=100))
HERE = "this machine"


def partition_of(broker: ServedBroker) -> Leadership:
    partition = broker.partitions.get("events", 0)
    assert partition is not None
    return partition


def produced(broker: ServedBroker) -> tuple[int, int]:
    traffic = partition_of(broker).traffic
    return traffic.produced_bytes, traffic.produced_messages


def fetched(broker: ServedBroker) -> tuple[int, int]:
    traffic = partition_of(broker).traffic
    return traffic.fetched_bytes, traffic.fetched_messages


async def filled(broker: ServedBroker, batches: int = 1) -> RawPeer:
    await broker.topic()
    peer = await broker.peer()
    for _ in range(batches):
        assert (await produce(peer, "events", BATCH)).error == 0
    return peer


@pytest.mark.parametrize("send", [produce, puts])
def test_appended_batches_count_and_duplicates_and_errors_do_not(
    send: Callable[..., Awaitable[object]], tmp_path: Path
) -> None:
    first = batch(b"1", b"2", b"3", producer_id=5, producer_epoch=0, base_sequence=0)
    gap = batch(b"4", producer_id=5, producer_epoch=0, base_sequence=9)

    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        for records in (first, first, gap):
            await send(peer, "events", records)
        assert produced(broker) == (len(first), 3)
        assert partition_of(broker).produced_bytes == len(first)

    serve(tmp_path, story)


def test_a_run_of_the_brokers_own_batches_counts(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        run = [batch(b"1"), batch(b"2", b"3")]
        partition_of(broker).append_run([memoryview(records) for records in run])
        size = sum(map(len, run))
        assert (produced(broker), partition_of(broker).produced_bytes) == ((size, 3), size)

    serve(tmp_path, story)


async def by_fetch(broker: ServedBroker, peer: RawPeer) -> None:
    assert (await fetch_one(peer, "events", 3)).records


async def by_iterator(broker: ServedBroker, peer: RawPeer) -> None:
    names = {"group_id": "readers", "client_id": "a"}
    await peer.ask("IteratorJoin", 0, names)
    given = (await peer.ask("GetIterator", 0, {**names, "topic": "events", "partition": 0}))["given"]
    signer = broker.iterators.signer
    iterator = signer.sign(replace(signer.open(bytes(given["iterator"])), offset=3))
    assert (await peer.ask("ReadIterator", 0, {"iterator": iterator, "max_wait_ms": 0}))["records"]


async def by_push(broker: ServedBroker, peer: RawPeer) -> None:
    await (await Subscriber(peer).subscribe({"events": {0: 3}})).delivery()


@pytest.mark.parametrize("reader", [by_fetch, by_iterator, by_push])
@pytest.mark.parametrize("disk", [LocalDisk, ColdDisk])
def test_each_reader_counts_what_it_gets_from_its_offset_on(
    reader: Callable[[ServedBroker, RawPeer], Awaitable[None]], disk: type[LocalDisk], tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await filled(broker)
        await reader(broker, peer)
        assert fetched(broker) == (len(BATCH), 7)

    serve(tmp_path, story, disk=disk(), groups=GroupSettings(consumer_assignment_interval_ms=0))


def test_a_long_poll_that_reads_repeatedly_counts_once(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await filled(broker)
        wants = [("events", [FetchPartition(0, 0, 1_000_000)])]
        options = {"max_wait_ms": 50_000, "min_bytes": 3 * len(BATCH)}
        waiting = asyncio.ensure_future(fetch(await broker.peer(), wants, **options))
        for count in (2, 3):
            await until(lambda: partition_of(broker).waiting == 1)
            assert fetched(broker) == (0, 0)
            assert (await produce(peer, "events", BATCH)).base_offset == 10 * count - 10
        await waiting
        assert fetched(broker) == (3 * len(BATCH), 30)

    serve(tmp_path, story)


def test_a_poll_without_data_counts_nothing(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await filled(broker)
        assert not (await fetch_one(peer, "events", 10)).records
        assert fetched(broker) == (0, 0)

    serve(tmp_path, story)


def test_a_local_reader_counts_the_bytes_at_its_file_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalPart, "is_cached", lambda part: True)

    async def story(broker: ServedBroker) -> None:
        peer = await filled(broker, 200)
        row = await fetch_one(peer, "events", 0, machine=HERE)
        assert row.place is not None
        assert fetched(broker) == (row.place.size_bytes, 2_000)

    serve(tmp_path, story, disk=LocalDisk(), machine=HERE)
