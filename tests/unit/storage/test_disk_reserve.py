"""Checks that a full disk can be emptied: the reserve is released for deletions, and restored when there is space."""

import asyncio
from random import Random

import pytest

from builders.logs import SMALL, append, append_durably, key, logs_of, open_store, run, values_of
from millstream.model.errors import ErrorCode, MillstreamError, StorageError
from millstream.model.ids import Offset
from millstream.seams.disk import Space
from millstream.storage.disk_reserve import RESERVE_BYTES, DiskLimits
from millstream.storage.log.log import Log
from millstream.storage.store import LogStore
from millstream.testing.simulated.disk import SimulatedDisk

CAPACITY = 200_000
LIMITS = DiskLimits(reserve_bytes=4_000, low_bytes=10_000)
RESERVE = "/data/reserve"


async def opened(disk: SimulatedDisk) -> tuple[LogStore, Log]:
    store = await open_store(disk, disk_limits=LIMITS)
    log = store.get(key(0)) or await store.create(key(0), SMALL)
    log.configure(SMALL)
    return store, log


async def fill(store: LogStore, log: Log) -> int:
    """Append until the disk is full, and return the number of acknowledged batches."""
    count = int(log.end_offset)
    while True:
        try:
            await append_durably(store, log, [(b"%d " % count).ljust(900, b".")])
        except StorageError:
            return count
        count += 1


def small_disk() -> SimulatedDisk:
    disk = SimulatedDisk(Random(1))
    disk.capacity_bytes = CAPACITY
    return disk


def refusal(log: Log) -> str:
    with pytest.raises(MillstreamError) as error:
        append(log, [b"refused"])
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return error.value.detail


def test_retention_empties_a_full_disk_and_writes_continue() -> None:
    async def check() -> None:
        disk = small_disk()
        store, log = await opened(disk)
        for _ in range(5):
            count = await fill(store, log)
            await asyncio.sleep(20)  # A failed write is repaired in the background.
            log.trim(Offset(count - 5))
            await asyncio.sleep(60)
            assert disk.exists(RESERVE)
            assert list(values_of(log)) == list(range(count - 5, count))
            await append_durably(store, log, [b"after"])

    run(check())


def test_writes_are_refused_while_the_reserve_is_released() -> None:
    async def check() -> None:
        disk = small_disk()
        store, log = await opened(disk)
        count = await fill(store, log)
        await asyncio.sleep(20)
        assert await store.make_room()
        assert not await store.make_room(), "it can be released only once"
        assert "the disk is full" in refusal(log)
        await asyncio.sleep(100)
        assert "the disk is full" in refusal(log)
        assert len(values_of(log)) == count
        log.trim(log.end_offset)
        await asyncio.sleep(60)
        await append_durably(store, log, [b"after"])

    run(check())


@pytest.mark.parametrize("clean", [True, False])
def test_a_store_starts_on_a_full_disk_and_accepts_deletions(clean: bool) -> None:
    disk = small_disk()

    async def first_life() -> int:
        store, log = await opened(disk)
        count = await fill(store, log)
        if clean:
            await store.close()
        disk.locks.clear()
        return count

    async def second_life(count: int) -> None:
        store, log = await opened(disk)
        assert len(values_of(log)) == count
        assert "the disk is full" in refusal(log)
        await store.move_start(log, Offset(count))
        await asyncio.sleep(60)
        await append_durably(store, log, [b"after"])
        await store.delete(log.key)

    run(second_life(run(first_life())))
    assert run(open_and_list(disk)) == []


async def open_and_list(disk: SimulatedDisk) -> list[Log]:
    disk.locks.clear()
    return logs_of(await open_store(disk, disk_limits=LIMITS))


def test_a_deletion_succeeds_on_a_full_disk() -> None:
    async def check() -> None:
        disk = small_disk()
        store, log = await opened(disk)
        other = await store.create(key(1), SMALL)
        await append_durably(store, other, [b"kept"])
        await fill(store, log)
        disk.capacity_bytes -= disk.space("/data").free_bytes
        await store.delete(log.key)
        await asyncio.sleep(60)
        assert disk.exists(RESERVE)
        await append_durably(store, other, [b"after"])

    run(check())


def test_a_disk_without_room_for_the_reserve_refuses_writes_until_there_is_some() -> None:
    async def check() -> None:
        disk = small_disk()
        store, log = await opened(disk)
        await append_durably(store, log, [b"one"])
        await store.close()
        disk.remove(RESERVE)
        disk.capacity_bytes -= disk.space("/data").free_bytes - 10
        store, log = await opened(disk)
        assert "the disk is full" in refusal(log)
        disk.capacity_bytes = CAPACITY
        await asyncio.sleep(5)
        await append_durably(store, log, [b"two"])

    run(check())


def test_little_free_space_is_reported_before_the_disk_is_full() -> None:
    async def check() -> None:
        disk = small_disk()
        store, log = await opened(disk)
        (reserve,) = store.reserves
        assert (reserve.is_low, reserve.is_released) == (False, False)
        while disk.space("/data").free_bytes > LIMITS.low_bytes - 2_000:
            await append_durably(store, log, [b"." * 900])
        reserve.measure()
        assert (reserve.is_low, reserve.is_released) == (True, False)

    run(check())


def test_the_free_space_is_measured_at_the_first_write_that_fails() -> None:
    async def check() -> None:
        disk = small_disk()
        store, log = await opened(disk)
        (reserve,) = store.reserves
        await append_durably(store, log, [b"one"])
        disk.capacity_bytes -= disk.space("/data").free_bytes
        assert not reserve.is_low, "the last measurement is from the start"
        assert "no space left" in refusal(log)
        assert reserve.space is not None
        assert (reserve.is_low, reserve.space.free_bytes <= 0) == (True, True)

    run(check())


@pytest.mark.parametrize(
    ("configured", "total", "expected"),
    [
        (RESERVE_BYTES, 50 * 2**30, RESERVE_BYTES),
        (RESERVE_BYTES, 24 * 2**20, 24 * 2**20 // 50),
        (2 * RESERVE_BYTES, 24 * 2**20, 2 * RESERVE_BYTES),
        (0, 50 * 2**30, 0),
    ],
)
def test_the_size_of_the_reserve_follows_the_volume_up_to_the_default(
    configured: int, total: int, expected: int
) -> None:
    assert DiskLimits(reserve_bytes=configured).reserve_of(Space(total, total)) == expected
