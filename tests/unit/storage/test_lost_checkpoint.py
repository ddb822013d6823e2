"""Checks that without a checkpoint and end marks a torn tail is truncated unless there is evidence of later data."""

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from builders.logs import SMALL, append_durably, key, logs_of, open_store, run, values_of
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.storage import snapshot
from millstream.storage.cleaning.retention import apply_retention
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.log.segment_scan import find_later
from millstream.storage.store import LogStore
from millstream.testing.simulated.disk import SimulatedDisk

CHECKPOINT = "/data/checkpoint"
END_MARKS = "/data/end-marks"
ROOMY = LogSettings(index_interval_bytes=256)
Losing = Callable[[SimulatedDisk], None]


def remove(disk: SimulatedDisk) -> None:
    disk.remove(CHECKPOINT)
    disk.remove(END_MARKS)


def spoil(disk: SimulatedDisk) -> None:
    disk.spoil(CHECKPOINT, 20, b"garbage")
    disk.spoil(END_MARKS, 20, b"garbage")


async def filled(disk: SimulatedDisk, count: int = 60, settings: LogSettings = ROOMY) -> Log:
    """Create a log of `count` batches, and close it cleanly."""
    store = await open_store(disk)
    log = await store.create(key(0), settings)
    for number in range(count):
        await append_durably(store, log, [b"%d" % number])
    await store.close()
    return log


async def reopened(disk: SimulatedDisk) -> Log:
    disk.locks.clear()
    return logs_of(await open_store(disk))[0]


def everything(disk: SimulatedDisk, log: Log) -> dict[str, bytes]:
    return {name: disk.contents(f"{log.path}/{name}") for name in disk.list(log.path)}


@pytest.mark.parametrize("lose", [remove, spoil])
@pytest.mark.parametrize("starts", [1, 3])
@pytest.mark.parametrize(("settings", "segment"), [(ROOMY, 0), (SMALL, 0), (SMALL, -1)])
def test_damage_before_whole_batches_quarantines_without_changing_files(
    lose: Losing, starts: int, settings: LogSettings, segment: int
) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk, settings=settings)
        lose(disk)
        disk.spoil(log.segments[segment].path, 70, b"XXXX")
        before = everything(disk, log)
        for _ in range(starts):
            found = await reopened(disk)
            assert found.health.quarantined is not None
            assert everything(disk, found) == before, "something was touched"

    run(check())


@pytest.mark.parametrize("lose", [remove, spoil])
def test_a_quarantined_log_recovers_when_its_bytes_are_restored(lose: Losing) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk)
        lose(disk)
        path = log.segments[0].path
        good = disk.contents(path)[70:74]
        disk.spoil(path, 70, b"XXXX")
        assert (await reopened(disk)).health.quarantined is not None
        disk.spoil(path, 70, good)
        found = await reopened(disk)
        assert [int(value) for value in values_of(found).values()] == list(range(60))

    run(check())


@pytest.mark.parametrize("saved_at", [0, 59, 60])
def test_a_snapshot_proves_that_a_damaged_last_batch_existed(saved_at: int) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk)
        snapshot.save_state(log, "partition", saved_at, b"state")
        remove(disk)
        disk.spoil(log.segments[0].path, log.segments[0].size_bytes - 1, b"\xff")
        found = await reopened(disk)
        if saved_at == 60:
            assert found.health.quarantined is not None
        else:
            assert found.health.quarantined is None
            assert found.end_offset == 59

    run(check())


@pytest.mark.parametrize("rubbish", [b"", b"\0" * 4000, b"\0\0" + b"\x02" * 3_000_000])
def test_torn_tail_is_moved_to_a_cut_file_when_the_checkpoint_is_missing(rubbish: bytes) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk)
        path, size = log.segments[0].path, log.segments[0].size_bytes
        remove(disk)
        disk.cut(path, size - 5)
        disk.spoil(path, size - 5, rubbish)
        content = disk.contents(path)
        found = await reopened(disk)
        assert found.end_offset == 59
        (aside,) = [name for name in disk.list(log.path) if name.endswith(".cut")]
        assert content == disk.contents(path) + disk.contents(f"{log.path}/{aside}")

    run(check())


def test_leftover_batches_after_the_log_end_are_ignored() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk)
        path, size = log.segments[0].path, log.segments[0].size_bytes
        remove(disk)
        disk.spoil(path, size, b"torn" + disk.contents(path))
        assert (await reopened(disk)).end_offset == 60

    run(check())


def kill_and_lose_the_checkpoint(disk: SimulatedDisk) -> None:
    disk.locks.clear()
    disk.remove(CHECKPOINT)


def lose_power_and_the_checkpoint(disk: SimulatedDisk) -> None:
    disk.power_loss(Random(1))
    disk.remove(CHECKPOINT)


async def expire(store: LogStore, log: Log, kept_bytes: int) -> None:
    log.configure(LogSettings(segment_bytes=2000, segment_ms=-1, retention_ms=-1, retention_bytes=kept_bytes))
    assert apply_retention(log, 0, limit=log.flushed_offset)


async def delete_records(store: LogStore, log: Log, kept_bytes: int) -> None:
    await store.move_start(log, Offset(log.segments[2].base_offset + 1))


Trim = Callable[[LogStore, Log, int], Coroutine[Any, Any, None]]


@pytest.mark.parametrize("fail", [kill_and_lose_the_checkpoint, lose_power_and_the_checkpoint])
@pytest.mark.parametrize("trim", [None, expire, delete_records])
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_missing_first_segment_quarantines_without_a_checkpoint(
    fail: Losing, trim: Trim | None, restarts: int
) -> None:
    async def check(is_damaged: bool) -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), SMALL)
        for number in range(60):
            await append_durably(store, log, [b"%d" % number])
        if trim is not None:
            await trim(store, log, log.size_bytes // 2)
            await store.checkpoint()
        await asyncio.sleep(2)
        for _ in range(restarts):
            await store.close()
            store = await open_store(disk)
        start = logs_of(store)[0].start_offset
        assert (start > 0) == (trim is not None)
        path = logs_of(store)[0].segments[0].path
        fail(disk)
        if is_damaged:
            disk.remove(path)
        found = await reopened(disk)
        if is_damaged:
            assert found.health.quarantined is not None
        else:
            assert (found.health.quarantined, found.start_offset, found.end_offset) == (None, start, 60)

    run(check(is_damaged=True))
    run(check(is_damaged=False))


@pytest.mark.parametrize("lose", [remove, spoil])
def test_a_lost_checkpoint_is_logged(lose: Losing, caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        await filled(disk)
        lose(disk)
        found = await reopened(disk)
        assert found.end_offset == 60
        logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
        events = [record.getMessage() for record in logged]
        assert events == ["checkpoint unusable, all logs will be read", "end marks unusable"]
        assert logged[0].__dict__["path"] == "/data"

    run(check())


def test_a_new_directory_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        await filled(SimulatedDisk())
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]

    run(check())


def test_no_log_is_created_before_the_first_checkpoint() -> None:
    async def check() -> None:
        disk = SimulatedDisk()

        def full(operation: object) -> None:
            if getattr(operation, "kind", "") == "write" and "checkpoint" in getattr(operation, "path", ""):
                raise OSError(errno.ENOSPC, "no space left")

        disk.before = full
        store = await open_store(disk)
        with pytest.raises(MillstreamError) as refused:
            await store.create(key(0), ROOMY)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not disk.exists(CHECKPOINT)
        disk.before = None
        log = await store.create(key(0), ROOMY)
        assert disk.exists(CHECKPOINT)
        await append_durably(store, log, [b"0"])

    run(check())


@pytest.mark.parametrize("gap", [0, 1, 255, 256 * 1024 - 30, 256 * 1024 - 8, 256 * 1024 + 1])
def test_a_later_batch_is_found_at_any_position(gap: int) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk, 5)
        path = log.segments[0].path
        batches = disk.contents(path)
        file = disk.open("/data/found", create=True)
        file.write(b"\xee" * gap + batches, 0)
        assert find_later(file, position=0, end=file.size(), offset=3) == gap + 4 * (len(batches) // 5)
        assert find_later(file, position=0, end=file.size(), offset=4) is None
        assert find_later(file, position=0, end=file.size() - 1, offset=3) is None

    run(check())


@pytest.mark.parametrize("damaged", [False, True])
def test_a_log_missing_from_the_checkpoint_is_read_completely(damaged: bool) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), SMALL)
        for number in range(60):
            await append_durably(store, log, [b"%d" % number])
        log.trim(log.segments[1].base_offset)
        start = log.start_offset
        snapshot.save_state(log, "partition", log.end_offset, b"state")
        await store.close()
        content = everything(disk, log)
        await store_without(disk, log)
        disk.make_directory(log.path)
        for name, data in content.items():
            disk.open(f"{log.path}/{name}", create=True).write(data, 0)
        if damaged:
            disk.spoil(log.segments[-1].path, 70, b"XXXX")
        for _ in range(2):
            found = await reopened(disk)
            assert (found.health.quarantined is not None) == damaged
            if not damaged:
                assert list(values_of(found)) == list(range(start, 60))

    run(check())


async def store_without(disk: SimulatedDisk, log: Log) -> None:
    """Start and stop a store without the log and without its checkpoint."""
    remove(disk)
    for name in disk.list(log.path):
        disk.remove(f"{log.path}/{name}")
    disk.remove(log.path)
    await (await open_store(disk)).close()
