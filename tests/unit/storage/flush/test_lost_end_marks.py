"""Checks that a start reports possible losses when end marks themselves are damaged, stale or missing."""

import asyncio
import errno
import logging
from collections.abc import Callable

import pytest

from builders.logs import SMALL, FlushListener, append, append_durably, key, logs_of, open_store, run
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.storage.log.log import Log
from millstream.storage.sealed_file import UNFINISHED
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.disk import DiskOperation, SimulatedDisk
from unit.storage.flush.test_end_marks import (
    COUNT,
    MARKS,
    ROOMY,
    Damage,
    delete,
    filled,
    flip,
    kill,
    reopened,
    shorten,
)

HEAD_BYTES = 96


def flip_mark(disk: SimulatedDisk) -> None:
    flip(disk, MARKS, HEAD_BYTES + 14)


def cut_marks(disk: SimulatedDisk) -> None:
    disk.cut(MARKS, HEAD_BYTES)


def cut_within_the_mark(disk: SimulatedDisk) -> None:
    disk.cut(MARKS, HEAD_BYTES + 20)


def zero_marks(disk: SimulatedDisk) -> None:
    disk.spoil(MARKS, HEAD_BYTES, bytes(len(disk.contents(MARKS)) - HEAD_BYTES))


def remove_marks(disk: SimulatedDisk) -> None:
    disk.remove(MARKS)


LOST_MARKS = (flip_mark, cut_marks, cut_within_the_mark, zero_marks, remove_marks)


@pytest.mark.parametrize("lose", LOST_MARKS)
@pytest.mark.parametrize("is_in_checkpoint", [False, True])
def test_a_truncation_without_a_mark_may_lose_acknowledged_data(
    lose: Callable[[SimulatedDisk], None], is_in_checkpoint: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), ROOMY)
        if is_in_checkpoint:
            await store.checkpoint()
        for number in range(COUNT):
            await append_durably(store, log, [b"%d" % number])
        kill(disk)
        lose(disk)
        path = log.segments[0].path
        flip(disk, path, len(disk.contents(path)) // 2)
        assert (await reopened(disk)).health.may_have_lost
        errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert "log truncated, acknowledged data may be lost" in errors

    run(check())


def start_problem(store: LogStore) -> str | None:
    (directory,) = store.data_directories
    return directory.end_marks.start_problem


@pytest.mark.parametrize("lose", LOST_MARKS)
@pytest.mark.parametrize("damage", [shorten, delete])
def test_a_start_without_a_mark_reports_a_problem_when_nothing_is_truncated(
    lose: Callable[[SimulatedDisk], None], damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        path = (await filled(disk)).segments[0].path
        kill(disk)
        lose(disk)
        damage(disk, path, len(disk.contents(path)) // COUNT * 7)
        store = await open_store(disk)
        assert logs_of(store)[0].end_offset < COUNT
        assert start_problem(store) or logs_of(store)[0].health.may_have_lost
        assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]

    run(check())


def test_a_start_after_a_clean_close_needs_no_marks(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        await append_durably(store, await store.create(key(0), ROOMY), [b"one"])
        await store.close()
        disk.remove(MARKS)
        store = await open_store(disk)
        assert not start_problem(store)
        assert not logs_of(store)[0].health.may_have_lost
        assert not caplog.records

    run(check())


def test_an_unacknowledged_first_write_of_a_killed_process_loses_nothing() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await (await open_store(disk)).create(key(0), ROOMY)
        append(log, [b"not acknowledged"])
        kill(disk)
        disk.cut(log.segments[0].path, 30)
        log = await reopened(disk)
        assert (log.end_offset, log.health.may_have_lost) == (0, False)

    run(check())


def failing(*kinds: str) -> Callable[[DiskOperation], None]:
    def fail(operation: DiskOperation) -> None:
        if operation.path.startswith(MARKS) and operation.kind in kinds:
            raise OSError(errno.ENOSPC, "simulated", operation.path)

    return fail


def failing_growth(operation: DiskOperation) -> None:
    """Fail what needs space: the creation of the new file."""
    if operation.path == MARKS + UNFINISHED:
        raise OSError(errno.ENOSPC, "simulated", operation.path)


async def appended_with_failing_marks(disk: SimulatedDisk, *kinds: str) -> Log:
    store = await open_store(disk)
    log = await store.create(key(0), ROOMY)
    await append_durably(store, log, [b"one"])
    disk.before = failing(*kinds)
    for value in (b"two", b"three"):
        await append_durably(store, log, [value])
    disk.before = None
    return log


def flip_second_batch(disk: SimulatedDisk, log: Log) -> None:
    path = log.segments[0].path
    flip(disk, path, len(disk.contents(path)) // 2)


def test_marks_that_were_not_written_count_as_incomplete() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await appended_with_failing_marks(disk, "write")
        kill(disk)
        flip_second_batch(disk, log)
        log = await reopened(disk)
        assert (log.health.quarantined is not None) or log.health.may_have_lost

    run(check())


def test_marks_are_complete_again_after_the_disk_has_space() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await appended_with_failing_marks(disk, "write", "create")
        await asyncio.sleep(3)
        kill(disk)
        flip_second_batch(disk, log)
        assert (await reopened(disk)).health.quarantined is not None

    run(check())


def test_nothing_is_acknowledged_while_stale_marks_look_complete() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), ROOMY)
        watermark = FlushListener(log).watermark
        disk.before = failing("write", "create", "remove")
        with pytest.raises(MillstreamError) as error:
            await append_durably(store, log, [b"one"])
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert watermark.offset == 0
        disk.before = None
        await asyncio.sleep(3)
        assert watermark.offset == 1
        kill(disk)
        flip(disk, log.segments[0].path, 70)
        assert (await reopened(disk)).health.quarantined is not None

    run(check())


def test_marks_of_an_earlier_start_count_as_incomplete_after_a_start_on_a_full_disk() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        await filled(disk)
        kill(disk)
        disk.before = failing_growth
        store = await open_store(disk)
        log = logs_of(store)[0]
        await append_durably(store, log, [b"more"])
        disk.before = None
        kill(disk)
        path = log.segments[-1].path
        flip(disk, path, len(disk.contents(path)) - 3)
        assert (await reopened(disk)).health.may_have_lost

    run(check())


def test_a_quarantine_outlasts_a_start_that_cannot_save_marks() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk)
        kill(disk)
        flip_second_batch(disk, log)
        disk.before = failing_growth
        assert (await reopened(disk)).health.quarantined is not None
        disk.before = None
        kill(disk)
        assert (await reopened(disk)).health.quarantined is not None

    run(check())


def test_a_start_fails_if_stale_marks_cannot_be_declared_incomplete() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        await filled(disk)
        kill(disk)
        disk.before = failing("write", "create", "remove")
        with pytest.raises(OSError, match="simulated"):
            await open_store(disk)

    run(check())


@pytest.mark.parametrize("policy", [FlushPolicy.INTERVAL, FlushPolicy.OS])
def test_weaker_policies_quarantine_a_log_whose_newest_segment_is_missing(policy: FlushPolicy) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk, SMALL, policy)
        kill(disk)
        disk.remove(log.segments[-1].path)
        assert (await reopened(disk, policy)).health.quarantined is not None

    run(check())
