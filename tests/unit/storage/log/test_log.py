"""Checks that reads return whole batches from the requested offset on, within their limits."""

from random import Random

import pytest

from builders.logs import SMALL, append, append_durably, key, open_store, read, read_cold, run, values_of
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.records.header import each_batch
from millstream.storage import snapshot
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings
from millstream.testing.simulated.clock import ManualClock
from millstream.testing.simulated.disk import SimulatedDisk

ROOMY = LogSettings(index_interval_bytes=300)


def value(offset: int) -> bytes:
    return b"%040d" % offset


async def filled(disk: SimulatedDisk, settings: LogSettings = SMALL, batches: int = 30) -> Log:
    """Create a log of `batches` batches with three values each."""
    store = await open_store(disk)
    log = await store.create(key(0), settings)
    for number in range(batches):
        await append_durably(store, log, [value(3 * number + n) for n in range(3)])
    return log


def offsets(data: bytes) -> list[int]:
    return [header.base_offset for _, header in each_batch(data)]


def read_any(log: Log, offset: int, max_bytes: int, end_offset: int | None = None) -> bytes:
    end = log.end_offset if end_offset is None else end_offset
    data = read(log, offset, max_bytes, end)
    return read_cold(log, Offset(offset), max_bytes=max_bytes, end_offset=Offset(end)) if data is None else data


@pytest.mark.parametrize("max_bytes", [1, 100, 300, 1000, 100_000])
@pytest.mark.parametrize("cold", [False, True])
def test_everything_is_read_back_in_order(max_bytes: int, cold: bool) -> None:
    async def check() -> None:
        disk = SimulatedDisk(Random(1))
        disk.cold_chance = 1.0 if cold else 0.1
        log = await filled(disk)
        assert len(log.segments) > 2
        assert values_of(log, max_bytes) == {offset: value(offset) for offset in range(90)}

    run(check())


def test_a_read_from_the_middle_of_a_batch_begins_with_that_batch() -> None:
    async def check() -> None:
        log = await filled(SimulatedDisk(), ROOMY)
        for offset in range(90):
            assert offsets(read_any(log, offset, 1)) == [offset - offset % 3]

    run(check())


@pytest.mark.parametrize("settings", [SMALL, ROOMY])
def test_a_read_is_limited_but_returns_at_least_one_batch(settings: LogSettings) -> None:
    async def check() -> None:
        log = await filled(SimulatedDisk(), settings)
        size = len(read_any(log, 0, 1))
        for max_bytes in range(1, 12 * size, 37):
            for offset in (0, 33, 60):
                data = read_any(log, offset, max_bytes)
                assert size <= len(data) <= max(size, max_bytes)
                assert offsets(data)[0] == offset
                assert sum(header.size_bytes for _, header in each_batch(data)) == len(data)

    run(check())


def test_a_read_stops_before_the_given_end_offset() -> None:
    async def check() -> None:
        log = await filled(SimulatedDisk(), ROOMY)
        for end in range(3, 90, 3):
            assert offsets(read_any(log, 0, 1_000_000, end))[-1] == end - 3
        assert read_any(log, 45, 100, 45) == b""
        assert read_any(log, 90, 100) == b""

    run(check())


def test_a_reader_at_the_log_end_sees_each_new_batch_once() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), SMALL)
        for number in range(50):
            assert read(log, log.end_offset, 1000, log.end_offset) == b""
            await append_durably(store, log, [b"%d" % number])
            assert offsets(read_any(log, number, 1000)) == [number]

    run(check())


@pytest.mark.parametrize("offset", [-1, 91, 1000])
def test_offsets_outside_the_log_are_refused(offset: int) -> None:
    async def check() -> None:
        log = await filled(SimulatedDisk())
        with pytest.raises(MillstreamError) as refused:
            read(log, offset, 100, log.end_offset)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    run(check())


def test_a_read_up_to_the_flushed_offset_returns_no_unflushed_batch() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), SMALL)
        await append_durably(store, log, [b"durable"])
        append(log, [b"not yet"])
        assert (log.flushed_offset, log.end_offset) == (1, 2)
        assert offsets(read_any(log, 0, 1000, log.flushed_offset)) == [0]

    run(check())


def test_a_batch_larger_than_a_segment_gets_its_own_segment() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), SMALL)
        await append_durably(store, log, [b"small"])
        await append_durably(store, log, [b"x" * 10_000])
        await append_durably(store, log, [b"small"])
        assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
        assert values_of(log)[1] == b"x" * 10_000

    run(check())


def test_a_segment_is_closed_when_it_is_old() -> None:
    async def check() -> None:
        clock = ManualClock()
        store = await open_store(SimulatedDisk(), clock=clock)
        log = await store.create(key(0), LogSettings(segment_ms=1000))
        for _ in range(4):
            await append_durably(store, log, [b"value"])
            clock.advance_ms(400)
        assert [segment.base_offset for segment in log.segments] == [0, 3]

    run(check())


def test_headers_are_replayed_from_any_offset() -> None:
    async def check() -> None:
        log = await filled(SimulatedDisk())
        for offset in (0, 1, 44, 45, 89):
            found = [header.base_offset for header in log.scan.headers_from(Offset(offset))]
            assert found == list(range(offset - offset % 3, 90, 3))
        assert list(log.scan.headers_from(Offset(90))) == []

    run(check())


def test_sequential_reads_need_no_search() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk, ROOMY, batches=200)
        offset, reads = 0, 0
        disk.counts.clear()
        while offset < 600:
            data = read(log, offset, 1000, 600)
            assert data is not None
            reads += 1
            offset = list(each_batch(data))[-1][1].next_offset
        assert reads > 20
        assert disk.counts["read cached"] <= reads + 1

    run(check())


def test_a_snapshot_beyond_the_log_end_is_ignored() -> None:
    async def check() -> None:
        log = await filled(SimulatedDisk())
        snapshot.save_state(log, "producers", 90, b"state")
        assert snapshot.load_state(log, "producers") == (90, b"state")
        snapshot.save_state(log, "producers", 91, b"state of another life")
        assert snapshot.load_state(log, "producers") is None

    run(check())
