"""Checks that a full or failing disk fails writes clearly, serves reads, and recovers automatically."""

import asyncio
import errno
from random import Random

import pytest

from builders.logs import (
    SMALL,
    FlushListener,
    append,
    append_durably,
    commit,
    key,
    logs_of,
    open_store,
    read_cold,
    run,
    values_of,
)
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.storage.log.log import Log
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.disk import DiskOperation, SimulatedDisk


async def log_with(disk: SimulatedDisk, count: int, policy: FlushPolicy = FlushPolicy.ALWAYS) -> tuple[LogStore, Log]:
    store = await open_store(disk, policy=policy)
    log = await store.create(key(0), SMALL)
    for number in range(count):
        await append_durably(store, log, [b"%d" % number])
    return store, log


async def healed(log: Log) -> None:
    """Wait long enough, in simulated time, for all repairs to be retried."""
    await asyncio.sleep(20)
    assert log.health.broken is None


def refused(log: Log, value: bytes) -> str:
    with pytest.raises(MillstreamError) as error:
        append(log, [value])
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return error.value.detail


@pytest.mark.parametrize("policy", list(FlushPolicy))
def test_a_full_disk_fails_writes_but_serves_reads(policy: FlushPolicy) -> None:
    async def check() -> None:
        disk = SimulatedDisk(Random(1))
        store, log = await log_with(disk, 10, policy)
        disk.is_full = True
        assert "no space" in refused(log, b"x" * 100)
        assert log.end_offset == 10
        assert len(values_of(log)) == 10
        await healed(log)
        assert "no space" in refused(log, b"x" * 100)
        disk.is_full = False
        await healed(log)
        await append_durably(store, log, [b"10"])
        assert [int(value) for value in values_of(log).values()] == list(range(11))
        await store.close()
        store = await open_store(disk)
        assert [int(value) for value in values_of(logs_of(store)[0]).values()] == list(range(11))

    run(check())


@pytest.mark.parametrize("clean", [True, False])
def test_a_store_starts_on_a_full_disk_and_accepts_writes_later(clean: bool) -> None:
    disk = SimulatedDisk(Random(2))

    async def first_life() -> None:
        store, _ = await log_with(disk, 10)
        if clean:
            await store.close()

    async def second_life() -> None:
        disk.is_full = True
        store = await open_store(disk)
        log = logs_of(store)[0]
        assert len(values_of(log)) == 10
        refused(log, b"x" * 100)
        disk.is_full = False
        await healed(log)
        await append_durably(store, log, [b"10"])

    async def last_look() -> None:
        store = await open_store(disk)
        assert [int(value) for value in values_of(logs_of(store)[0]).values()] == list(range(11))

    run(first_life())
    disk.power_loss()
    run(second_life())
    disk.power_loss()
    run(last_look())


@pytest.mark.parametrize("passes", [True, False])
def test_a_failed_repair_at_startup_is_retried(passes: bool) -> None:
    disk = SimulatedDisk(Random(3))
    refusals = 0

    async def first_life() -> None:
        await log_with(disk, 10)

    def refuse(operation: DiskOperation) -> None:
        nonlocal refusals
        if operation.kind == "flush" and operation.path.endswith(".log") and not (passes and refusals == 2):
            refusals += 1
            raise OSError(errno.EIO, "simulated input/output error", operation.path)

    async def second_life() -> None:
        disk.before = refuse
        store = await open_store(disk)
        disk.before = None
        log = logs_of(store)[0]
        assert refusals == (2 if passes else 4)
        assert (log.health.quarantined is None) is passes
        if passes:
            assert [int(value) for value in values_of(log).values()] == list(range(10))
            await append_durably(store, log, [b"10"])

    run(first_life())
    disk.power_loss()
    run(second_life())


def test_leftovers_of_a_failed_write_are_ignored() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, log = await log_with(disk, 5)
        disk.before = lambda operation: 0.9 if operation.kind == "write" and operation.path.endswith(".log") else None
        refused(log, b"never " * 5)
        disk.before = None
        await healed(log)
        assert len(disk.contents(log.segments[-1].path)) == log.segments[-1].size_bytes
        await append_durably(store, log, [b"5"])
        disk.power_loss()
        store = await open_store(disk)
        assert [int(value) for value in values_of(logs_of(store)[0]).values()] == list(range(6))

    run(check())


def fail_flushes_of(disk: SimulatedDisk, path: str, *, lose: bool) -> None:
    """Fail the next flush of this file, and lose its unflushed bytes."""

    def before(operation: DiskOperation) -> None:
        if operation.kind == "flush" and operation.path == path:
            disk.before = None
            inode = disk._file(path)
            inode.unflushed.clear()
            if lose:
                inode.content[:] = inode.durable
            raise OSError(errno.EIO, "simulated input/output error", path)

    disk.before = before


@pytest.mark.parametrize("already_flushed", [0, 4])
def test_readable_batches_are_rewritten_after_a_failed_flush(already_flushed: int) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, log = await log_with(disk, already_flushed)
        append(log, [b"%d" % already_flushed])
        old = log.segments[-1].path
        fail_flushes_of(disk, old, lose=False)
        with pytest.raises(MillstreamError):
            await commit(log)  # type: ignore[misc]  # there is something to wait for
        refused(log, b"while it is fenced")
        assert len(values_of(log)) == already_flushed + 1
        await healed(log)
        assert log.flushed_offset == log.end_offset == already_flushed + 1
        await append_durably(store, log, [b"%d" % (already_flushed + 1)])
        disk.power_loss()
        store = await open_store(disk)
        assert [int(v) for v in values_of(logs_of(store)[0]).values()] == list(range(already_flushed + 2))

    run(check())


def test_unacknowledged_unreadable_batches_are_dropped_and_logged() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, log = await log_with(disk, 3)
        listener = FlushListener(log)
        append(log, [b"lost"])
        fail_flushes_of(disk, log.segments[-1].path, lose=True)
        with pytest.raises(MillstreamError):
            await commit(log)  # type: ignore[misc]  # there is something to wait for
        await healed(log)
        assert listener.truncated_to == [3]
        assert log.truncations == 1
        assert log.end_offset == log.flushed_offset == 3
        await append_durably(store, log, [b"3"])
        disk.power_loss()
        store = await open_store(disk)
        assert [int(value) for value in values_of(logs_of(store)[0]).values()] == list(range(4))

    run(check())


async def journaled(disk: SimulatedDisk) -> tuple[LogStore, list[Log]]:
    """Create two logs whose last batch is acknowledged only through the journal."""
    store = await open_store(disk)
    logs = [await store.create(key(number), SMALL) for number in range(2)]
    for log in logs:
        await append_durably(store, log, [b"0"])
    waiting = []
    for log in logs:
        append(log, [b"1"])
        waiting.append(commit(log))
    await asyncio.gather(*(one for one in waiting if one is not None))
    assert all(log.segments[0].flushed.offset == 1 for log in logs)
    return store, logs


@pytest.mark.parametrize("lose", [False, True])
def test_batches_lost_from_a_segment_are_restored_from_the_journal(lose: bool) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, logs = await journaled(disk)
        fail_flushes_of(disk, logs[0].segments[0].path, lose=lose)
        await store.checkpoint()
        await healed(logs[0])
        assert [segment.base_offset for segment in logs[0].segments] == [0, 1]
        assert [values_of(log) for log in logs] == [{0: b"0", 1: b"1"}] * 2
        await store.checkpoint()
        disk.power_loss()
        store = await open_store(disk)
        assert [values_of(log) for log in logs_of(store)] == [{0: b"0", 1: b"1"}] * 2

    run(check())


def test_lost_acknowledged_data_quarantines_the_log() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, logs = await journaled(disk)
        for name in disk.list("/data"):
            if name.startswith("journal"):
                disk.cut(f"/data/{name}", 36)
        fail_flushes_of(disk, logs[0].segments[0].path, lose=True)
        await store.checkpoint()
        await asyncio.sleep(20)
        with pytest.raises(MillstreamError) as error:
            read_cold(logs[0], Offset(0), max_bytes=100, end_offset=Offset(1))
        assert error.value.code is ErrorCode.PARTITION_QUARANTINED
        assert values_of(logs[1]) == {0: b"0", 1: b"1"}

    run(check())


@pytest.mark.parametrize("lose", [False, True])
def test_a_write_back_error_of_a_closed_file_is_compensated(lose: bool) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk, open_files_max=8)
        logs = [await store.create(key(number), SMALL) for number in range(20)]
        for log in logs:
            append(log, [b"0"])
        await asyncio.gather(*(one for one in map(commit, logs) if one is not None))
        closed = [log for log in logs if log.segments[0].file is None]
        assert len(closed) >= 10
        for log in closed:
            inode = disk._file(log.segments[0].path)
            inode.unflushed.clear()  # The kernel gave up on these bytes, and nobody had the file open.
            if lose:
                inode.content[:] = inode.durable
        await store.checkpoint()
        await asyncio.sleep(20)
        await store.checkpoint()
        disk.power_loss()
        store = await open_store(disk)
        assert [values_of(log) for log in logs_of(store)] == [{0: b"0"}] * 20

    run(check())


def test_a_failed_checkpoint_is_retried() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, log = await log_with(disk, 3)
        disk.before = lambda operation: 0.5 if operation.kind == "write" and "checkpoint" in operation.path else None
        with pytest.raises(OSError, match="no space"):
            await store.checkpoint()
        await append_durably(store, log, [b"3"])
        await asyncio.sleep(120)
        disk.before = None
        await store.checkpoint()
        await store.close()
        store = await open_store(disk)
        assert len(values_of(logs_of(store)[0])) == 4

    run(check())
