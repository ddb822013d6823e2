"""Tests that Fetch, ReadIterator and push subscriptions behave alike while the log changes during a read."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest
from msgspec.structs import replace

from builders.batches import batch
from builders.disks import ColdDisk
from builders.held_workers import HoldingWorkers
from builders.requests import RawPeer
from builders.sdk.subscriber import Subscriber, wanted
from builders.served import ServedBroker, fetch_one, produce, serve, until
from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode
from millstream.partition.leadership import Leadership
from millstream.records.batch import decode_batches
from millstream.wire.subscribe import BEGINNING, END

LONG_MS = 50_000
BATCHES = 6

Outcome = ErrorCode | list[bytes]
"""The error that a reader got, or the first byte of each message from its offset on."""


class Reader(Protocol):
    """One API that reads. Each call reads once, and waits if there is no data."""

    async def __call__(self, broker: ServedBroker, peer: RawPeer, offset: int, max_wait_ms: int = ...) -> Outcome: ...


def messages(records: object, offset: int) -> list[bytes]:
    assert isinstance(records, memoryview | bytes | bytearray)
    return [(record.value or b"")[:1] for record in decode_batches(bytes(records)) if record.offset >= offset]


async def by_fetch(broker: ServedBroker, peer: RawPeer, offset: int, max_wait_ms: int = LONG_MS) -> Outcome:
    fetched = await fetch_one(peer, "events", offset, max_wait_ms=max_wait_ms)
    return ErrorCode.of(fetched.error) if fetched.error else messages(fetched.records, offset)


async def by_iterator(broker: ServedBroker, peer: RawPeer, offset: int, max_wait_ms: int = LONG_MS) -> Outcome:
    names = {"group_id": "readers", "client_id": "a"}
    await peer.ask("IteratorJoin", 0, names)
    given = (await peer.ask("GetIterator", 0, {**names, "topic": "events", "partition": 0}))["given"]
    seal = broker.iterators.signer
    iterator = seal.sign(replace(seal.open(bytes(given["iterator"])), offset=offset))
    answer = await peer.ask("ReadIterator", 0, {"iterator": iterator, "max_wait_ms": max_wait_ms})
    return ErrorCode.of(answer["error_code"]) if answer["error_code"] else messages(answer["records"], offset)


async def by_push(broker: ServedBroker, peer: RawPeer, offset: int, max_wait_ms: int = LONG_MS) -> Outcome:
    client = Subscriber(peer)
    correlation_id = client.send("Subscribe", {"topics": wanted({"events": {0: offset}})})
    answer = await client.answer("Subscribe", correlation_id)
    assert answer["error_code"] == 0
    try:
        delivery = await asyncio.wait_for(client.answer("Subscribe", correlation_id), max_wait_ms / 1000)
    except TimeoutError:
        return []
    (row,) = delivery["partitions"]
    return ErrorCode.of(row["error_code"]) if row["error_code"] else messages(row["records"], offset)


READERS: list[Reader] = [by_fetch, by_iterator, by_push]
each_reader = pytest.mark.parametrize("reader", READERS, ids=["fetch", "iterator", "push"])
MOVED = [b"1", b"2"]
"""What a read from offset 1 gives: the rest of the first segment."""


class Broker:
    """A broker with one partition of `BATCHES` batches of one message, three per segment, and a reader of it."""

    def __init__(self, served: ServedBroker, workers: HoldingWorkers) -> None:
        self.served = served
        self.workers = workers
        partition = served.partitions.get("events", 0)
        assert partition is not None
        self.partition: Leadership = partition

    async def write(self, number: int) -> None:
        records = batch(b"%d" % number * 5_000, keys=[b"%d" % (number % 3)])
        assert (await produce(await self.served.peer(), "events", records)).error == 0

    async def read_held(self, reader: Reader, *, has_run: bool) -> "asyncio.Future[Outcome]":
        """Start a read from disk at offset 1 and hold it in a worker."""
        peer = await self.served.peer()
        if reader is by_iterator:  # Workers load its group, too.
            await reader(self.served, peer, 1, max_wait_ms=0)
        self.workers.hold_next(has_run=has_run)
        reading = asyncio.ensure_future(reader(self.served, peer, 1))
        await self.workers.held.wait()
        return reading

    async def read_waiting(self, reader: Reader, max_wait_ms: int = LONG_MS) -> "asyncio.Future[Outcome]":
        """Start a read at the log end that waits for data."""
        reading = asyncio.ensure_future(reader(self.served, await self.served.peer(), BATCHES, max_wait_ms))
        await until(lambda: self.partition.waiting == 1)
        return reading


Change = Callable[[Broker], Awaitable[object]]


async def trim(broker: Broker) -> None:
    await broker.partition.delete_records(4)


async def delete(broker: Broker) -> None:
    await broker.served.partitions.delete("events")


async def resign(broker: Broker) -> None:
    broker.partition.resigned()


async def quarantine(broker: Broker) -> None:
    broker.partition.log.quarantine("a batch is damaged")


async def compact(broker: Broker) -> None:
    broker.partition.log.roll()
    await broker.partition._store.checkpoint()
    await broker.served.partitions.clean()
    assert broker.partition.log.size_bytes < BATCHES * 5_000


def run(directory: Path, story: Callable[[Broker], Awaitable[None]], *, compacted: bool = False) -> None:
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"} if compacted else {}

    async def whole(served: ServedBroker) -> None:
        await served.topic("events", 1, segment_bytes="16384", **settings)
        broker = Broker(served, workers)
        for number in range(BATCHES):
            await broker.write(number)
        await story(broker)

    workers = HoldingWorkers()
    groups = GroupSettings(consumer_assignment_interval_ms=0)
    serve(directory, whole, disk=ColdDisk(), workers=workers, groups=groups)


@each_reader
@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (trim, ErrorCode.OFFSET_OUT_OF_RANGE),
        (delete, ErrorCode.KAFKA_STORAGE_ERROR),
        (resign, MOVED),
        (quarantine, ErrorCode.PARTITION_QUARANTINED),
    ],
)
def test_a_read_from_disk_that_has_not_begun_sees_the_changed_log(
    reader: Reader, change: Change, outcome: Outcome, tmp_path: Path
) -> None:
    async def story(broker: Broker) -> None:
        reading = await broker.read_held(reader, has_run=False)
        await change(broker)
        broker.workers.release()
        assert await reading == outcome

    run(tmp_path, story)


@each_reader
@pytest.mark.parametrize("change", [trim, delete, resign, quarantine])
def test_a_finished_read_from_disk_is_delivered_although_the_log_changed(
    reader: Reader, change: Change, tmp_path: Path
) -> None:
    async def story(broker: Broker) -> None:
        reading = await broker.read_held(reader, has_run=True)
        await change(broker)
        broker.workers.release()
        assert await reading == MOVED

    run(tmp_path, story)


@each_reader
@pytest.mark.parametrize(("has_run", "outcome"), [(True, MOVED), (False, [b"3", b"4", b"5"])])
def test_a_read_from_disk_continues_after_a_segment_exchange(
    reader: Reader, has_run: bool, outcome: Outcome, tmp_path: Path
) -> None:
    async def story(broker: Broker) -> None:
        reading = await broker.read_held(reader, has_run=has_run)
        await compact(broker)
        broker.workers.release()
        assert await reading == outcome

    run(tmp_path, story, compacted=True)


@each_reader
@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (delete, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resign, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda broker: broker.write(7), [b"7"]),
    ],
    ids=["delete", "resign", "write"],
)
def test_a_waiting_reader_is_woken_and_answered(
    reader: Reader, change: Change, outcome: Outcome, tmp_path: Path
) -> None:
    async def story(broker: Broker) -> None:
        reading = await broker.read_waiting(reader)
        await change(broker)
        assert await reading == outcome

    run(tmp_path, story)


@each_reader
def test_a_reader_at_the_end_still_waits_after_records_are_deleted(reader: Reader, tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        reading = await broker.read_waiting(reader)
        await broker.partition.delete_records(BATCHES)
        assert broker.partition.waiting == 1
        await broker.write(7)
        assert await reading == [b"7"]

    run(tmp_path, story)


@pytest.mark.parametrize("reader", [by_fetch, by_iterator], ids=["fetch", "iterator"])
def test_a_reader_of_a_quarantined_partition_gets_an_error_after_its_wait(reader: Reader, tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        reading = await broker.read_waiting(reader, max_wait_ms=100)
        await quarantine(broker)
        assert await reading is ErrorCode.PARTITION_QUARANTINED

    run(tmp_path, story)


@pytest.mark.parametrize(("otherwise", "position"), [(BEGINNING, 4), (END, BATCHES)], ids=["beginning", "end"])
def test_a_subscription_jumps_when_its_position_is_deleted_during_a_cold_read(
    otherwise: int, position: int, tmp_path: Path
) -> None:
    async def story(broker: Broker) -> None:
        broker.workers.hold_next(has_run=False)
        subscribed = await Subscriber(await broker.served.peer()).subscribe({"events": {0: 1}}, otherwise=otherwise)
        await broker.workers.held.wait()
        await trim(broker)
        broker.workers.release()
        if otherwise == END:
            await until(lambda: broker.partition.waiting == 1)
            await broker.write(7)
        delivery = await subscribed.delivery()
        assert delivery["partitions"][0]["position"] == position

    run(tmp_path, story)
