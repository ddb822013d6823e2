"""Checks that a store recovers its logs from all directories, and detects a missing directory."""

import asyncio

import pytest

from builders.logs import SMALL, append, append_durably, commit, key, logs_of, open_store, read_cold, run, values_of
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.disk import SimulatedDisk

TWO = ("/disk1/data", "/disk2/data")


def test_a_clean_restart_recovers_all_logs_with_few_reads() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk, *TWO)
        for number in range(100):
            log = await store.create(key(number), SMALL)
            append(log, [b"%d" % number] * 40, batches=40)
        await store.close()
        assert disk.locks == set()
        disk.counts.clear()
        store = await open_store(disk, *TWO)
        assert disk.counts["read"] <= 10
        assert disk.counts["list"] <= 4
        assert disk.counts["open"] <= 20
        assert len(store.keys()) == 100
        for log in logs_of(store):
            assert set(values_of(log).values()) == {b"%d" % log.key.partition}
            assert log.end_offset == log.flushed_offset == 40

    run(check())


def test_ten_thousand_logs_need_few_open_files_and_no_scan_to_start() -> None:
    count = 10_000

    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk, policy=FlushPolicy.OS, open_files_max=100)
        for number in range(count):
            append(await store.create(key(number), SMALL), [b"value"])
        assert disk.open_count <= 110
        await store.close()
        disk.counts.clear()
        store = await open_store(disk, policy=FlushPolicy.OS, open_files_max=100)
        assert disk.counts["open"] < 50
        for number in range(0, count, 7):
            log = store.get(key(number))
            assert log is not None
            assert read_cold(log, Offset(0), max_bytes=100, end_offset=Offset(1))
            append(log, [b"more"])
        assert disk.open_count <= 110
        await store.close()

    run(check())


@pytest.mark.parametrize("policy", [FlushPolicy.ALWAYS, FlushPolicy.INTERVAL])
def test_files_closed_before_their_flush_are_still_flushed(policy: FlushPolicy) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk, policy=policy, open_files_max=8)
        logs = [await store.create(key(number), SMALL) for number in range(60)]
        for log in logs:
            append(log, [b"value"])
        assert disk.open_count <= 10
        waiting = [commit(log) for log in logs]
        await asyncio.gather(*(one for one in waiting if one is not None))
        await store.checkpoint()
        assert all(log.flushed_offset == 1 for log in logs)
        disk.power_loss()
        store = await open_store(disk)
        assert all(values_of(log) == {0: b"value"} for log in logs_of(store))

    run(check())


def test_a_deleted_log_stays_deleted_and_its_key_is_reusable() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        for number in range(2):
            await append_durably(store, await store.create(key(number), SMALL), [b"old"] * 5)
        waiting = []
        for log in logs_of(store):
            append(log, [b"old too"])
            waiting.append(commit(log))
        await asyncio.gather(*(one for one in waiting if one is not None))
        await store.delete(key(0))
        await store.delete(key(0))
        assert store.get(key(0)) is None
        log = await store.create(key(0), SMALL)
        assert log.end_offset == 0
        await append_durably(store, log, [b"new"])
        disk.power_loss()
        store = await open_store(disk)
        by_number = {log.key.partition: values_of(log) for log in logs_of(store)}
        assert by_number[0] == {0: b"new"}
        assert len(by_number[1]) == 6

    run(check())


def test_a_deleted_log_leaves_no_files() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), SMALL)
        await append_durably(store, log, [b"value"])
        await store.delete(key(0))
        with pytest.raises(MillstreamError):
            append(log, [b"too late"])
        await store.checkpoint()
        assert [name for name in disk.list("/data") if name.startswith(key(0).topic_id.hex)] == []

    run(check())


def test_a_log_is_not_created_twice() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk())
        await store.create(key(0), SMALL)
        with pytest.raises(MillstreamError, match="already exists"):
            await store.create(key(0), SMALL)

    run(check())


def test_logs_are_distributed_over_the_directories() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk(), *TWO)
        for number in range(10):
            await store.create(key(number), SMALL)
        homes = [log.path.rsplit("/", 1)[0] for log in logs_of(store)]
        assert homes.count(TWO[0]) == homes.count(TWO[1]) == 5

    run(check())


async def refused(disk: SimulatedDisk, *directories: str) -> ErrorCode:
    with pytest.raises(MillstreamError) as error:
        await open_store(disk, *directories)
    return error.value.code


def test_a_missing_or_foreign_directory_is_refused() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        await (await open_store(disk, *TWO)).close()
        await (await open_store(disk, "/other")).close()
        assert await refused(disk, TWO[0]) is ErrorCode.DATA_DIRECTORY_MISSING
        assert await refused(disk, TWO[0], "/not mounted") is ErrorCode.DATA_DIRECTORY_MISSING
        disk.spoil(f"{TWO[0]}/directory-id", 30, b"\xff\xff")
        assert await refused(disk, *TWO) is ErrorCode.DATA_DIRECTORY_MISSING
        assert disk.locks == set(), "what was refused lets go of the locks"

    run(check())


def test_a_directory_with_an_unknown_file_magic_is_refused_unchanged() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        await (await open_store(disk)).close()
        disk.spoil("/data/directory-id", 0, b"OTHER")
        before = disk.open("/data/directory-id").read(1000, position=0)
        with pytest.raises(MillstreamError, match="unknown file magic") as error:
            await open_store(disk)
        assert error.value.code is ErrorCode.DATA_DIRECTORY_MISSING
        assert disk.open("/data/directory-id").read(1000, position=0) == before

    run(check())


def test_a_directory_can_be_added_and_the_order_does_not_matter() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk, TWO[0])
        await append_durably(store, await store.create(key(0), SMALL), [b"value"])
        await store.close()
        await (await open_store(disk, *TWO)).close()
        store = await open_store(disk, *reversed(TWO))
        assert values_of(logs_of(store)[0]) == {0: b"value"}
        assert await refused(disk, TWO[0]) is ErrorCode.DATA_DIRECTORY_IN_USE

    run(check())


def test_a_missing_log_directory_is_not_created_again() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk)
        log = await store.create(key(0), SMALL)
        await append_durably(store, log, [b"value"])
        await store.close()
        disk.rename(log.path, "/data/moved away")
        store = await open_store(disk)
        log = logs_of(store)[0]
        assert log.health.quarantined is not None
        assert "missing" in log.health.quarantined
        with pytest.raises(MillstreamError, match="already exists"):
            await store.create(key(0), SMALL)

    run(check())
