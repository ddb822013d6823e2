"""Checks that reads are correct even if the index file is missing, damaged or wrong."""

from random import Random

import pytest

from builders.logs import append, key, logs_of, open_store, read, read_cold, run, values_of
from millstream.model.ids import Offset
from millstream.storage.log import sparse_index
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.log.sparse_index import BatchPosition, SparseIndex
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.disk import SimulatedDisk

FINE = LogSettings(segment_bytes=4000, index_interval_bytes=128)


def example() -> SparseIndex:
    """Ten batches of ten offsets and a hundred bytes from offset 1000; times 5, 4, 15, 14, 25, …"""
    made = SparseIndex(Offset(1000), start=0, interval_bytes=100)
    times = [10 * (n // 2) + 5 - n % 2 for n in range(10)]
    for number in range(10):
        made.add(Offset(1000 + 10 * number), position=100 * number, time_before=max(times[:number], default=-1))
    return made


@pytest.mark.parametrize(
    ("offset", "expected"), [(1000, 0), (1009, 0), (1010, 100), (1055, 500), (1099, 900), (5000, 900)]
)
def test_an_offset_is_found_at_the_last_batch_that_begins_before_it(offset: int, expected: int) -> None:
    assert example().last_at_offset(Offset(offset)) == BatchPosition(Offset(1000 + expected // 10), expected)


@pytest.mark.parametrize(("position", "expected"), [(0, 0), (99, 0), (100, 100), (950, 900)])
def test_a_position_is_found_at_the_last_batch_at_or_before_it(position: int, expected: int) -> None:
    assert example().last_at_position(position) == BatchPosition(Offset(1000 + expected // 10), expected)


@pytest.mark.parametrize(("time", "expected"), [(0, 0), (5, 0), (6, 200), (15, 200), (16, 400), (99, 900)])
def test_a_time_lookup_finds_the_last_entry_that_only_older_batches_precede(time: int, expected: int) -> None:
    assert example().last_before_time(time) == BatchPosition(Offset(1000 + expected // 10), expected)


def test_an_index_file_is_read_back_with_all_entries() -> None:
    data = example().encode(1000)
    assert data is not None
    decoded = sparse_index.decode(data, 1000)
    assert decoded is not None
    entries, covered = decoded
    assert covered == 1000
    again = SparseIndex(Offset(1000), start=1000, interval_bytes=100)
    assert again.last_at_offset(Offset(1055)) is None
    again.install(entries)
    for offset in range(1000, 1100, 7):
        assert again.last_at_offset(Offset(offset)) == example().last_at_offset(Offset(offset))


def test_a_foreign_or_damaged_index_file_is_ignored() -> None:
    data = example().encode(1000)
    assert data is not None
    assert sparse_index.decode(data, 0) is None
    assert sparse_index.decode(data[:-1], 1000) is None
    assert sparse_index.decode(b"", 1000) is None


async def filled(disk: SimulatedDisk) -> Log:
    """A closed store with a log of several segments."""
    store = await open_store(disk, policy=FlushPolicy.OS)
    log = await store.create(key(0), FINE)
    for number in range(150):
        append(log, [b"%d" % number], timestamp=number)
    await store.close()
    return log


def check_all(log: Log) -> None:
    for offset in Random(1).sample(range(150), 150):
        data = read(log, offset, 200, 150)
        if data is None:
            data = read_cold(log, Offset(offset), max_bytes=200, end_offset=Offset(150))
        assert data[:8] == offset.to_bytes(8, "big")
    assert log.scan.offset_for_time(77) == (77, 77)
    assert [int(value) for value in values_of(log).values()] == list(range(150))


def index_files(disk: SimulatedDisk, log: Log) -> list[str]:
    return [f"{log.path}/{name}" for name in disk.list(log.path) if name.endswith(".index")]


def test_the_index_of_a_closed_log_is_saved_and_used() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk)
        assert len(index_files(disk, log)) == len(log.segments) > 2
        store = await open_store(disk, policy=FlushPolicy.OS)
        log = logs_of(store)[0]
        disk.counts.clear()
        read_cold(log, Offset(10), max_bytes=100, end_offset=Offset(150))
        assert disk.counts["read"] <= 5
        check_all(log)

    run(check())


@pytest.mark.parametrize("damage", ["missing", "cut", "garbage", "another segment's", "shifted"])
def test_a_missing_damaged_or_wrong_index_is_rebuilt(damage: str) -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk)
        files = index_files(disk, log)
        for number, path in enumerate(files):
            if damage == "missing":
                disk.remove(path)
            elif damage == "cut":
                disk.cut(path, 60)
            elif damage == "garbage":
                disk.spoil(path, 40, b"\xff" * 20)
            elif damage == "another segment's":
                disk.spoil(path, 0, disk.contents(files[number - 1]))
            else:
                lie(disk, path, log.segments[number].base_offset)
        store = await open_store(disk, policy=FlushPolicy.OS)
        check_all(logs_of(store)[0])

    run(check())


def lie(disk: SimulatedDisk, path: str, base_offset: int) -> None:
    """An index with a right checksum, whose positions are wrong."""
    decoded = sparse_index.decode(disk.contents(path), base_offset)
    assert decoded is not None
    entries, covered = decoded
    liar = SparseIndex(Offset(base_offset), start=0, interval_bytes=1)
    for offset, position, time in zip(*entries, strict=True):
        liar.add(Offset(offset), position=position + 7, time_before=time)
    data = liar.encode(covered)
    assert data is not None
    disk.cut(path, 0)
    disk.spoil(path, 0, data)


def test_appends_after_a_restart_do_not_read_the_index() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        await filled(disk)
        store = await open_store(disk, policy=FlushPolicy.OS)
        log = logs_of(store)[0]
        log.configure(FINE)
        disk.counts.clear()
        append(log, [b"150"])
        assert disk.counts["read"] == disk.counts["read cached"] == 0
        await store.close()
        store = await open_store(disk, policy=FlushPolicy.OS)
        assert [int(value) for value in values_of(logs_of(store)[0]).values()] == list(range(151))

    run(check())
