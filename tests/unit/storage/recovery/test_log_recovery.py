"""Checks that recovery ends a log at its last whole batch, and never truncates damaged flushed data."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from builders.logs import SMALL, append, append_durably, commit, key, logs_of, open_store, read_cold, run, values_of
from builders.loops import for_each
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.records.header import each_batch
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.disk import SimulatedDisk

ROOMY = LogSettings(index_interval_bytes=256)


async def write(disk: SimulatedDisk, count: int, settings: LogSettings = ROOMY, *, checkpoint: int = -1) -> Log:
    """Write `count` batches with a checkpoint after the first `checkpoint` ones; then the process ends."""
    store = await open_store(disk, policy=FlushPolicy.INTERVAL)
    log = await store.create(key(0), settings)
    for number in range(count):
        append(log, [b"%d" % number])
        if number == checkpoint - 1:
            await store.checkpoint()
    disk.locks.clear()
    return log


async def reopened(disk: SimulatedDisk, policy: FlushPolicy = FlushPolicy.ALWAYS) -> tuple[LogStore, Log]:
    store = await open_store(disk, policy=policy)
    log = logs_of(store)[0]
    return store, log


def position_of(disk: SimulatedDisk, path: str, number: int) -> int:
    """The position of the batch with this number in a segment."""
    return [position for position, _ in each_batch(disk.contents(path))][number]


def numbers(log: Log) -> list[int]:
    return [int(value) for value in values_of(log).values()]


@pytest.mark.parametrize("checkpoint", [-1, 3])
@pytest.mark.parametrize("missing", [1, 30, 75, 76, 77])
def test_a_torn_tail_is_truncated_after_the_last_whole_batch(checkpoint: int, missing: int) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await write(disk, 10, checkpoint=checkpoint)
        path, size = log.segments[-1].path, log.segments[-1].size_bytes
        per_batch = size // 10
        disk.cut(path, size - missing)
        store, log = await reopened(disk)
        kept = (size - missing) // per_batch
        assert numbers(log) == list(range(kept))
        await append_durably(store, log, [b"%d" % kept])
        assert numbers(log) == list(range(kept + 1))

    run(check())


@pytest.mark.parametrize("rubbish", [b"\0" * 5000, b"\xff" * 333, b"MSTRM" * 99, b"\0\0\0\0\0\0\0\x0a" + b"\x7f" * 80])
def test_garbage_after_the_last_batch_is_moved_aside(rubbish: bytes) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await write(disk, 10)
        path, size = log.segments[-1].path, log.segments[-1].size_bytes
        disk.spoil(path, size, rubbish)
        _, log = await reopened(disk)
        assert numbers(log) == list(range(10))
        assert len(disk.contents(path)) == size
        aside = [name for name in disk.list(log.path) if name.endswith(".cut")]
        assert [disk.contents(f"{log.path}/{name}") for name in aside] == ([rubbish] if rubbish.strip(b"\0") else [])

    run(check())


def test_a_leftover_batch_with_another_offset_is_not_recovered() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await write(disk, 10)
        path, size = log.segments[-1].path, log.segments[-1].size_bytes
        disk.spoil(path, size, disk.contents(path)[: size // 10])
        _, log = await reopened(disk)
        assert numbers(log) == list(range(10))

    run(check())


def test_a_damaged_batch_that_was_never_flushed_ends_the_log() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await write(disk, 10, SMALL, checkpoint=4)
        path = log.segments[0].path
        disk.spoil(path, position_of(disk, path, 6) + 65, b"\xff")
        _, log = await reopened(disk)
        assert numbers(log) == list(range(6))

    run(check())


def test_segments_after_a_torn_one_are_moved_aside_without_end_marks() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await write(disk, 80, SMALL)
        first, second, third = (segment.base_offset for segment in log.segments[:3])
        assert first == 0
        disk.spoil(log.segments[1].path, 65, b"\xff")
        disk.remove("/data/end-marks")
        store, log = await reopened(disk)
        assert log.end_offset == second
        assert f"{third:020d}.log.cut" in disk.list(log.path)
        await append_durably(store, log, [b"%d" % second])
        assert numbers(log) == list(range(second + 1))

    run(check())


def shorten(disk: SimulatedDisk, path: str) -> None:
    disk.cut(path, 100)


def remove(disk: SimulatedDisk, path: str) -> None:
    disk.remove(path)


@pytest.mark.parametrize("damage", [shorten, remove])
def test_missing_flushed_data_quarantines_only_its_log(
    damage: Callable[[SimulatedDisk, str], None],
) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        for number in range(3):
            await append_durably(store, await store.create(key(number), ROOMY), [b"0"] * 30)
        await store.checkpoint()
        spoiled = store.get(key(1))
        assert spoiled is not None
        path, before = spoiled.segments[0].path, disk.list(spoiled.path)
        damage(disk, path)
        disk.locks.clear()
        for _ in range(2):
            store = await open_store(disk)
            first, bad, last = logs_of(store)
            assert len(values_of(first)) == len(values_of(last)) == 30
            with pytest.raises(MillstreamError) as refused:
                read_cold(bad, Offset(0), max_bytes=100, end_offset=Offset(10))
            assert refused.value.code is ErrorCode.PARTITION_QUARANTINED
            with pytest.raises(MillstreamError):
                append(bad, [b"x"])
            assert disk.list(bad.path) == [name for name in before if disk.exists(f"{bad.path}/{name}")]
            disk.locks.clear()
        await store.delete(key(1))
        await append_durably(store, await store.create(key(1), ROOMY), [b"fresh"])

    run(check())


@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_journal_entries_of_a_quarantined_log_outlive_the_journal(restarts: int) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        logs = [await store.create(key(number), ROOMY) for number in range(2)]
        for number in range(5):
            for log in logs:
                append(log, [b"%d" % number])
            await asyncio.gather(*(one for one in map(commit, logs) if one is not None))
            if number == 1:
                await store.checkpoint()
        path = logs[0].segments[0].path
        whole = disk.contents(path)
        disk.cut(path, 50)
        disk.power_loss()
        for _ in range(restarts):
            store = await open_store(disk)
            await append_durably(store, logs_of(store)[1], [b"more"])
            await store.close()
        assert restarts == 0 or not [name for name in disk.list("/data") if "journal" in name]
        disk.spoil(path, 0, whole[: len(whole) * 2 // 5])
        _, log = await reopened(disk)
        assert numbers(log) == list(range(5))
        assert not [name for name in disk.list("/data") if name.endswith(".kept")]

    run(check())


def test_damage_in_flushed_data_is_reported_and_not_skipped() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), ROOMY)
        for number in range(40):
            await append_durably(store, log, [b"%d" % number])
        await store.close()
        path = log.segments[0].path
        disk.spoil(path, position_of(disk, path, 20) + 3, b"\xff" * 9)
        _, log = await reopened(disk)
        assert log.end_offset == 40
        with pytest.raises(MillstreamError) as refused:
            values_of(log, 90)
        assert refused.value.code is ErrorCode.PARTITION_QUARANTINED
        assert log.health.quarantined is not None

    run(check())


@pytest.mark.parametrize("content", [b"", b"\0" * 500, b"garbage"])
def test_logs_are_read_completely_without_a_readable_checkpoint(content: bytes) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), SMALL)
        for number in range(60):
            await append_durably(store, log, [b"%d" % number])
        await store.close()
        disk.cut("/data/checkpoint", 0)
        disk.spoil("/data/checkpoint", 0, content)
        _, log = await reopened(disk)
        assert numbers(log) == list(range(60))

    run(check())


def test_damage_before_later_data_quarantines_a_log_without_a_checkpoint() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), SMALL)
        for number in range(60):
            await append_durably(store, log, [b"%d" % number])
        await store.close()
        disk.cut("/data/checkpoint", 10)
        disk.spoil(log.segments[0].path, 80, b"\xff")
        _, log = await reopened(disk)
        assert log.health.quarantined is not None

    run(check())


@for_each("seed", range(10))
def test_a_log_without_flushes_keeps_a_prefix_after_a_power_loss(seed: int) -> None:
    async def check() -> None:
        disk = SimulatedDisk(Random(seed))
        await write(disk, 80, SMALL, checkpoint=20)
        disk.power_loss()
        _, log = await reopened(disk, FlushPolicy.INTERVAL)
        found = numbers(log)
        assert found == list(range(len(found)))
        assert len(found) >= 20

    run(check())


def test_a_log_is_rebuilt_from_the_journal_when_its_segment_is_lost() -> None:
    """Removed segments may reappear after a power loss; they must not continue the log."""

    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        logs = [await store.create(key(number), SMALL) for number in range(2)]
        for log in logs:
            await append_durably(store, log, [b"old"] * 5)
        logs[0].trim(Offset(5))
        await store.checkpoint()
        old = f"{logs[0].path}/{0:020d}.log"
        for log in logs:
            append(log, [b"new"])
        await asyncio.gather(*(one for one in map(commit, logs) if one is not None))
        disk.remove(logs[0].segments[-1].path)
        disk.open(old, create=True)
        disk.locks.clear()
        store, log = await reopened(disk)
        assert (log.start_offset, values_of(log)) == (5, {5: b"new"})
        assert not disk.exists(old)

    run(check())
