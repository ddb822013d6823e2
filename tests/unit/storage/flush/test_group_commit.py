"""One flush serves all who wait for one."""

import asyncio
import errno

import pytest

from builders.logs import SMALL, append, append_durably, key, logs_of, open_store, run, values_of
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.storage.flush.flush_round import FlushRound
from millstream.storage.log.log import Log, LogSettings
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.disk import DiskOperation, SimulatedDisk

ROOMY = LogSettings()


async def opened(
    disk: SimulatedDisk, count: int, policy: FlushPolicy = FlushPolicy.ALWAYS
) -> tuple[LogStore, list[Log]]:
    """A store with so many logs that have been written to before."""
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
        committed = store.commit(log)
        assert committed is not None
        waiting.append(committed)
    await asyncio.gather(*waiting)


def flushed_paths(disk: SimulatedDisk) -> list[str]:
    """From now on, collects the files that are flushed."""
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
        assert all(log.durable_offset == log.end_offset == 2 for log in logs)
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


def test_many_bytes_are_flushed_in_place() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, logs = await opened(disk, 3)
        paths = flushed_paths(disk)
        await append_to_all(store, logs, 100_000)
        assert sorted(paths) == [log.segments[0].path for log in logs]

    run(check())


def test_writers_that_come_during_a_flush_share_the_next_one() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, (log,) = await opened(disk, 1)
        paths = flushed_paths(disk)
        append(log, [b"early"])
        first = store.commit(log)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = []
        for _ in range(20):
            append(log, [b"late"])
            later.append(store.commit(log))
        assert first is not None
        await first
        assert log.durable_offset == 2
        await asyncio.gather(*(future for future in later if future is not None))
        assert log.durable_offset == log.end_offset == 22
        assert len(paths) == 2

    run(check())


def test_the_end_is_durable_before_anybody_is_told() -> None:
    async def check() -> None:
        store, (log,) = await opened(SimulatedDisk(), 1)
        seen: list[tuple[str, int]] = []
        log.on_durable = lambda one: seen.append(("durable", one.durable_offset))
        append(log, [b"value"])
        committed = store.commit(log)
        assert committed is not None
        committed.then(lambda _: seen.append(("told", log.durable_offset)))
        await committed
        assert seen == [("durable", 2), ("told", 2)]
        assert store.commit(log) is None

    run(check())


def test_one_who_stops_waiting_does_not_disturb_the_others() -> None:
    async def check() -> None:
        store, (log,) = await opened(SimulatedDisk(), 1)
        append(log, [b"value"])
        committed = store.commit(log)
        assert committed is not None
        assert store.commit(log) is committed, "those of one round wait for the same"

        async def wait() -> None:
            await committed

        impatient, patient = asyncio.ensure_future(wait()), asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        impatient.cancel()
        await patient
        assert impatient.cancelled()

    run(check())


def test_a_fault_of_one_who_waits_is_told_and_does_not_reach_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        store, (log,) = await opened(SimulatedDisk(), 1)
        append(log, [b"value"])
        committed = store.commit(log)
        assert committed is not None

        def stumble(_: FlushRound) -> None:
            raise ValueError("a fault in the test")

        committed.then(stumble)
        await committed
        seen: list[FlushRound] = []
        committed.then(seen.append)
        assert seen == [committed], "who comes when it is over is told at once"
        assert "a fault in the test" in caplog.text

    run(check())


def test_a_journal_that_fails_is_left_alone_and_the_segments_are_flushed() -> None:
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


def test_a_failed_flush_fails_its_waiters_only() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, (good, bad) = await opened(disk, 2)

        def before(operation: DiskOperation) -> None:
            if operation.kind == "flush" and operation.path == bad.segments[0].path:
                raise OSError(errno.EIO, "no", operation.path)

        disk.before = before
        for log in (good, bad):
            append(log, [b"x" * 100_000])
        waiting = [store.commit(good), store.commit(bad)]
        outcome = await asyncio.gather(*(one for one in waiting if one is not None), return_exceptions=True)
        assert outcome[0] is None
        assert isinstance(outcome[1], MillstreamError)
        assert outcome[1].code is ErrorCode.KAFKA_STORAGE_ERROR
        assert good.durable_offset == 2

    run(check())


@pytest.mark.parametrize("policy", [FlushPolicy.INTERVAL, FlushPolicy.OS])
def test_the_weaker_policies_wait_for_nothing(policy: FlushPolicy) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, (log,) = await opened(disk, 1, policy)
        append(log, [b"value"])
        assert store.commit(log) is None
        assert not disk.counts["flush"]
        await asyncio.sleep(5)
        assert (log.durable_offset == log.end_offset) == (policy is FlushPolicy.INTERVAL)
        await store.close()
        disk.power_loss()
        store = await open_store(disk)
        assert len(values_of(logs_of(store)[0])) == 2

    run(check())


def test_the_journal_is_cut_when_the_segments_have_been_flushed() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, logs = await opened(disk, 5)
        for log in logs:
            log.settings = SMALL
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


def test_whoever_appends_again_when_a_broken_log_refuses_them_shares_the_next_round() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store, (broken, other, third) = await opened(disk, 3)
        append(broken, [b"refused"])
        append(other, [b"kept"])
        refused, kept = store.commit(broken), store.commit(other)
        assert refused is not None
        assert kept is not None
        again: list[FlushRound | None] = []

        def append_again(_: FlushRound) -> None:
            append(third, [b"from within"])
            again.append(store.commit(third))

        refused.then(append_again)
        broken.fence("broken")
        await kept
        assert again[0] is not None
        await again[0]
        await append_to_all(store, [other, third])
        assert other.durable_offset == other.end_offset == 3
        assert third.durable_offset == third.end_offset == 3

    run(check())
