"""Checks that the number of open files is limited, and that files in use stay open."""

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


def test_an_unused_file_is_closed_first() -> None:
    disk = SimulatedDisk()
    things = [Thing(number) for number in range(10)]
    files = opened(disk, 10, things)
    for thing in things:
        thing.used = thing is not things[3]
    files.open(Thing(10), create=True)
    assert [thing.path for thing in things if thing.file is None] == ["/3"]
    assert disk.open_count == files.count() == 10


def test_a_closed_file_stays_usable_for_a_read_in_progress() -> None:
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
    assert reading.read(1, position=0) == b""


def test_a_file_is_closed_when_descriptors_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_removed_file_can_be_forgotten_repeatedly() -> None:
    thing = Thing(0)
    files = opened(SimulatedDisk(), 8, [thing])
    files.forget(thing)
    files.forget(thing)
    assert thing.file is None
    assert files.count() == 0
