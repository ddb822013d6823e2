"""Checks that the process after a kill reads only what was written after the saved marks."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from builders.logs import SMALL, append, key, logs_of, open_store, run, values_of
from builders.loops import for_each
from millstream.storage.flush.end_marks import FILE_NAME as END_MARKS
from millstream.storage.flush.written_marks import FILE_NAME
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.disk import DiskOperation, PowerLoss, SimulatedDisk

ROOMY = LogSettings(index_interval_bytes=256)
MARKS = f"/data/{FILE_NAME}"
MARKED, UNMARKED = 60, 5


async def write(disk: SimulatedDisk, settings: LogSettings = ROOMY) -> Log:
    """Write batches below and above the saved mark; then the process is killed."""
    store = await open_store(disk, policy=FlushPolicy.OS)
    log = await store.create(key(0), settings)
    for number in range(MARKED + UNMARKED):
        append(log, [b"%d" % number])
        if number == MARKED - 1:
            await asyncio.sleep(2)
    return log


def killed(disk: SimulatedDisk) -> SimulatedDisk:
    """The disk for the next process: with everything written, flushed or not, and without locks."""
    disk.is_dead = False
    disk.locks.clear()
    if disk.exists(f"/data/{END_MARKS}"):
        disk.remove(f"/data/{END_MARKS}")  # It would quarantine damaged logs.
    disk.counts.clear()
    return disk


def numbers(log: Log) -> list[int]:
    return [int(value) for value in values_of(log).values()]


async def reopened(disk: SimulatedDisk, policy: FlushPolicy = FlushPolicy.OS) -> tuple[LogStore, Log]:
    store = await open_store(disk, policy=policy)
    return store, logs_of(store)[0]


def test_recovery_reads_only_data_after_the_written_mark_without_flushing() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        path = (await write(disk)).segments[-1].path
        disk.spoil(path, 100, b"spoilt")
        changes: list[str] = []
        disk.before = lambda operation: changes.append(operation.kind) if operation.path == path else None
        _, log = await reopened(killed(disk))
        assert log.end_offset == MARKED + UNMARKED
        assert log.flushed_offset == 0
        assert changes == []

    run(check())


@pytest.mark.parametrize("settings", [ROOMY, SMALL], ids=["one segment", "many segments"])
def test_unflushed_data_of_a_killed_process_is_flushed_at_the_next_close(settings: LogSettings) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        await write(disk, settings)
        store, log = await reopened(killed(disk))
        append(log, [b"%d" % (MARKED + UNMARKED)])
        await store.close()
        disk.power_loss()
        _, log = await reopened(disk)
        assert numbers(log) == list(range(MARKED + UNMARKED + 1))

    run(check())


def lose_power(disk: SimulatedDisk, path: str) -> None:
    disk.boot += 1


def cut_the_segment(disk: SimulatedDisk, path: str) -> None:
    disk.cut(path, len(disk.contents(path)) // 2)


def spoil_the_marks(disk: SimulatedDisk, path: str) -> None:
    disk.spoil(MARKS, 30, b"\0" * 30)


@pytest.mark.parametrize("happens", [lose_power, cut_the_segment, spoil_the_marks])
def test_an_untrustworthy_written_mark_is_ignored(happens: Callable[[SimulatedDisk, str], None]) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        path = (await write(disk)).segments[-1].path
        happens(disk, path)
        disk.spoil(path, 76 * 2, b"\xff" * 8)
        _, log = await reopened(killed(disk))
        assert numbers(log) == [0, 1]

    run(check())


@pytest.mark.parametrize("policy", [FlushPolicy.ALWAYS, FlushPolicy.INTERVAL])
def test_written_marks_are_ignored_and_removed_when_the_policy_flushes(policy: FlushPolicy) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        path = (await write(disk)).segments[-1].path
        disk.spoil(path, 76 * 2, b"\xff" * 8)
        _, log = await reopened(killed(disk), policy)
        assert numbers(log) == [0, 1]
        assert log.flushed_offset == 2
        assert not disk.exists(MARKS)

    run(check())


def test_no_written_marks_are_saved_without_a_boot_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedDisk, "boot_id", lambda disk: "")

    async def check() -> None:
        disk = SimulatedDisk()
        await write(disk)
        assert not disk.exists(MARKS)
        _, log = await reopened(killed(disk))
        assert numbers(log) == list(range(MARKED + UNMARKED))

    run(check())


async def script(disk: SimulatedDisk, written: dict[int, list[bytes]]) -> None:
    """Roll, save marks and checkpoints, trim, delete and create a log, and restart."""
    store = await open_store(disk, policy=FlushPolicy.OS, random=Random(1))
    for number in range(3):
        await store.create(key(number), SMALL)
    for size in (10, 300, 40):
        fill(store, written, size)
        await asyncio.sleep(2)
    await store.checkpoint()
    fill(store, written, 500)
    log = store.get(key(0))
    assert log is not None
    log.trim(log.segments[-1].base_offset)
    await asyncio.sleep(2)
    fill(store, written, 20)
    written[2] = []
    await store.delete(key(2))
    await store.create(key(2), SMALL)
    fill(store, written, 200)
    await asyncio.sleep(40)
    fill(store, written, 100)
    await store.close()
    store = await open_store(disk, policy=FlushPolicy.OS, random=Random(2))
    logs_of(store)
    fill(store, written, 300)
    await asyncio.sleep(2)
    fill(store, written, 10)


def fill(store: LogStore, written: dict[int, list[bytes]], size: int) -> None:
    for number, values in written.items():
        log = store.get(key(number))
        assert log is not None
        for _ in range(5):
            value = f"{number}:{log.end_offset}:{size}".encode().ljust(size, b".")
            values.append(value)
            try:
                append(log, [value])
            except PowerLoss:
                if log.end_offset < len(values):  # Otherwise the batch is written, and its end mark is not.
                    values.pop()
                raise


def run_until(disk: SimulatedDisk, written: dict[int, list[bytes]], number: int) -> bool:
    def before(operation: DiskOperation) -> None:
        if operation.number == number:
            raise PowerLoss

    disk.before = before
    try:
        run(script(disk, written))
    except PowerLoss:
        return True
    finally:
        disk.before = None
    return False


async def check_and_continue(disk: SimulatedDisk, written: dict[int, list[bytes]], policy: FlushPolicy) -> None:
    store = await open_store(disk, policy=policy)
    for log in logs_of(store):
        values = written[log.key.partition]
        assert log.health.quarantined is None
        if log.key.partition != 2:  # The third log is deleted and created again, so any state is possible.
            assert log.end_offset == len(values)
            assert all(values[offset] == value for offset, value in values_of(log).items())
    there = {log.key.partition: written[log.key.partition] for log in logs_of(store) if log.key.partition != 2}
    fill(store, there, 30)
    await asyncio.sleep(2)
    fill(store, there, 300)


@pytest.mark.parametrize("policy", list(FlushPolicy))
@for_each("seed", range(2))
def test_no_written_data_is_lost_wherever_the_process_is_killed(seed: int, policy: FlushPolicy) -> None:
    whole = SimulatedDisk(Random(0))
    assert not run_until(whole, {0: [], 1: [], 2: []}, -1)
    for number in range(1 + seed, whole.operations + 1, 2):
        disk, written = SimulatedDisk(Random(number)), dict[int, list[bytes]]({0: [], 1: [], 2: []})
        assert run_until(disk, written, number)
        for life in (policy, FlushPolicy.OS, FlushPolicy.OS):
            run(check_and_continue(killed(disk), written, life))
