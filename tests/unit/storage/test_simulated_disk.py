"""The simulated disk forgets just what a real one may forget."""

from collections import Counter
from random import Random

import pytest

from millstream.model.errors import MillstreamError
from millstream.testing.simulated.disk import DiskOperation, PowerLoss, SimulatedDisk


def fates(count: int = 300, *, flush: bool, flush_name: bool) -> Counter[bytes | None]:
    """What became of one small write to a new file, over many power losses."""
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
        found[disk.open("/d/file").read(1000, 0) if disk.exists("/d/file") else None] += 1
    return found


def test_what_was_flushed_with_its_name_is_always_there() -> None:
    assert set(fates(flush=True, flush_name=True)) == {b"a" * 600}


def test_a_name_that_was_not_flushed_may_be_gone_with_all_that_was_flushed() -> None:
    assert set(fates(flush=True, flush_name=False)) == {None, b"a" * 600}


def test_an_unflushed_write_is_lost_or_kept_or_torn_at_sectors() -> None:
    found = fates(flush=False, flush_name=True)
    assert set(found) == {b"", b"a" * 512, b"\0" * 512 + b"a" * 88, b"a" * 600}


def test_reads_see_what_was_written_until_power_is_lost() -> None:
    disk = SimulatedDisk()
    file = disk.open("/file", create=True)
    file.write([b"ab", b"cd"], 2)
    assert file.read(10, 0) == file.read_cached(6, 0) == b"\0\0abcd"
    file.truncate(3)
    assert disk.contents("/file") == b"\0\0a"
    assert not disk.holds_durably(b"a")
    file.flush()
    assert not disk.holds_durably(b"a"), "its name is not flushed"
    disk.flush_directory("/")
    assert disk.holds_durably(b"a")


def test_a_rename_is_there_whole_or_not_at_all() -> None:
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


def test_power_can_be_cut_before_any_operation_and_stays_off() -> None:
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
        file.read(1, 0)


def test_a_full_disk_takes_a_part_and_says_so() -> None:
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


def test_after_a_failed_flush_later_ones_succeed_and_prove_nothing() -> None:
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


def test_a_hook_decides_how_much_of_a_write_takes_place() -> None:
    disk = SimulatedDisk()
    file = disk.open("/file", create=True)
    disk.before = lambda operation: 0.5 if operation.kind == "write" else None
    with pytest.raises(OSError, match="no space"):
        file.write(b"abcd", 0)
    assert disk.contents("/file") == b"ab"


def test_the_same_seed_loses_the_same() -> None:
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
