"""Checks that checkpoints limit recovery, make files removable, and survive interruptions."""

import asyncio
from uuid import UUID

import pytest

from builders.logs import SMALL, append, append_durably, commit, key, logs_of, open_store, run, values_of
from millstream.model.ids import Offset
from millstream.storage.flush import checkpoint
from millstream.storage.flush.checkpoint import LogState
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.log.segment import SegmentState
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.disk import DiskOperation, SimulatedDisk

OWNER = UUID(int=9)
STATES = [
    LogState(key(0), Offset(0), Offset(0), ()),
    LogState(
        key(1),
        Offset(5),
        Offset(90),
        (
            SegmentState(
                base_offset=Offset(0),
                next_offset=Offset(50),
                size_bytes=1234,
                max_timestamp=99,
                max_timestamp_offset=Offset(48),
                created_ms=7,
            ),
            SegmentState(
                base_offset=Offset(50),
                next_offset=Offset(90),
                size_bytes=77,
                max_timestamp=-1,
                max_timestamp_offset=Offset(50),
                created_ms=8,
            ),
        ),
    ),
]


def written(disk: SimulatedDisk, *, is_clean: bool = False) -> None:
    disk.make_directory("/data")
    checkpoint.write(
        disk,
        "/data",
        OWNER,
        is_clean=is_clean,
        first_journal=12,
        has_journal=True,
        logs=map(checkpoint.encode_log, STATES),
    )


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_checkpoint_is_read_back_as_written(is_clean: bool) -> None:
    disk = SimulatedDisk()
    written(disk, is_clean=is_clean)
    disk.power_loss()
    found = checkpoint.read(disk, "/data", OWNER)
    assert found is not None
    assert (found.is_clean, found.first_journal) == (is_clean, 12)
    assert list(found.logs.values()) == STATES


def test_the_clean_shutdown_mark_is_removed_at_start() -> None:
    disk = SimulatedDisk()
    written(disk, is_clean=True)
    checkpoint.begin(disk, "/data")
    found = checkpoint.read(disk, "/data", OWNER)
    assert found is not None
    assert not found.is_clean


def test_a_checkpoint_from_another_directory_is_ignored() -> None:
    disk = SimulatedDisk()
    written(disk)
    assert checkpoint.read(disk, "/data", UUID(int=1)) is None
    assert checkpoint.read(disk, "/elsewhere", OWNER) is None


@pytest.mark.parametrize("policy", list(FlushPolicy))
def test_checkpoints_are_written_periodically(policy: FlushPolicy) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk, policy=policy)
        log = await store.create(key(0), SMALL)
        for _ in range(60):
            append(log, [b"value"])
            await asyncio.sleep(1)
        found = checkpoint.read(disk, "/data", next(iter(store._directories)).id)
        assert found is not None
        assert found.logs[key(0)].end_offset >= (20 if policy is FlushPolicy.OS else 25)

    run(check())


@pytest.mark.parametrize("policy", [FlushPolicy.ALWAYS, FlushPolicy.INTERVAL])
def test_a_checkpoint_is_written_early_when_much_is_appended(
    policy: FlushPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.storage.flush.uncheckpointed_tails.TAIL_BYTES_MAX", 5_000)

    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk, policy=policy)
        log = await store.create(key(0), LogSettings())
        await asyncio.sleep(1.5)
        await append_durably(store, log, [b"." * 6_000])
        await asyncio.sleep(1.5)
        await append_durably(store, log, [b"." * 1_000])
        await asyncio.sleep(1.5)
        found = checkpoint.read(disk, "/data", next(iter(store._directories)).id)
        assert found is not None
        assert found.logs[key(0)].end_offset == 1

    run(check())


def test_recovery_reads_only_what_came_after_the_checkpoint() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        for number in range(50):
            log = await store.create(key(number), SMALL)
            append(log, [b"x" * 100] * 50, batches=50)
        await store.checkpoint()
        await append_durably(store, log, [b"new"])
        disk.power_loss()
        disk.counts.clear()
        store = await open_store(disk)
        assert disk.counts["read"] < 20, "forty-nine logs are as the checkpoint has them"
        assert sorted(one.end_offset for one in logs_of(store)) == [50] * 49 + [51]

    run(check())


def test_a_checkpoint_continues_after_its_caller_is_cancelled() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        logs = [await store.create(key(number), SMALL) for number in range(3)]
        for round_number in range(40):
            for log in logs:
                append(log, [b"%d" % round_number])
            await asyncio.gather(*(one for one in map(commit, logs) if one is not None))
            task = asyncio.get_running_loop().create_task(store.checkpoint())
            for _ in range(round_number):
                await asyncio.sleep(0.0001)
            task.cancel()
        disk.power_loss()
        store = await open_store(disk)
        assert [len(values_of(log)) for log in logs_of(store)] == [40] * 3

    run(check())


def test_a_failed_append_does_not_fail_earlier_appends() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), SMALL)
        append(log, [b"good"])
        committed = commit(log)
        assert committed is not None
        disk.is_full = True
        with pytest.raises(Exception, match="no space"):
            append(log, [b"bad"])
        await committed
        assert log.flushed_offset == 1
        disk.power_loss()
        disk.is_full = False
        store = await open_store(disk)
        assert values_of(logs_of(store)[0]) == {0: b"good"}

    run(check())


def test_a_full_journal_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.storage.data_directory.JOURNAL_FULL_BYTES", 20_000)

    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        logs = [await store.create(key(number), SMALL) for number in range(4)]
        for log in logs:
            await append_durably(store, log, [b"first"])
        largest = 0

        def before(operation: DiskOperation) -> None:
            nonlocal largest
            if operation.kind == "flush" and "journal" in operation.path:
                largest = max(largest, len(disk.contents(operation.path)))

        disk.before = before
        for _ in range(300):
            for log in logs:
                append(log, [b"x" * 100])
            await asyncio.gather(*(one for one in map(commit, logs) if one is not None))
        assert 20_000 < largest < 100_000

    run(check())
