"""Checks that the simulated disk loses exactly what a real disk may lose."""

from collections import Counter
from random import Random

import pytest

from millstream.model.errors import MillstreamError
from millstream.testing.simulated.disk import DiskOperation, PowerLoss, SimulatedDisk


def fates(count: int = 300, *, flush: bool, flush_name: bool) -> Counter[bytes | None]:
    """The results of many power losses after one small write to a new file."""
    found: Counter[bytes | None] = Counter()
    for seed in range(count):
        disk = SimulatedDisk(Random(seed))
        disk.make_directory("/d")
        file = disk.open("/d/file", create=True)
        file.write(b"a" * 600, 0)
        if flush:
            file.flush()
        if flush_name:
            disk.flush_directory("/d")
        disk.power_loss()
        found[disk.open("/d/file").read(1000, position=0) if disk.exists("/d/file") else None] += 1
    return found


def test_flushed_data_with_a_flushed_name_survives_a_power_loss() -> None:
    assert set(fates(flush=True, flush_name=True)) == {b"a" * 600}


def test_an_unflushed_name_may_be_lost_with_flushed_data() -> None:
    assert set(fates(flush=True, flush_name=False)) == {None, b"a" * 600}


def test_an_unflushed_write_is_lost_kept_or_torn_at_sectors() -> None:
    found = fates(flush=False, flush_name=True)
    assert set(found) == {b"", b"a" * 512, b"\0" * 512 + b"a" * 88, b"a" * 600}


def test_reads_see_unflushed_writes_until_power_is_lost() -> None:
    disk = SimulatedDisk()
    file = disk.open("/file", create=True)
    file.write([b"ab", b"cd"], 2)
    assert file.read(10, position=0) == file.read_cached(6, position=0) == b"\0\0abcd"
    file.truncate(3)
    assert disk.contents("/file") == b"\0\0a"
    assert not disk.holds_durably(b"a")
    file.flush()
    assert not disk.holds_durably(b"a"), "its name is not flushed"
    disk.flush_directory("/")
    assert disk.holds_durably(b"a")


def test_a_rename_is_atomic_at_a_power_loss() -> None:
    found = set()
    for seed in range(50):
        disk = SimulatedDisk(Random(seed))
        for name, content in (("/old", b"old"), ("/new", b"new")):
            file = disk.open(name, create=True)
            file.write(content, 0)
            file.flush()
        disk.flush_directory("/")
        disk.rename("/new", "/old")
        disk.power_loss()
        found.add(tuple((name, disk.contents("/" + name)) for name in disk.list("/")))
    assert found == {(("old", b"new"),), (("new", b"new"), ("old", b"old"))}


def test_a_power_loss_fails_all_operations_until_power_is_back() -> None:
    disk = SimulatedDisk(Random(1))

    def before(operation: DiskOperation) -> None:
        if operation.number == 3:
            raise PowerLoss

    disk.before = before
    file = disk.open("/file", create=True)
    file.write(b"x", 0)
    with pytest.raises(PowerLoss):
        file.flush()
    disk.before = None
    with pytest.raises(PowerLoss):
        disk.list("/")
    disk.power_loss()
    assert disk.list("/") in ([], ["file"])
    with pytest.raises(PowerLoss):
        file.read(1, position=0)


def test_a_full_disk_stores_a_part_of_a_write_and_raises_enospc() -> None:
    disk = SimulatedDisk(Random(3))
    file = disk.open("/file", create=True)
    file.write(b"x" * 100, 0)
    disk.is_full = True
    file.write(b"y" * 100, 0)
    with pytest.raises(OSError, match="no space"):
        file.write(b"z" * 100, 100)
    assert 100 <= file.size() < 200
    with pytest.raises(OSError, match="no space"):
        disk.open("/other", create=True)


def test_flushes_after_a_failed_one_succeed_without_storing_lost_data() -> None:
    lost = 0
    for seed in range(50):
        disk = SimulatedDisk(Random(seed))
        file = disk.open("/file", create=True)
        disk.flush_directory("/")
        file.write(b"x", 0)
        disk.flush_error_chance = 1.0
        with pytest.raises(OSError, match="input/output"):
            file.flush()
        disk.flush_error_chance = 0.0
        file.flush()
        disk.power_loss()
        lost += disk.contents("/file") != b"x"
    assert 0 < lost < 50


def test_the_before_hook_limits_how_much_of_a_write_is_stored() -> None:
    disk = SimulatedDisk()
    file = disk.open("/file", create=True)
    disk.before = lambda operation: 0.5 if operation.kind == "write" else None
    with pytest.raises(OSError, match="no space"):
        file.write(b"abcd", 0)
    assert disk.contents("/file") == b"ab"


def test_the_same_seed_loses_the_same_writes() -> None:
    assert [fates(40, flush=False, flush_name=False)] * 2 == [
        fates(40, flush=False, flush_name=False) for _ in range(2)
    ]


def test_locks_and_open_files_are_counted() -> None:
    disk = SimulatedDisk()
    lock = disk.lock("/.lock")
    with pytest.raises(MillstreamError, match="in use"):
        disk.lock("/.lock")
    lock.close()
    disk.lock("/.lock")
    disk.power_loss()
    disk.lock("/.lock")
    first = disk.open("/file", create=True)
    disk.open("/file")
    assert disk.open_count == 1
    first.close()
    assert disk.open_count == 0


def _with_file(content: bytes, path: str = "/d/file") -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    file = disk.open(path, create=True)
    file.write(content, 0)
    file.flush()
    disk.flush_directory("/d")
    return disk


def test_a_restored_disk_has_the_content_of_its_snapshot() -> None:
    disk = _with_file(b"old")
    snapshot = disk.snapshot()
    file = disk.open("/d/file")
    file.write(b"new", 0)
    file.flush()
    disk.open("/d/second", create=True)
    for _ in range(2):
        disk.restore(snapshot)
        assert disk.list("/d") == ["file"]
        assert disk.contents("/d/file") == b"old"
        assert disk.holds_durably(b"old")
        disk.open("/d/file").write(b"changed after", 0)
    with pytest.raises(PowerLoss):
        file.read(3, position=0)


def test_a_snapshot_contains_only_stable_storage() -> None:
    disk = _with_file(b"flushed")
    disk.open("/d/file").write(b"written", 0)
    disk.open("/d/unflushed name", create=True)
    disk.restore(disk.snapshot())
    assert disk.list("/d") == ["file"]
    assert disk.contents("/d/file") == b"flushed"


def test_a_lost_disk_is_empty_and_usable() -> None:
    disk = _with_file(b"old")
    boot = disk.boot_id()
    disk.restore(None)
    assert disk.list("/") == []
    assert disk.boot_id() != boot
    disk.open("/new", create=True)


def test_a_disk_in_use_cannot_be_replaced() -> None:
    disk = _with_file(b"old")
    lock = disk.lock("/d/lock")
    with pytest.raises(AssertionError, match="in use"):
        disk.restore(None)
    lock.close()
    disk.restore(None)


def test_a_flipped_bit_changes_a_flushed_byte_for_readers_and_after_power_loss() -> None:
    disk = _with_file(b"aaa")
    disk.flip_bit("/d/file", 8 + 1)
    assert disk.open("/d/file").read(3, position=0) == b"aca"
    disk.power_loss()
    assert disk.contents("/d/file") == b"aca"


def test_only_flushed_bytes_are_flipped() -> None:
    disk = _with_file(b"flushed")
    file = disk.open("/d/file")
    file.write(b"written", 7)
    with pytest.raises(AssertionError, match="byte 7 is not flushed"):
        disk.flip_bit("/d/file", 7 * 8)
    file.write(b"x", 2)
    for seed in range(50):
        assert disk.flip_random_bit(Random(seed)) == "/d/file"
        assert disk.contents("/d/file")[2:] == b"xshedwritten"


def test_the_seed_chooses_the_file_and_the_bit_to_flip() -> None:
    def flip(seed: int) -> tuple[str | None, bytes, bytes]:
        disk = _with_file(bytes(50), "/d/first.log")
        file = disk.open("/d/second.log", create=True)
        file.write(bytes(50), 0)
        file.flush()
        disk.open("/d/empty.log", create=True).flush()
        return disk.flip_random_bit(Random(seed)), disk.contents("/d/first.log"), disk.contents("/d/second.log")

    flips = [flip(seed) for seed in range(20)]
    assert flips == [flip(seed) for seed in range(20)]
    assert {path for path, _, _ in flips} == {"/d/first.log", "/d/second.log"}
    assert all(sum(map(int.bit_count, first + second)) == 1 for _, first, second in flips)
    assert _with_file(b"a").flip_random_bit(Random(1), lambda path: path.endswith(".log")) is None
