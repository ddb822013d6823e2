"""Tests the reader at an offset: whole batches within the limits, and the correct next offset."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import numbered_batch
from builders.held_workers import HeldWorkers
from builders.partitions import Site, committed
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.partition.leadership import Leadership
from millstream.partition.offset_reader import OffsetNotReachedError, OffsetReader, ReadLimit
from millstream.records.header import each_batch
from millstream.storage.log.log_reader import LogReader, Stretch

counts = st.lists(st.integers(1, 20), min_size=1, max_size=30)


async def filled(site: Site, sizes: list[int], size_bytes: int = 40) -> Leadership:
    partitions = await site.start()
    await partitions.create("orders", 1, {"segment.bytes": "16384"})
    partition = partitions.get("orders", 0)
    assert partition is not None
    for size in sizes:
        await committed(partition, numbered_batch(size, size_bytes=size_bytes))
    return partition


async def stretch(partition: Leadership, offset: int, max_bytes: int, max_messages: int, *, cold: bool) -> Stretch:
    if cold:
        return await partition.reader.read_cold(Offset(offset), max_bytes=max_bytes, max_messages=max_messages)
    found = partition.reader.read(Offset(offset), max_bytes=max_bytes, max_messages=max_messages)
    assert found is not None
    return found


@given(sizes=counts, data=st.data(), cold=st.booleans())
def test_a_read_returns_whole_batches_within_limits_or_one_batch(
    sizes: list[int], data: st.DataObject, cold: bool
) -> None:
    async def story(site: Site) -> None:
        partition = await filled(site, sizes, size_bytes=data.draw(st.sampled_from([0, 40, 700])))
        end = partition.high_watermark
        offset = data.draw(st.integers(0, end - 1))
        max_bytes, max_messages = data.draw(st.integers(1, 20_000)), data.draw(st.integers(1, 2 * end))
        batches, next_offset = await stretch(partition, offset, max_bytes, max_messages, cold=cold)
        assert isinstance(batches, bytes)
        headers = [header for _, header in each_batch(batches)]
        assert headers[0].base_offset <= offset <= headers[0].last_offset
        assert headers[-1].next_offset == next_offset
        assert sum(header.size_bytes for header in headers) == len(batches)
        assert len(headers) == 1 or (len(batches) <= max_bytes and next_offset <= offset + max_messages)

    Site().run(story)


def test_consecutive_reads_have_no_gap() -> None:
    async def story(site: Site) -> None:
        partition = await filled(site, [7] * 100)
        at = 0
        while at < partition.high_watermark:
            found = partition.reader.read(Offset(at), max_bytes=2_000, max_messages=10)
            assert found is not None
            assert at < found[1] <= at + 10
            at = found[1]
        assert at == 700
        for cold in (False, True):
            assert await stretch(partition, at, 2_000, 10, cold=cold) == (b"", at)

    Site().run(story)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize(("offset", "is_ahead"), [(4, False), (11, True)])
def test_an_offset_outside_the_log_is_deleted_or_not_reached(cold: bool, offset: int, is_ahead: bool) -> None:
    async def story(site: Site) -> None:
        partition = await filled(site, [5, 5])
        await partition.delete_records(5)
        with pytest.raises(MillstreamError) as refused:
            await stretch(partition, offset, 100, 100, cold=cold)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert isinstance(refused.value, OffsetNotReachedError) == is_ahead

    Site().run(story)


@pytest.mark.parametrize("cold", [False, True])
def test_the_read_limit_decides_whether_unacknowledged_batches_are_read(cold: bool) -> None:
    async def read(partition: Leadership, offset: int, limit: ReadLimit) -> tuple[bool, int]:
        if cold:
            data, following = await partition.reader.read_cold(Offset(offset), max_bytes=10_000, limit=limit)
            return len(data) > 0, following
        found = partition.reader.read(Offset(offset), max_bytes=10_000, limit=limit)
        assert found is not None
        return len(found[0]) > 0, found[1]

    async def story(site: Site) -> None:
        partition = await filled(site, [5])
        committed = partition.append(memoryview(numbered_batch(3))).acknowledgement
        for limit in ReadLimit:
            assert await read(partition, 5, limit) == (False, 5), "a batch that is buffered is nobody's to read"
        partition.log.write_buffered()
        assert await read(partition, 0, ReadLimit.HIGH_WATERMARK) == (True, 5)
        assert await read(partition, 5, ReadLimit.HIGH_WATERMARK) == (False, 5)
        assert await read(partition, 5, ReadLimit.LOG_END) == (True, 8)
        assert committed is not None
        await committed
        assert await read(partition, 5, ReadLimit.HIGH_WATERMARK) == (True, 8)

    Site().run(story)


@pytest.mark.parametrize(("bound", "is_ahead"), [("start_offset", False), ("end_offset", True)])
def test_a_cold_read_reports_whether_the_log_start_or_end_moved(bound: str, is_ahead: bool) -> None:
    async def story(site: Site) -> None:
        partition = await filled(site, [5, 5])
        workers = HeldWorkers()
        reader = OffsetReader(partition.log, partition, workers)
        reading = asyncio.ensure_future(reader.read_cold(Offset(6), max_bytes=1_000))
        await asyncio.sleep(0)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(partition.log, bound, 10 if bound == "start_offset" else 5)
            await workers.release()
            with pytest.raises(MillstreamError) as refused:
                await reading
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert isinstance(refused.value, OffsetNotReachedError) == is_ahead
        assert "orders-0" in refused.value.detail

    Site().run(story)


def test_the_duration_of_a_cold_read_includes_the_wait_for_a_worker() -> None:
    async def story(site: Site) -> None:
        partition = await filled(site, [5])
        workers = HeldWorkers()
        reader = OffsetReader(partition.log, partition, workers)
        durations = partition.log.figures.cold_reads
        reading = asyncio.ensure_future(reader.read_cold(Offset(0), max_bytes=1_000))
        await asyncio.sleep(0)
        site.clock.turn(250)
        assert durations.count == 0
        await workers.release()
        await reading
        assert durations.count == 1
        assert durations.sum == pytest.approx(0.25)
        assert site.store is not None
        assert durations is site.store.cold_reads

    Site().run(story)


@pytest.mark.parametrize("cold", [False, True])
def test_batches_after_the_read_limit_are_never_returned(cold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(reader: LogReader, offset: int, *_: object, **options: object) -> Stretch:
        return b"more", Offset(6)

    async def story(site: Site) -> None:
        partition = await filled(site, [5])
        monkeypatch.setattr(LogReader, "read", read)
        with pytest.raises(AssertionError, match="after the read limit"):
            await stretch(partition, 0, 100, 100, cold=cold)

    Site().run(story)
