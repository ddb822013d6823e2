"""Checks that one flush serves all writers that wait for one."""

import asyncio
import errno

import pytest

from builders.logs import SMALL, FlushListener, append, append_durably, commit, key, logs_of, open_store, run, values_of
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.watermark import Acknowledgement
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.disk import DiskOperation, SimulatedDisk

ROOMY = LogSettings()


async def opened(
    disk: SimulatedDisk, count: int, policy: FlushPolicy = FlushPolicy.ALWAYS
) -> tuple[LogStore, list[Log]]:
    """Open a store with `count` logs that have one batch each."""
    store = await open_store(disk, policy=policy, open_files_max=300)
    logs = [await store.create(key(number), ROOMY) for number in range(count)]
    for log in logs:
        await append_durably(store, log, [b"first"])
    disk.counts.clear()
    return store, logs


async def append_to_all(store: LogStore, logs: list[Log], size: int = 10) -> None:
    waiting = []
    for log in logs:
        append(log, [b"x" * size])
        committed = commit(log)
        assert committed is not None
        waiting.append(committed)
    await asyncio.gather(*waiting)


def flushed_paths(disk: SimulatedDisk) -> list[str]:
    """Collect the paths of all files that are flushed from now on."""
    seen: list[str] = []

    def before(operation: DiskOperation) -> None:
        if operation.kind == "flush":
            seen.append(operation.path)

    disk.before = before
    return seen


@pytest.mark.parametrize("count", [2, 10, 200])
def test_small_appends_to_many_logs_cost_one_flush(count: int) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, logs = await opened(disk, count)
        paths = flushed_paths(disk)
        await append_to_all(store, logs)
        assert len(paths) == 1
        assert "journal" in paths[0]
        assert all(log.flushed_offset == log.end_offset == 2 for log in logs)
        disk.power_loss()
        store = await open_store(disk)
        assert all(values_of(log) == {0: b"first", 1: b"x" * 10} for log in logs_of(store))

    run(check())


def test_one_busy_log_flushes_its_segment_once_for_all_its_writers() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, logs = await opened(disk, 1)
        paths = flushed_paths(disk)
        await append_to_all(store, logs * 50)
        assert paths == [logs[0].segments[0].path]

    run(check())


def test_large_appends_are_flushed_in_their_segments() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, logs = await opened(disk, 3)
        paths = flushed_paths(disk)
        await append_to_all(store, logs, 100_000)
        assert sorted(paths) == [log.segments[0].path for log in logs]

    run(check())


def test_appends_during_a_flush_share_the_next_flush() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        _store, (log,) = await opened(disk, 1)
        paths = flushed_paths(disk)
        append(log, [b"early"])
        first = commit(log)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = []
        for _ in range(20):
            append(log, [b"late"])
            later.append(commit(log))
        assert first is not None
        await first
        assert log.flushed_offset == 2
        await asyncio.gather(*(future for future in later if future is not None))
        assert log.flushed_offset == log.end_offset == 22
        assert len(paths) == 2

    run(check())


def test_the_flushed_offset_increases_before_the_listener_is_notified() -> None:
    async def check() -> None:
        _store, (log,) = await opened(SimulatedDisk(), 1)
        listener = FlushListener(log)
        append(log, [b"value"])
        committed = commit(log)
        assert committed is not None
        seen: list[int] = []
        committed.then(lambda _: seen.append(log.flushed_offset))
        await committed
        assert seen == [listener.watermark.offset] == [2]
        assert commit(log) is None

    run(check())


def test_segments_are_flushed_directly_after_the_journal_failed() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, logs = await opened(disk, 3)

        def before(operation: DiskOperation) -> None:
            if "journal" in operation.path and operation.kind == "flush":
                raise OSError(errno.EIO, "no", operation.path)

        disk.before = before
        await append_to_all(store, logs)
        paths = flushed_paths(disk)
        await append_to_all(store, logs)
        assert not [path for path in paths if "journal" in path]
        await store.checkpoint()
        paths = flushed_paths(disk)
        await append_to_all(store, logs)
        assert len(paths) == 1, "a new journal serves again"
        disk.power_loss()
        disk.before = None
        store = await open_store(disk)
        assert all(len(values_of(log)) == 4 for log in logs_of(store))

    run(check())


def test_a_failed_flush_fails_only_the_writers_of_its_log() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        _store, (good, bad) = await opened(disk, 2)

        def before(operation: DiskOperation) -> None:
            if operation.kind == "flush" and operation.path == bad.segments[0].path:
                raise OSError(errno.EIO, "no", operation.path)

        disk.before = before
        for log in (good, bad):
            append(log, [b"x" * 100_000])
        waiting = [commit(good), commit(bad)]
        outcome = await asyncio.gather(*(one for one in waiting if one is not None), return_exceptions=True)
        assert outcome[0] is None
        assert isinstance(outcome[1], MillstreamError)
        assert outcome[1].code is ErrorCode.KAFKA_STORAGE_ERROR
        assert good.flushed_offset == 2

    run(check())


@pytest.mark.parametrize("policy", [FlushPolicy.INTERVAL, FlushPolicy.OS])
def test_weaker_flush_policies_do_not_wait_for_a_flush(policy: FlushPolicy) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, (log,) = await opened(disk, 1, policy)
        append(log, [b"value"])
        assert commit(log) is None
        assert not disk.counts["flush"]
        await asyncio.sleep(5)
        assert (log.flushed_offset == log.end_offset) == (policy is FlushPolicy.INTERVAL)
        await store.close()
        disk.power_loss()
        store = await open_store(disk)
        assert len(values_of(logs_of(store)[0])) == 2

    run(check())


def test_a_checkpoint_removes_old_journals() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, logs = await opened(disk, 5)
        for log in logs:
            log.configure(SMALL)
        for _ in range(30):
            await append_to_all(store, logs)
        before = sum(len(disk.contents(f"/data/{name}")) for name in disk.list("/data") if "journal" in name)
        await store.checkpoint()
        journals = [name for name in disk.list("/data") if "journal" in name]
        assert len(journals) == 1
        assert len(disk.contents(f"/data/{journals[0]}")) < before / 10
        disk.power_loss()
        store = await open_store(disk)
        assert all(len(values_of(log)) == 31 for log in logs_of(store))

    run(check())


def test_an_append_from_a_failure_callback_joins_the_next_round() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, (broken, other, third) = await opened(disk, 3)
        append(broken, [b"refused"])
        append(other, [b"kept"])
        refused, kept = commit(broken), commit(other)
        assert refused is not None
        assert kept is not None
        again: list[Acknowledgement | None] = []

        def append_again(_: Acknowledgement) -> None:
            append(third, [b"from within"])
            again.append(commit(third))

        refused.then(append_again)
        broken.flush_failed(OSError(errno.EIO, "broken"))
        await kept
        assert again[0] is not None
        await again[0]
        await append_to_all(store, [other, third])
        assert other.flushed_offset == other.end_offset == 3
        assert third.flushed_offset == third.end_offset == 3

    run(check())
