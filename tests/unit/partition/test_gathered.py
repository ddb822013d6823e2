"""Batches of one round are written together; what a writer and the state know is as if each had been written alone."""

import asyncio
import errno

import pytest

from builders.batches import batch, numbered_batch
from builders.partitions import Site, committed, read_all
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.append_result import AppendResult
from millstream.partition.partition import Partition
from millstream.testing.simulated.disk import DiskOperation

PRODUCER = 9


async def made(site: Site) -> Partition:
    """A partition that has one message."""
    partitions = await site.start()
    await partitions.create("orders", 1, {})
    partition = partitions.get("orders", 0)
    assert partition is not None
    await committed(partition, numbered_batch(1))
    return partition


def append(partition: Partition, value: bytes) -> AppendResult:
    return partition.append(memoryview(batch(value)))


def append_numbered(partition: Partition, sequence: int) -> AppendResult:
    records = batch(b"%d" % sequence, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
    return partition.append(memoryview(records))


async def outcome(appended: AppendResult) -> ErrorCode | None:
    assert appended.committed is not None
    try:
        await appended.committed
    except MillstreamError as error:
        return error.code
    return None


def refuse_segment_writes(site: Site, *, after: int = 0) -> list[int]:
    """From now on; the sizes that were asked to be written are collected."""
    seen: list[int] = []

    def before(operation: DiskOperation) -> None:
        if operation.kind == "write" and operation.path.endswith(".log"):
            seen.append(1)
            if len(seen) > after:
                raise OSError(errno.ENOSPC, "no space left", operation.path)

    site.disk.before = before
    return seen


async def healed(partition: Partition) -> None:
    for _ in range(1000):
        await asyncio.sleep(0)
    assert partition.log.broken is None


def test_the_batches_of_a_round_cost_one_write() -> None:
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


def test_a_refused_round_leaves_the_end_where_it_was_and_later_writes_work_again() -> None:
    async def story(site: Site) -> None:
        partition = await made(site)
        refuse_segment_writes(site)
        appended = [append_numbered(partition, 0), append(partition, b"beside")]
        assert [await outcome(one) for one in appended] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        assert partition.log.end_offset == partition.high_watermark == 1
        site.disk.before = None
        await healed(partition)
        again = append_numbered(partition, 0)
        assert (again.base_offset, again.duplicate) == (1, False), "the producer is where it was too"
        assert await outcome(again) is None
        assert [record.value for record in await read_all(partition, 1)] == [b"0"]

    Site().run(story)


def test_a_producer_with_several_batches_in_a_round_keeps_its_order_and_is_known_by_each() -> None:
    async def story(site: Site) -> None:
        partition = await made(site)
        appended = [append_numbered(partition, sequence) for sequence in range(3)]
        again = append_numbered(partition, 2)
        assert (again.base_offset, again.duplicate) == (3, True)
        with pytest.raises(MillstreamError) as error:
            append_numbered(partition, 7)
        assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert [await outcome(one) for one in [*appended, again]] == [None] * 4
        assert [record.value for record in await read_all(partition, 1)] == [b"0", b"1", b"2"]

    Site().run(story)


def test_a_round_that_is_lost_before_it_begins_is_told_to_all_who_wait() -> None:
    async def story(site: Site) -> None:
        partition = await made(site)
        waiting = append_numbered(partition, 0)
        refuse_segment_writes(site)
        with pytest.raises(MillstreamError, match="no space"):
            append_numbered(partition, 1)
        assert partition.log.end_offset == 1
        assert await outcome(waiting) is ErrorCode.KAFKA_STORAGE_ERROR

    Site().run(story)


def test_a_large_batch_is_written_at_once_behind_what_was_gathered() -> None:
    async def story(site: Site) -> None:
        partition = await made(site)
        writes = refuse_segment_writes(site, after=2)
        appended = [append(partition, b"small"), append(partition, b"." * 100_000)]
        assert len(writes) == 2
        assert [one.base_offset for one in appended] == [1, 2]
        assert [await outcome(one) for one in appended] == [None, None]
        assert [len(record.value or b"") for record in await read_all(partition, 1)] == [5, 100_000]

    Site().run(story)


def test_what_is_saved_of_the_state_is_what_the_log_has_even_if_a_round_is_refused_meanwhile() -> None:
    async def story(site: Site) -> None:
        partition = await made(site)
        waiting = append_numbered(partition, 0)
        refuse_segment_writes(site)
        await partition.save_state()
        assert partition.log.end_offset == 1
        assert partition.producers_known == 0
        assert await outcome(waiting) is ErrorCode.KAFKA_STORAGE_ERROR
        site.disk.before = None
        await healed(partition)

    Site().run(story)
