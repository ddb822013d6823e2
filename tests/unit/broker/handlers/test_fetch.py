"""Tests Fetch: the returned data and the wake-up of waiting readers."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from builders.batches import batch, numbered_batch
from builders.disks import ColdDisk
from builders.loops import for_each
from builders.served import ServedBroker, fetch, fetch_one, produce, serve, topic_ref, until
from millstream.broker.dispatch.request import DeferredResponse
from millstream.broker.fetch_pass import FetchPass
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.model.errors import ErrorCode
from millstream.model.ids import TopicId
from millstream.records.batch import decode_batches
from millstream.seams.local_disk import LocalDisk
from millstream.storage.log.log_reader import LogReader
from millstream.storage.store import FlushPolicy
from millstream.wire.fetch import FetchPartition

EVERY_VERSION = range(4, 19)
LONG_MS = 50_000


def values(records: object) -> list[bytes | None]:
    assert isinstance(records, memoryview | bytes | bytearray)
    return [record.value for record in decode_batches(bytes(records))]


@for_each("version", EVERY_VERSION)
def test_written_records_are_fetched_in_every_version(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = topic_ref(await broker.topic(), version)
        peer = await broker.peer()
        await produce(peer, "events", batch(b"one", b"two"))
        fetched = await fetch_one(peer, topic, 0, version=version)
        assert values(fetched.records) == [b"one", b"two"]
        assert (fetched.error, fetched.high_watermark, fetched.last_stable_offset) == (0, 2, 2)
        assert fetched.log_start_offset == (0 if version >= 5 else -1)

    serve(tmp_path, story)


def test_a_read_from_the_middle_of_a_batch_begins_with_that_batch(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        await produce(peer, "events", numbered_batch(10))
        await produce(peer, "events", batch(b"next"))
        fetched = await fetch_one(peer, "events", 5)
        assert values(fetched.records) == [b"%d" % n for n in range(10)] + [b"next"]

    serve(tmp_path, story)


def test_a_reader_at_the_end_is_woken_at_once_by_a_write(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        reader, writer = await broker.peer(), await broker.peer()
        waiting = asyncio.ensure_future(fetch_one(reader, "events", 0, max_wait_ms=LONG_MS))
        partition = broker.partitions.get("events", 0)
        assert partition is not None
        await until(lambda: partition.waiting > 0)
        await produce(writer, "events", batch(b"news"))
        assert values((await waiting).records) == [b"news"]
        assert partition.waiting == 0

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS)


def test_an_unexpected_read_failure_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        reader, writer = await broker.peer(), await broker.peer()
        waiting = asyncio.ensure_future(fetch_one(reader, "events", 0, max_wait_ms=LONG_MS))
        partition = broker.partitions.get("events", 0)
        assert partition is not None
        await until(lambda: partition.waiting > 0)
        monkeypatch.setattr(LogReader, "read", broken)
        await produce(writer, "events", batch(b"news"))
        with pytest.raises((EOFError, ConnectionError)):
            await waiting

    serve(tmp_path, story)
    assert "request failed unexpectedly, connection closed" in caplog.messages


def test_a_wait_without_new_records_returns_an_empty_response(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        fetched = await fetch_one(await broker.peer(), "events", 0, max_wait_ms=10)
        assert (fetched.error, len(fetched.records)) == (0, 0)

    serve(tmp_path, story)


def test_a_fetch_waits_for_min_bytes(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        reader, writer = await broker.peer(), await broker.peer()
        waiting = asyncio.ensure_future(fetch_one(reader, "events", 0, max_wait_ms=LONG_MS, min_bytes=1000))
        for _ in range(5):
            await produce(writer, "events", batch(b"x" * 300))
        assert len(values((await waiting).records)) >= 3

    serve(tmp_path, story)


@for_each("version", [4, 11, 12, 13])
def test_an_offset_before_the_log_start_is_out_of_range_at_once(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = topic_ref(await broker.topic(), version)
        fetched = await fetch_one(await broker.peer(), topic, -5, version=version, max_wait_ms=LONG_MS)
        assert fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE.number

    serve(tmp_path, story)


def test_an_offset_after_the_log_end_waits_until_it_is_reached(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        reader, writer = await broker.peer(), await broker.peer()
        waiting = asyncio.ensure_future(fetch_one(reader, "events", 3, max_wait_ms=LONG_MS))
        for number in range(5):
            await produce(writer, "events", batch(b"%d" % number))
        fetched = await waiting
        assert fetched.error == 0
        assert values(fetched.records)[0] == b"3"

    serve(tmp_path, story)


def test_an_offset_after_the_log_end_is_out_of_range_after_the_wait(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        fetched = await fetch_one(await broker.peer(), "events", 3, max_wait_ms=10)
        assert fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE.number
        assert fetched.high_watermark == 0

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("topic", "version", "code"),
    [
        ("unknown", 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicId(UUID(int=9)), 13, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_missing_topics_and_partitions_are_reported_without_waiting(
    topic: str | TopicId, version: int, code: ErrorCode, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        fetched = await fetch_one(await broker.peer(), topic, 0, version=version, max_wait_ms=LONG_MS)
        assert fetched.error == code.number

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("epoch", "code"), [(5, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NONE), (0, ErrorCode.NONE)]
)
def test_the_leader_epoch_of_a_reader_is_checked(epoch: int, code: ErrorCode, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        wants = [("events", [FetchPartition(0, 0, 1000, leader_epoch=epoch)])]
        answer = await fetch(await broker.peer(), wants)
        assert answer.topics[0][1][0].error == code.number

    serve(tmp_path, story)


def test_a_response_exceeds_its_byte_limit_only_by_its_first_batch(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=3)
        peer = await broker.peer()
        for partition in range(3):
            await produce(peer, "events", batch(b"x" * 2000), partition=partition)
        wants = [("events", [FetchPartition(number, 0, 10_000) for number in range(3)])]
        sizes = []
        for max_bytes in (1, 2500, 4500, 10_000):
            answer = await fetch(peer, wants, max_bytes=max_bytes)
            sizes.append([len(fetched.records) > 0 for fetched in answer.topics[0][1]])
        assert sizes == [[True, False, False], [True, False, False], [True, True, False], [True, True, True]]

    serve(tmp_path, story)


def test_a_partition_limit_smaller_than_its_batch_still_makes_progress(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        await produce(peer, "events", batch(b"x" * 2000))
        await produce(peer, "events", batch(b"y"))
        fetched = await fetch_one(peer, "events", 0, max_bytes=10)
        assert values(fetched.records) == [b"x" * 2000]

    serve(tmp_path, story)


def test_deleting_a_topic_wakes_its_readers_with_an_error(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        reader = await broker.peer()
        waiting = asyncio.ensure_future(fetch_one(reader, "events", 0, max_wait_ms=LONG_MS))
        partition = broker.partitions.get("events", 0)
        assert partition is not None
        await until(lambda: partition.waiting > 0)
        await broker.partitions.delete("events")
        assert (await waiting).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number

    serve(tmp_path, story)


def test_a_disconnected_reader_stops_waiting(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        reader = await broker.peer()
        waiting = asyncio.ensure_future(fetch_one(reader, "events", 0, max_wait_ms=LONG_MS))
        partition = broker.partitions.get("events", 0)
        assert partition is not None
        await until(lambda: partition.waiting > 0)
        reader.close()
        with pytest.raises(ConnectionError):
            await waiting
        await until(lambda: partition.waiting == 0)

    serve(tmp_path, story)


def test_more_partitions_than_one_slice_are_read_and_waited_for(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        peer, writer = await broker.peer(), await broker.peer()
        wants = [("events", [FetchPartition(number % 2, 0, 10_000) for number in range(2500)])]
        waiting = asyncio.ensure_future(fetch(peer, wants, max_wait_ms=LONG_MS))
        partition = broker.partitions.get("events", 1)
        assert partition is not None
        await until(lambda: partition.waiting >= 1250)
        await produce(writer, "events", batch(b"one"), partition=1)
        answer = await waiting
        assert len(answer.topics[0][1]) == 2500
        assert partition.waiting == 0

    serve(tmp_path, story)


def test_no_data_is_read_while_unread_responses_fill_the_memory(tmp_path: Path) -> None:
    memory = MemoryLimits(outgoing_bytes_max=1_000_000)

    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        await produce(peer, "events", batch(b"x" * 1000))
        memory.outgoing_bytes += 1_000_000
        assert len((await fetch_one(peer, "events", 0, max_wait_ms=10)).records) == 0
        memory.outgoing_bytes -= 1_000_000
        assert len((await fetch_one(peer, "events", 0)).records) > 0

    serve(tmp_path, story, memory=memory)


@pytest.mark.parametrize("partitions", [1, 1_001])
def test_a_fetch_without_memory_is_answered_once_memory_is_free(tmp_path: Path, partitions: int) -> None:
    memory = MemoryLimits(outgoing_bytes_max=1_000_000)

    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=partitions)
        peer = await broker.peer()
        await produce(peer, "events", batch(b"x"))
        memory.outgoing_bytes += 1_000_000
        wants = [("events", [FetchPartition(number, 0, 10_000) for number in range(partitions)])]
        waiting = asyncio.create_task(fetch(peer, wants, max_wait_ms=LONG_MS))
        await until(lambda: broker.partitions.of("events")[0].waiting == 1)
        memory.outgoing_bytes -= 1_000_000
        assert values((await waiting).topics[0][1][0].records) == [b"x"]
        assert broker.partitions.of("events")[0].waiting == 0

    serve(tmp_path, story, memory=memory)


def test_data_from_disk_is_read_outside_the_event_loop(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=3)
        peer = await broker.peer()
        for partition in range(3):
            await produce(peer, "events", batch(b"%d" % partition), partition=partition)
        wants = [("events", [FetchPartition(number, 0, 10_000) for number in (0, 7, 1, 2)])]
        answer = await fetch(peer, wants)
        found = [(each.error, values(each.records)) for each in answer.topics[0][1]]
        unknown: tuple[int, list[bytes | None]] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number, [])
        assert found == [(0, [b"0"]), unknown, (0, [b"1"]), (0, [b"2"])]

    serve(tmp_path, story, disk=ColdDisk())


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Disable garbage collection, so that only reference counts free objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("disk", [LocalDisk(), ColdDisk()], ids=["in memory", "on disk"])
@pytest.mark.parametrize("partitions", [1, 1_001])
@pytest.mark.parametrize("is_written", [True, False])
def test_an_answered_fetch_leaves_no_objects_when_it_had_waited(
    disk: LocalDisk, partitions: int, is_written: bool, tmp_path: Path
) -> None:
    wants = [FetchPartition(number, 0, 1_000_000) for number in range(partitions)]

    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=partitions)
        reader, writer = await broker.peer(), await broker.peer()
        reading = asyncio.ensure_future(fetch(reader, [("events", wants)], max_wait_ms=LONG_MS if is_written else 1))
        if is_written:
            partition = broker.partitions.get("events", 0)
            assert partition is not None
            await until(lambda: partition.waiting > 0)
            await produce(writer, "events")
        await reading
        await broker.settle()
        assert [found for found in gc.get_objects() if isinstance(found, DeferredResponse | FetchPass)] == []

    serve(tmp_path, story, disk=disk)
