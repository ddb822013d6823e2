"""Checks that offsets are found by time, exact to the record."""

from collections.abc import Callable
from random import Random

import pytest

from builders.logs import SMALL, key, open_store, run
from millstream.model.ids import Offset
from millstream.records.batch import encode_batch, seal
from millstream.records.header import HEADER_BYTES, each_batch, read_header, stamp
from millstream.storage.log.log import Log
from millstream.storage.log.log_scan import OPENED_BYTES_MAX
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.disk import SimulatedDisk


def put(log: Log, times: list[int], compression: str) -> None:
    batch = bytearray(encode_batch([b"v"] * len(times), timestamps=times, compression=compression))
    stamp(batch, base_offset=log.end_offset, leader_epoch=0)
    log.append_run(memoryview(batch), [header for _, header in each_batch(batch)])


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_first_record_at_or_after_a_time_is_found(compression: str, restarted: bool) -> None:
    random = Random(4)
    times = [100 * n + random.randrange(-400, 400) for n in range(200)]
    disk = SimulatedDisk(Random(5))

    async def fill() -> None:
        store = await open_store(disk, policy=FlushPolicy.OS)
        log = await store.create(key(0), SMALL)
        for first in range(0, 200, 4):
            put(log, times[first : first + 4], compression)
        if restarted:
            await store.close()
        else:
            check(log)

    async def look() -> None:
        store = await open_store(disk, policy=FlushPolicy.OS)
        log = store.get(key(0))
        assert log is not None
        check(log)

    def check(log: Log) -> None:
        assert len(log.segments) > 2
        for wanted in range(-500, 20_600, 97):
            expected = next(((o, t) for o, t in enumerate(times) if t >= wanted), None)
            assert log.scan.offset_for_time(wanted) == expected
        latest = max(times)
        assert log.scan.max_timestamp() == (latest, times.index(latest))

    run(fill())
    if restarted:
        run(look())


def test_the_largest_timestamp_ignores_trimmed_records() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk(), policy=FlushPolicy.OS)
        log = await store.create(key(0), SMALL)
        put(log, [10, 90, 30], "none")
        put(log, [40, 70, 60], "none")
        assert log.scan.max_timestamp() == (90, 1)
        log.trim(Offset(3))
        assert log.scan.max_timestamp() == (70, 4)

    run(check())


def test_the_timestamp_of_a_lost_batch_is_forgotten() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk, policy=FlushPolicy.OS)
        log = await store.create(key(0), SMALL)
        put(log, [10], "none")
        await store.checkpoint()
        disk.cut(log.segments[0].path, 0)
        disk.power_loss()
        store = await open_store(disk, policy=FlushPolicy.OS)
        found = store.get(key(0))
        assert found is not None
        assert found.scan.max_timestamp() == (-1, -1)
        put(found, [5], "none")
        assert found.scan.max_timestamp() == (5, 0)

    run(check())


def test_trimmed_records_are_not_found_by_time() -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk(), policy=FlushPolicy.OS)
        log = await store.create(key(0), SMALL)
        assert log.scan.max_timestamp() == (-1, -1)
        assert log.scan.offset_for_time(0) is None
        put(log, [10, 20, 30], "none")
        put(log, [40, 50, 60], "none")
        log.trim(Offset(1))
        assert log.scan.offset_for_time(0) == (1, 20)
        log.trim(Offset(4))
        assert log.scan.offset_for_time(0) == (4, 50)
        assert log.scan.max_timestamp() == (60, 5)
        assert log.scan.offset_for_time(61) is None

    run(check())


def garbage(times: list[int]) -> bytearray:
    """Make a batch with a valid checksum and invalid compressed records, as any producer may send it."""
    header = read_header(encode_batch([b"v"] * len(times), timestamps=times))
    return seal(bytearray(HEADER_BYTES) + b"\xff" * 50, header)


def bomb(times: list[int]) -> bytearray:
    """Make a batch of highly compressible large records."""
    values = [bytes(OPENED_BYTES_MAX // 2)] * len(times)
    return bytearray(encode_batch(values, timestamps=times, compression="zstd"))


@pytest.mark.parametrize("make", [garbage, bomb])
def test_a_time_in_an_undecodable_batch_is_found_at_its_first_offset(make: Callable[[list[int]], bytearray]) -> None:
    async def check() -> None:
        store = await open_store(SimulatedDisk(), policy=FlushPolicy.OS)
        log = await store.create(key(0), SMALL)
        put(log, [10, 20], "none")
        batch = make([30, 40, 50])
        stamp(batch, base_offset=log.end_offset, leader_epoch=0)
        log.append_run(memoryview(batch), [header for _, header in each_batch(batch)])
        assert log.scan.offset_for_time(20) == (1, 20)
        assert log.scan.offset_for_time(45) == (2, 50)
        assert log.scan.max_timestamp() == (50, 4)
        put(log, [60], "none")
        log.trim(Offset(3))
        assert log.scan.offset_for_time(0) == (3, 50)
        assert log.scan.offset_for_time(51) == (5, 60)

    run(check())
