"""Checks that a process can crash at any disk change, and that a dead process cannot use the disk."""

from collections.abc import Sequence

import pytest

from millstream.seams.disk import Buffer, Closeable, DiskFile, Space
from millstream.testing.simulated.guarded_disk import CrashGuard, GuardedDisk
from millstream.testing.simulated.process_owner import ProcessCrashed, SimulatedOwner


class ListingFile:
    """A file that records the operations on it."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def write(self, data: Buffer | Sequence[Buffer], position: int) -> None:
        self._log.append("write")

    def read(self, size: int, position: int) -> bytes:
        return b"r" * size

    def read_cached(self, size: int, position: int) -> bytes | None:
        return None

    def part(self, size: int, position: int) -> None:
        return None

    def flush(self) -> None:
        self._log.append("flush")

    def size(self) -> int:
        return 0

    def allocate(self, size: int) -> None:
        self._log.append("allocate")

    def truncate(self, size: int) -> None:
        self._log.append("truncate")

    def close(self) -> None:
        self._log.append("close")


class ListingDisk:
    """A disk that records the operations on it."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        self.log.append("create" if create else "open")
        return ListingFile(self.log)

    def exists(self, path: str) -> bool:
        return False

    def list(self, path: str) -> list[str]:
        return []

    def make_directory(self, path: str) -> None:
        self.log.append("make directory")

    def remove(self, path: str) -> None:
        self.log.append("remove")

    def rename(self, old: str, new: str) -> None:
        self.log.append("rename")

    def flush_directory(self, path: str) -> None:
        self.log.append("flush directory")

    def space(self, path: str) -> Space:
        return Space(0, 0)

    def boot_id(self) -> str:
        return ""

    def lock(self, path: str) -> Closeable:
        return ListingFile(self.log)


class Scene:
    def __init__(self) -> None:
        self.owner = SimulatedOwner("process")
        self.under = ListingDisk()
        self.events: list[str] = []
        self.guard = CrashGuard(self.owner, lambda event, *_: self.events.append(event))
        self.disk = GuardedDisk(self.under, self.guard)

    def change_everything(self) -> None:
        """Make seven changes."""
        self.disk.make_directory("/d")
        file = self.disk.open("/d/a", create=True)
        file.write([b"one", b"two"], 0)
        file.flush()
        file.truncate(3)
        self.disk.rename("/d/a", "/d/b")
        self.disk.flush_directory("/d")
        self.disk.remove("/d/b")


CHANGES = ["make directory", "create", "write", "flush", "truncate", "rename", "flush directory", "remove"]


def test_guarded_changes_reach_the_disk_and_the_trace() -> None:
    scene = Scene()
    scene.change_everything()
    assert scene.under.log == scene.events == CHANGES
    assert scene.guard.changes == len(CHANGES)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("place", range(len(CHANGES)))
def test_a_process_crashes_before_or_after_the_chosen_disk_change(place: int, after: bool) -> None:
    scene = Scene()
    scene.guard.crash_in(place + 1, after=after, crash=scene.owner.die)
    with pytest.raises(ProcessCrashed):
        scene.change_everything()
    assert not scene.owner.alive
    assert scene.under.log == CHANGES[: place + after]


def test_a_dead_process_cannot_use_the_disk() -> None:
    scene = Scene()
    file = scene.disk.open("/a", create=True)
    lock = scene.disk.lock("/lock")
    assert lock is not None
    scene.owner.die()
    del scene.under.log[:]
    for attempt in (
        lambda: file.write(b"x", 0),
        file.flush,
        lambda: file.truncate(0),
        file.size,
        lambda: file.read(1, position=0),
        lambda: file.read_cached(1, position=0),
        lambda: scene.disk.open("/b", create=True),
        lambda: scene.disk.exists("/a"),
        lambda: scene.disk.list("/"),
        lambda: scene.disk.remove("/a"),
        lambda: scene.disk.lock("/lock"),
    ):
        with pytest.raises(ProcessCrashed):
            attempt()
    assert scene.under.log == []
    scene.disk.release()
    assert scene.under.log == ["close"]
