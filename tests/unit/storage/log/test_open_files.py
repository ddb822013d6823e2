"""Open files are bounded, and none is closed that somebody needs."""

import errno

import pytest

from millstream.seams.disk import DiskFile
from millstream.storage.log.open_files import OpenFiles
from millstream.testing.simulated.disk import SimulatedDisk, SimulatedFile


class Thing:
    """Holds a file."""

    def __init__(self, number: int) -> None:
        self.path = f"/{number}"
        self.file: DiskFile | None = None
        self.used = False

    def let_go(self) -> None:
        self.file = None


def opened(disk: SimulatedDisk, limit: int, things: list[Thing]) -> OpenFiles:
    files = OpenFiles(disk, limit)
    for thing in things:
        files.open(thing, create=True)
    return files


def test_the_one_not_used_for_longest_is_let_go() -> None:
    disk = SimulatedDisk()
    things = [Thing(number) for number in range(10)]
    files = opened(disk, 10, things)
    for thing in things:
        thing.used = thing is not things[3]
    files.open(Thing(10), create=True)
    assert [thing.path for thing in things if thing.file is None] == ["/3"]
    assert disk.open_count == files.count() == 10


def test_a_file_that_is_let_go_stays_open_for_whoever_reads_from_it() -> None:
    disk = SimulatedDisk()
    thing = Thing(0)
    files = opened(disk, 8, [thing])
    reading = files.open(thing)
    thing.used = False
    others = [Thing(number) for number in range(1, 30)]
    for other in others:
        files.open(other, create=True)
        other.used = False
    assert thing.file is None
    assert reading.read(1, 0) == b""


def test_when_descriptors_run_out_one_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    things = [Thing(number) for number in range(8)]
    files = opened(disk, 100, things)
    for thing in things:
        thing.used = False
    real, refusals = disk.open, [errno.EMFILE]

    def open_or_refuse(path: str, *, create: bool = False) -> SimulatedFile:
        if refusals:
            raise OSError(refusals.pop(), "too many open files")
        return real(path, create=create)

    monkeypatch.setattr(disk, "open", open_or_refuse)
    files.open(Thing(8), create=True)
    assert [thing.file is None for thing in things].count(True) == 1


def test_a_file_that_is_gone_is_forgotten() -> None:
    thing = Thing(0)
    files = opened(SimulatedDisk(), 8, [thing])
    files.forget(thing)
    files.forget(thing)
    assert thing.file is None
    assert files.count() == 0
