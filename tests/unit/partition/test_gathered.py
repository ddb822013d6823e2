"""Tests batches that one group-commit round writes together: results and state equal those of single writes."""

import asyncio
import errno

import pytest

from builders.batches import batch, numbered_batch
from builders.partitions import Site, committed, read_all
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.append_result import AppendResult
from millstream.partition.leadership import Leadership
from millstream.testing.simulated.disk import DiskOperation

PRODUCER = 9


async def made(site: Site) -> Leadership:
    """Create a partition with one message."""
    partitions = await site.start()
    await partitions.create("orders", 1, {})
    partition = partitions.get("orders", 0)
    assert partition is not None
    await committed(partition, numbered_batch(1))
    return partition


def append(partition: Leadership, value: bytes) -> AppendResult:
    return partition.append(memoryview(batch(value)))


def append_numbered(partition: Leadership, sequence: int) -> AppendResult:
    records = batch(b"%d" % sequence, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
    return partition.append(memoryview(records))


async def outcome(appended: AppendResult) -> ErrorCode | None:
    assert appended.acknowledgement is not None
    try:
        await appended.acknowledgement
    except MillstreamError as error:
        return error.code
    return None


def refuse_segment_writes(site: Site, *, after: int = 0) -> list[int]:
    """Refuse segment writes from now on, and return the list of attempted sizes."""
    seen: list[int] = []

    def before(operation: DiskOperation) -> None:
        if operation.kind == "write" and operation.path.endswith(".log"):
            seen.append(1)
            if len(seen) > after:
                raise OSError(errno.ENOSPC, "no space left", operation.path)

    site.disk.before = before
    return seen


async def healed(partition: Leadership) -> None:
    for _ in range(1000):
        await asyncio.sleep(0)
    assert partition.log.health.broken is None


def test_batches_of_one_group_commit_round_are_written_in_one_write() -> None:
    async def story(site: Site) -> None:
        partition = await made(site)
        writes = refuse_segment_writes(site, after=1)
        appended = [append(partition, b"%d" % number) for number in range(50)]
        assert [one.base_offset for one in appended] == list(range(1, 51))
        assert not writes, "nothing is written before the round begins"
        assert [await outcome(one) for one in appended] == [None] * 50
        assert len(writes) == 1
        assert [record.value for record in await read_all(partition, 1)] == [b"%d" % number for number in range(50)]

    Site().run(story)


def test_a_failed_round_keeps_the_log_end_and_later_writes_succeed() -> None:
    async def story(site: Site) -> None:
        partition = await made(site)
        refuse_segment_writes(site)
        appended = [append_numbered(partition, 0), append(partition, b"beside")]
        assert [await outcome(one) for one in appended] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        assert partition.log.end_offset == partition.high_watermark == 1
        site.disk.before = None
        await healed(partition)
        again = append_numbered(partition, 0)
        assert (again.base_offset, again.is_duplicate) == (1, False), "the producer is where it was too"
        assert await outcome(again) is None
        assert [record.value for record in await read_all(partition, 1)] == [b"0"]

    Site().run(story)


def test_buffered_batches_of_a_producer_are_checked_in_order() -> None:
    async def story(site: Site) -> None:
        partition = await made(site)
        appended = [append_numbered(partition, sequence) for sequence in range(3)]
        again = append_numbered(partition, 2)
        assert (again.base_offset, again.is_duplicate) == (3, True)
        with pytest.raises(MillstreamError) as error:
            append_numbered(partition, 7)
        assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert [await outcome(one) for one in [*appended, again]] == [None] * 4
        assert [record.value for record in await read_all(partition, 1)] == [b"0", b"1", b"2"]

    Site().run(story)


def test_a_failed_write_before_the_round_fails_all_waiting_writers() -> None:
    async def story(site: Site) -> None:
        partition = await made(site)
        waiting = append_numbered(partition, 0)
        refuse_segment_writes(site)
        with pytest.raises(MillstreamError, match="no space"):
            append_numbered(partition, 1)
        assert partition.log.end_offset == 1
        assert await outcome(waiting) is ErrorCode.KAFKA_STORAGE_ERROR

    Site().run(story)


def test_a_large_batch_is_written_at_once_after_the_buffered_ones() -> None:
    async def story(site: Site) -> None:
        partition = await made(site)
        writes = refuse_segment_writes(site, after=2)
        appended = [append(partition, b"small"), append(partition, b"." * 100_000)]
        assert len(writes) == 2
        assert [one.base_offset for one in appended] == [1, 2]
        assert [await outcome(one) for one in appended] == [None, None]
        assert [len(record.value or b"") for record in await read_all(partition, 1)] == [5, 100_000]

    Site().run(story)


def test_a_snapshot_matches_the_log_after_a_failed_write() -> None:
    async def story(site: Site) -> None:
        partition = await made(site)
        waiting = append_numbered(partition, 0)
        refuse_segment_writes(site)
        await partition.replica.save_state()
        assert partition.log.end_offset == 1
        assert len(partition.replica.producers) == 0
        assert await outcome(waiting) is ErrorCode.KAFKA_STORAGE_ERROR
        site.disk.before = None
        await healed(partition)

    Site().run(story)
