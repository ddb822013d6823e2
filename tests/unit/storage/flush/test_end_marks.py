"""Checks that recovery quarantines a log with damage below its end mark, and truncates only above it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.logs import SMALL, append, append_durably, commit, key, logs_of, open_store, read_cold, run, values_of
from builders.loops import for_each
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.seams.disk import Disk
from millstream.storage.flush.end_marks import FILE_NAME, NO_MARKS, EndMarks
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.recovery.disk_errors import DiskErrorLog
from millstream.storage.recovery.recovery_report import report_recovered
from millstream.storage.sealed_file import UNFINISHED
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.clock import ManualClock
from millstream.testing.simulated.disk import DiskOperation, SimulatedDisk

ROOMY = LogSettings(index_interval_bytes=256)
MARKS = f"/data/{FILE_NAME}"
COUNT = 40
Reboot = Callable[[SimulatedDisk], None]
Damage = Callable[[SimulatedDisk, str, int], None]
Fill = Callable[[SimulatedDisk, LogSettings], Coroutine[Any, Any, Log]]


def kill(disk: SimulatedDisk) -> None:
    """The process ends; the machine and its page cache stay."""
    disk.locks.clear()


def lose_power(disk: SimulatedDisk) -> None:
    disk.power_loss(Random(1))


def flip(disk: SimulatedDisk, path: str, position: int) -> None:
    disk.spoil(path, position, bytes([disk.contents(path)[position] ^ 1]))


def zero(disk: SimulatedDisk, path: str, position: int) -> None:
    disk.spoil(path, position, bytes(min(200, len(disk.contents(path)) - position)))


def shorten(disk: SimulatedDisk, path: str, position: int) -> None:
    disk.cut(path, position)


def delete(disk: SimulatedDisk, path: str, position: int) -> None:
    disk.remove(path)


DAMAGES = (flip, zero, shorten, delete)


async def filled(disk: SimulatedDisk, settings: LogSettings = ROOMY, policy: FlushPolicy = FlushPolicy.ALWAYS) -> Log:
    """Acknowledge batches in one log. No checkpoint contains them."""
    store = await open_store(disk, policy=policy)
    log = await store.create(key(0), settings)
    for number in range(COUNT):
        await append_durably(store, log, [b"%d" % number])
    return log


async def filled_by_journal(disk: SimulatedDisk, settings: LogSettings = ROOMY) -> Log:
    """Acknowledge batches in two logs at once, so that the journal makes them durable."""
    store = await open_store(disk)
    logs = [await store.create(key(number), settings) for number in range(2)]
    for log in logs:
        await append_durably(store, log, [b"0"])
    for number in range(1, COUNT):
        for log in logs:
            append(log, [b"%d" % number])
        for committed in [commit(log) for log in logs]:
            assert committed is not None
            await committed
    return logs[0]


async def reopened(disk: SimulatedDisk, policy: FlushPolicy = FlushPolicy.ALWAYS) -> Log:
    store = await open_store(disk, policy=policy)
    report_recovered(store.take_recovered(), {})
    return logs_of(store)[0]


def check_nothing_acknowledged_is_lost(log: Log) -> None:
    """Every acknowledged batch can be read, or the log refuses reads and writes."""
    if log.health.quarantined is None:
        with suppress(MillstreamError):  # A read that finds damage quarantines the log.
            assert [int(value) for value in values_of(log).values()] == list(range(COUNT))
            assert log.end_offset == COUNT
            return
    for refused in (
        lambda: read_cold(log, Offset(0), max_bytes=1, end_offset=Offset(COUNT)),
        lambda: append(log, [b""]),
    ):
        with pytest.raises(MillstreamError) as error:
            refused()
        assert error.value.code is ErrorCode.PARTITION_QUARANTINED


@pytest.mark.parametrize("settings", [ROOMY, SMALL], ids=["one segment", "many segments"])
@pytest.mark.parametrize("fill", [filled, filled_by_journal])
@pytest.mark.parametrize("damage", DAMAGES)
def test_acknowledged_offsets_are_not_reused_when_a_killed_log_is_damaged(
    damage: Damage, fill: Fill, settings: LogSettings
) -> None:
    async def damaged(segment: int, share: float) -> None:
        disk = SimulatedDisk()
        path = (await fill(disk, settings)).segments[segment].path
        kill(disk)
        damage(disk, path, int(share * (len(disk.contents(path)) - 1)))
        for _ in range(2):
            check_nothing_acknowledged_is_lost(await reopened(disk))
            kill(disk)

    for segment in (0, -1):
        for share in (0, 0.01, 0.3, 0.5, 0.99, 1):
            run(damaged(segment, share))


@for_each("seed", range(4))
def test_no_damaged_file_of_a_killed_broker_makes_a_log_lose_batches(seed: int) -> None:
    async def damaged(random: Random, fill: Fill) -> None:
        disk = SimulatedDisk()
        await fill(disk, ROOMY)
        kill(disk)
        path = random.choice(disk.flushed_files())
        random.choice(DAMAGES)(disk, path, random.randrange(len(disk.contents(path))))
        try:
            log = await reopened(disk)
        except MillstreamError as refused:  # Such as for a damaged directory id.
            if refused.code is not ErrorCode.DATA_DIRECTORY_MISSING:
                raise
        else:
            check_nothing_acknowledged_is_lost(log)

    random = Random(seed)
    for _ in range(30):
        run(damaged(random, random.choice([filled, filled_by_journal])))


def test_a_missing_journal_is_reported_and_loses_no_acknowledged_batch(caplog: pytest.LogCaptureFixture) -> None:
    async def check(happens: Reboot) -> None:
        disk = SimulatedDisk()
        await filled_by_journal(disk)
        await asyncio.sleep(2)
        happens(disk)
        (journal,) = [path for path in disk.flushed_files() if "/journal-" in path]
        disk.remove(journal)
        check_nothing_acknowledged_is_lost(await reopened(disk))
        assert "journal missing" in [record.getMessage() for record in caplog.records]
        caplog.clear()

    run(check(kill))
    run(check(lose_power))


def test_damage_of_the_last_acknowledged_batch_names_both_offsets() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        path = (await filled(disk)).segments[-1].path
        kill(disk)
        flip(disk, path, len(disk.contents(path)) - 1)
        log = await reopened(disk)
        assert log.health.quarantined is not None
        assert f"offsets up to {COUNT} were acknowledged" in log.health.quarantined
        assert f"readable only up to {COUNT - 1}" in log.health.quarantined

    run(check())


@pytest.mark.parametrize("at", [0, 0.5, 0.95])
def test_damage_below_the_flushed_mark_quarantines_after_a_power_loss(at: float) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk)
        await asyncio.sleep(2)
        path, size = log.segments[0].path, log.segments[0].size_bytes
        lose_power(disk)
        flip(disk, path, int(at * size))
        assert (await reopened(disk)).health.quarantined is not None

    run(check())


async def acknowledged_above_the_flushed_mark(disk: SimulatedDisk) -> Log:
    """Acknowledge half of the batches after the last flush of the end marks."""
    store = await open_store(disk)
    log = await store.create(key(0), ROOMY)
    for number in range(COUNT):
        if number == COUNT // 2:
            await asyncio.sleep(2)
        await append_durably(store, log, [b"%d" % number])
    return log


def test_damage_above_the_flushed_mark_truncates_with_an_error_after_a_power_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await acknowledged_above_the_flushed_mark(disk)
        path, size = log.segments[0].path, log.segments[0].size_bytes
        disk.power_loss(Losing())
        per_batch = size // COUNT
        flip(disk, path, per_batch * (COUNT - 5) - 3)
        log = await reopened(disk)
        assert log.health.quarantined is None
        assert log.health.may_have_lost
        assert log.end_offset == COUNT - 6
        (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert record.getMessage() == "log truncated, acknowledged data may be lost"
        assert record.__dict__["whole_batches_set_aside"] == 5

    run(check())


class Losing(Random):
    """Loses every unflushed write at a power loss."""

    def random(self) -> float:
        return 0.0


def test_an_unacknowledged_write_of_a_killed_process_is_truncated_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk)
        path, size = log.segments[0].path, log.segments[0].size_bytes
        append(log, [b"not acknowledged"])
        kill(disk)
        disk.cut(path, size + 30)
        log = await reopened(disk)
        assert log.end_offset == COUNT
        assert not log.health.may_have_lost
        assert [record.levelno for record in caplog.records] == [logging.WARNING]

    run(check())


@pytest.mark.parametrize("policy", [FlushPolicy.INTERVAL, FlushPolicy.OS])
def test_weaker_policies_quarantine_damage_below_a_mark_of_the_same_boot(policy: FlushPolicy) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        path = (await filled(disk, policy=policy)).segments[0].path
        await asyncio.sleep(2)
        kill(disk)
        disk.cut(path, 300)
        assert (await reopened(disk, policy)).health.quarantined is not None

    run(check())


def test_a_power_loss_under_a_weaker_policy_quarantines_nothing() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        await filled(disk, policy=FlushPolicy.OS)
        await asyncio.sleep(2)
        disk.power_loss(Losing())
        assert (await reopened(disk, FlushPolicy.OS)).health.quarantined is None

    run(check())


def test_a_deleted_log_that_is_created_again_begins_without_a_mark() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), ROOMY)
        await append_durably(store, log, [b"old"])
        await store.delete(key(0))
        await store.create(key(0), ROOMY)
        kill(disk)
        log = await reopened(disk)
        assert (log.health.quarantined, log.end_offset) == (None, 0)

    run(check())


def test_a_write_of_the_marks_that_fails_does_not_fail_the_acknowledgement(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), ROOMY)

        def fail(operation: DiskOperation) -> None:
            if operation.path == MARKS + UNFINISHED:
                raise OSError(5, "simulated")

        disk.before = fail
        await append_durably(store, log, [b"one"])
        assert [record.getMessage() for record in caplog.records] == ["end marks not saved"]
        disk.before = None
        await asyncio.sleep(2)
        await append_durably(store, log, [b"two"])
        kill(disk)
        flip(disk, log.segments[0].path, 70)
        assert (await reopened(disk)).health.quarantined is not None

    run(check())


def marks_on(disk: Disk, *, directory: int = 7) -> EndMarks:
    return EndMarks(disk, "/data", UUID(int=directory), DiskErrorLog(ManualClock()), flushed=True)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2**60)), max_size=60), st.integers(0, 300))
def test_saved_marks_are_read_back_after_any_changes(changes: list[tuple[int, int]], forgotten: int) -> None:
    disk, expected = SimulatedDisk(), dict[int, int]()
    disk.make_directory("/data")
    marks = marks_on(disk)
    marks.begin({}, {})
    for number, end in changes:
        marks.advance(key(number), Offset(end))
        expected[number] = end
        if end % 3 == 0:
            marks.save()
        if number == forgotten:
            marks.forget(key(number))
            del expected[number]
    marks.save()
    saved = marks_on(disk).read()
    assert saved.is_complete
    assert saved.ends == {key(number): end for number, end in expected.items()}


def test_a_damaged_mark_is_ignored_and_the_others_are_read() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    marks_on(disk).begin({key(number): Offset(10 + number) for number in range(3)}, {})
    flip(disk, MARKS, 96 + 32 + 5)
    saved = marks_on(disk).read()
    assert set(saved.ends) == {key(0), key(2)}
    assert (saved.damage, saved.is_complete) == ("1 marks are damaged", False)


def test_marks_of_another_directory_or_with_a_damaged_head_are_not_used() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    marks_on(disk).begin({key(0): Offset(1)}, {})
    assert marks_on(disk, directory=8).read() == NO_MARKS._replace(damage="the file is from another directory")
    flip(disk, MARKS, 30)
    assert marks_on(disk).read() == NO_MARKS._replace(damage="the head is damaged")


@pytest.mark.parametrize("damage", [shorten, delete])
def test_a_damaged_log_that_begins_above_its_checkpoint_is_quarantined(damage: Damage) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), ROOMY)
        for number in range(COUNT):
            await append_durably(store, log, [b"%d" % number])
            if number == COUNT // 2:
                await store.checkpoint()
        await store.move_start(log, Offset(COUNT - 5))
        path = log.segments[0].path
        kill(disk)
        damage(disk, path, len(disk.contents(path)) // 2)
        assert (await reopened(disk)).health.quarantined is not None

    run(check())


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_start_snapshot_does_not_undo_a_deletion_of_records(damage: Damage) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk)
        store = await restarted(disk)
        await store.move_start(logs_of(store)[0], Offset(15))
        for _ in range(2):
            snapshot = f"{log.path}/start.snapshot"
            if disk.exists(snapshot):
                damage(disk, snapshot, 20)
            found = logs_of(await restarted(disk))[0]
            assert (found.start_offset, found.end_offset) == (15, COUNT)

    run(check())


async def restarted(disk: SimulatedDisk) -> LogStore:
    kill(disk)
    return await open_store(disk)
