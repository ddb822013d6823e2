"""What is too old or too much goes, in whole segments, and stays gone."""

import pytest

from builders.logs import append, append_durably, key, open_store, run, values_of
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.storage.log.log import LogSettings
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
def test_old_segments_go_and_the_active_one_too(policy: FlushPolicy) -> None:
    async def check() -> None:
        clock = ManualClock()
        store = await open_store(SimulatedDisk(), clock=clock, policy=policy)
        log = await store.create(key(0), bounded(retention_ms=10 * HOUR_MS))
        for hour in range(20):
            await append_durably(store, log, [b"value %d" % hour], timestamp=clock.wall_ms())
            clock.advance_ms(HOUR_MS)
        log.apply_retention(clock.wall_ms())
        assert log.start_offset == 10
        assert list(values_of(log)) == list(range(10, 20))
        clock.advance_ms(11 * HOUR_MS)
        log.apply_retention(clock.wall_ms())
        assert (log.start_offset, log.end_offset, log.size_bytes) == (20, 20, 0)
        await append_durably(store, log, [b"numbering goes on"])
        assert values_of(log) == {20: b"numbering goes on"}

    run(check())


def test_segments_without_times_age_from_when_they_were_begun() -> None:
    async def check() -> None:
        clock = ManualClock()
        store = await open_store(SimulatedDisk(), clock=clock)
        log = await store.create(key(0), bounded(retention_ms=10))
        await append_durably(store, log, [b"value"], timestamp=-1)
        assert log.apply_retention(clock.wall_ms() + 10) == 0
        assert log.apply_retention(clock.wall_ms() + 11) == 1

    run(check())


def test_size_is_kept_within_a_segment_of_the_bound() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), bounded(retention_bytes=1000))
        for _ in range(40):
            await append_durably(store, log, [b"x" * 50])
            log.apply_retention(0)
        assert 1000 <= log.size_bytes < 1000 + 300
        assert log.start_offset == log.segments[0].base_offset > 0

    run(check())


def test_nothing_goes_that_is_not_yet_durable() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), bounded(retention_ms=0))
        append(log, [b"value"])
        assert log.apply_retention(10**15) == 0
        committed = store.commit(log)
        assert committed is not None
        await committed
        assert log.apply_retention(10**15) == 1

    run(check())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("clean", [True, False])
def test_start_and_end_survive_a_restart_and_files_go(policy: FlushPolicy, clean: bool) -> None:
    disk = SimulatedDisk()

    async def shrink() -> None:
        store = await open_store(disk, policy=policy)
        log = await store.create(key(0), bounded())
        for number in range(20):
            await append_durably(store, log, [b"%d" % number] * 2)
        log.trim(21)
        await store.checkpoint()
        assert log.doomed == []
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
def test_a_log_is_trimmed_only_within_itself(new_start: int) -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        log = await store.create(key(0), bounded())
        await append_durably(store, log, [b"value"] * 3)
        with pytest.raises(MillstreamError) as refused:
            log.trim(new_start)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        log.trim(0)
        assert log.start_offset == 0

    run(check())
