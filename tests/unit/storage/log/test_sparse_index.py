"""The index only helps: whatever it says, reads are right."""

from random import Random

import pytest

from builders.logs import append, key, logs_of, open_store, run, values_of
from millstream.storage.log import sparse_index
from millstream.storage.log.log import Log, LogSettings
from millstream.storage.log.sparse_index import BatchPosition, SparseIndex
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.disk import SimulatedDisk

FINE = LogSettings(segment_bytes=4000, index_interval_bytes=128)


def example() -> SparseIndex:
    """Ten batches of ten offsets and a hundred bytes from offset 1000; times 5, 4, 15, 14, 25, …"""
    made = SparseIndex(1000, 0, 100)
    times = [10 * (n // 2) + 5 - n % 2 for n in range(10)]
    for number in range(10):
        made.add(1000 + 10 * number, 100 * number, max(times[:number], default=-1))
    return made


@pytest.mark.parametrize(
    ("offset", "expected"), [(1000, 0), (1009, 0), (1010, 100), (1055, 500), (1099, 900), (5000, 900)]
)
def test_offsets_lead_to_the_last_batch_that_begins_before_them(offset: int, expected: int) -> None:
    assert example().last_at_offset(offset) == BatchPosition(1000 + expected // 10, expected)


@pytest.mark.parametrize(("position", "expected"), [(0, 0), (99, 0), (100, 100), (950, 900)])
def test_positions_lead_to_the_last_batch_at_or_before_them(position: int, expected: int) -> None:
    assert example().last_at_position(position) == BatchPosition(1000 + expected // 10, expected)


@pytest.mark.parametrize(("time", "expected"), [(0, 0), (5, 0), (6, 200), (15, 200), (16, 400), (99, 900)])
def test_times_lead_to_the_last_batch_before_which_none_reaches_them(time: int, expected: int) -> None:
    assert example().last_before_time(time) == BatchPosition(1000 + expected // 10, expected)


def test_the_file_gives_back_all_entries() -> None:
    data = example().encode(1000)
    assert data is not None
    decoded = sparse_index.decode(data, 1000)
    assert decoded is not None
    entries, covered = decoded
    assert covered == 1000
    again = SparseIndex(1000, 1000, 100)
    assert again.last_at_offset(1055) is None
    again.install(entries)
    for offset in range(1000, 1100, 7):
        assert again.last_at_offset(offset) == example().last_at_offset(offset)


def test_a_file_of_another_segment_or_a_damaged_one_is_not_believed() -> None:
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
        data = log.read(offset, 200, 150)
        if data is None:
            data = log.read_cold(offset, 200, 150)
        assert data[:8] == offset.to_bytes(8, "big")
    assert log.offset_for_time(77) == (77, 77)
    assert [int(value) for value in values_of(log).values()] == list(range(150))


def index_files(disk: SimulatedDisk, log: Log) -> list[str]:
    return [f"{log.path}/{name}" for name in disk.list(log.path) if name.endswith(".index")]


def test_a_closed_log_has_its_index_on_disk_and_uses_it() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        log = await filled(disk)
        assert len(index_files(disk, log)) == len(log.segments) > 2
        store = await open_store(disk, policy=FlushPolicy.OS)
        log = logs_of(store)[0]
        disk.counts.clear()
        log.read_cold(10, 100, 150)
        assert disk.counts["read"] <= 5
        check_all(log)

    run(check())


@pytest.mark.parametrize("damage", ["missing", "cut", "garbage", "another segment's", "shifted"])
def test_a_missing_damaged_or_lying_index_is_made_anew(damage: str) -> None:
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
    liar = SparseIndex(base_offset, 0, 1)
    for offset, position, time in zip(*entries, strict=True):
        liar.add(offset, position + 7, time)
    data = liar.encode(covered)
    assert data is not None
    disk.cut(path, 0)
    disk.spoil(path, 0, data)


def test_appending_goes_on_after_a_restart_without_reading_the_index() -> None:
    async def check() -> None:
        disk = SimulatedDisk()
        await filled(disk)
        store = await open_store(disk, policy=FlushPolicy.OS)
        log = logs_of(store)[0]
        log.settings = FINE
        disk.counts.clear()
        append(log, [b"150"])
        assert disk.counts["read"] == disk.counts["read cached"] == 0
        await store.close()
        store = await open_store(disk, policy=FlushPolicy.OS)
        assert [int(value) for value in values_of(logs_of(store)[0]).values()] == list(range(151))

    run(check())
