"""Checks that segments over the retention time or size are removed permanently."""

import pytest

from builders.logs import append, append_durably, commit, key, open_store, run, values_of
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.storage.cleaning.retention import apply_retention
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.clock import ManualClock
from millstream.testing.simulated.disk import SimulatedDisk

HOUR_MS = 3_600_000
POLICIES = [FlushPolicy.ALWAYS, FlushPolicy.OS]


def bounded(*, retention_ms: int = -1, retention_bytes: int = -1) -> LogSettings:
    return LogSettings(
        segment_bytes=300, segment_ms=HOUR_MS, retention_ms=retention_ms, retention_bytes=retention_bytes
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_expired_segments_are_removed_including_the_active_one(policy: FlushPolicy) -> None:
    async def check() -> None:
        clock = ManualClock()
        store = await open_store(SimulatedDisk(), clock=clock, policy=policy)
        log = await store.create(key(0), bounded(retention_ms=10 * HOUR_MS))
        for hour in range(20):
            await append_durably(store, log, [b"value %d" % hour], timestamp=clock.wall_ms())
            clock.advance_ms(HOUR_MS)
        apply_retention(log, clock.wall_ms(), limit=log.acknowledged_offset)
        assert log.start_offset == 10
        assert list(values_of(log)) == list(range(10, 20))
        clock.advance_ms(11 * HOUR_MS)
        apply_retention(log, clock.wall_ms(), limit=log.acknowledged_offset)
        assert (log.start_offset, log.end_offset, log.size_bytes) == (20, 20, 0)
        await append_durably(store, log, [b"numbering goes on"])
        assert values_of(log) == {20: b"numbering goes on"}

    run(check())


def test_a_segment_without_timestamps_expires_by_its_creation_time() -> None:
    async def check() -> None:
        clock = ManualClock()
        store = await open_store(SimulatedDisk(), clock=clock)
        log = await store.create(key(0), bounded(retention_ms=10))
        await append_durably(store, log, [b"value"], timestamp=-1)
        assert apply_retention(log, clock.wall_ms() + 10, limit=log.acknowledged_offset) == 0
        assert apply_retention(log, clock.wall_ms() + 11, limit=log.acknowledged_offset) == 1

    run(check())


def test_retention_by_size_exceeds_its_limit_by_less_than_a_segment() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), bounded(retention_bytes=1000))
        for _ in range(40):
            await append_durably(store, log, [b"x" * 50])
            apply_retention(log, 0, limit=log.acknowledged_offset)
        assert 1000 <= log.size_bytes < 1000 + 300
        assert log.start_offset == log.segments[0].base_offset > 0

    run(check())


def test_retention_removes_no_data_that_is_not_flushed() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), bounded(retention_ms=0))
        append(log, [b"value"])
        assert apply_retention(log, 10**15, limit=log.acknowledged_offset) == 0
        committed = commit(log)
        assert committed is not None
        await committed
        assert apply_retention(log, 10**15, limit=log.acknowledged_offset) == 1

    run(check())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("clean", [True, False])
def test_a_trimmed_log_keeps_its_offsets_after_a_restart(policy: FlushPolicy, clean: bool) -> None:
    disk = SimulatedDisk()

    async def shrink() -> None:
        store = await open_store(disk, policy=policy)
        log = await store.create(key(0), bounded())
        for number in range(20):
            await append_durably(store, log, [b"%d" % number] * 2)
        log.trim(Offset(21))
        await store.checkpoint()
        assert log.deleted_segments == []
        names = disk.list(log.path)
        assert [name for name in names if name.endswith(".log")] == [
            f"{segment.base_offset:020d}.log" for segment in log.segments
        ]
        if clean:
            await store.close()

    async def look() -> None:
        store = await open_store(disk, policy=policy)
        log = store.get(key(0))
        assert log is not None
        assert (log.start_offset, log.end_offset) == (21, 40)
        assert list(values_of(log)) == list(range(21, 40))

    run(shrink())
    disk.locks.clear()
    run(look())


@pytest.mark.parametrize("new_start", [-1, 4])
def test_trimming_outside_the_log_is_refused(new_start: int) -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), bounded())
        await append_durably(store, log, [b"value"] * 3)
        with pytest.raises(MillstreamError) as refused:
            log.trim(Offset(new_start))
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        log.trim(Offset(0))
        assert log.start_offset == 0

    run(check())
