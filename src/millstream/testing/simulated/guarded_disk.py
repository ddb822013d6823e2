"""Gives one simulated process access to the disk, and crashes the process in the middle of an operation if requested.

Once the process is dead, its code, which Python still unwinds, cannot reach the disk. Writes, flushes and name changes
are recorded in the trace with their content. So a run's digest covers everything that was ever on its disk.
"""

from collections.abc import Callable, Sequence
from zlib import crc32

from millstream.seams.disk import Buffer, Closeable, Disk, DiskFile, Space
from millstream.testing.simulated.process_owner import ProcessCrashed, SimulatedOwner

Note = Callable[..., None]


class CrashGuard:
    """Counts a process's changes to the disk, and crashes the process at a chosen one."""

    def __init__(self, owner: SimulatedOwner, note: Note) -> None:
        self._owner = owner
        self._note = note
        self._crash: Callable[[], None] | None = None
        self._left = 0
        self.changes = 0

    def crash_in(self, changes: int, *, after: bool, crash: Callable[[], None]) -> None:
        """Call `crash`, which ends the process, at the given number of changes from now, before or after the change."""
        self._left = 2 * changes - (0 if after else 1)
        self._crash = crash

    def check(self) -> None:
        if not self._owner.alive:
            raise ProcessCrashed(self._owner.name)

    def before(self, event: str, *values: str | int) -> None:
        self.check()
        self._count()
        self._note(event, *values)
        self.changes += 1

    def after(self) -> None:
        self._count()

    def _count(self) -> None:
        crash = self._crash
        if crash is None:
            return
        self._left -= 1
        if self._left <= 0:
            self._crash = None
            crash()
            raise ProcessCrashed(self._owner.name)


class _GuardedFile:
    def __init__(self, file: DiskFile, path: str, guard: CrashGuard) -> None:
        self._file = file
        self._path = path
        self._guard = guard

    def write(self, data: Buffer | Sequence[Buffer], position: int) -> None:
        parts = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
        checksum = size = 0
        for part in parts:
            checksum = crc32(part, checksum)
            size += len(part)
        self._guard.before("write", self._path, position, size, checksum)
        self._file.write(data, position)
        self._guard.after()

    def read(self, size: int, *, position: int) -> bytes:
        self._guard.check()
        return self._file.read(size, position=position)

    def read_cached(self, size: int, *, position: int) -> bytes | None:
        self._guard.check()
        return self._file.read_cached(size, position=position)

    def part(self, size: int, *, position: int) -> None:
        return None

    def flush(self) -> None:
        self._guard.before("flush", self._path)
        self._file.flush()
        self._guard.after()

    def size(self) -> int:
        self._guard.check()
        return self._file.size()

    def allocate(self, size: int) -> None:
        self._guard.before("allocate", self._path, size)
        self._file.allocate(size)
        self._guard.after()

    def truncate(self, size: int) -> None:
        self._guard.before("truncate", self._path, size)
        self._file.truncate(size)
        self._guard.after()

    def close(self) -> None:
        self._file.close()


class GuardedDisk:
    """A `Disk` that belongs to one process. `release` frees its locks, as a kernel does."""

    def __init__(self, disk: Disk, guard: CrashGuard) -> None:
        self._disk = disk
        self._guard = guard
        self._locks: list[Closeable] = []

    def release(self) -> None:
        for lock in self._locks:
            lock.close()
        self._locks.clear()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if create and not self._disk.exists(path):
            self._guard.before("create", path)
            file = self._disk.open(path, create=True)
            self._guard.after()
        else:
            self._guard.check()
            file = self._disk.open(path)
        return _GuardedFile(file, path, self._guard)

    def exists(self, path: str) -> bool:
        self._guard.check()
        return self._disk.exists(path)

    def list(self, path: str) -> list[str]:
        self._guard.check()
        return self._disk.list(path)

    def make_directory(self, path: str) -> None:
        self._guard.before("make directory", path)
        self._disk.make_directory(path)
        self._guard.after()

    def remove(self, path: str) -> None:
        self._guard.before("remove", path)
        self._disk.remove(path)
        self._guard.after()

    def rename(self, old: str, new: str) -> None:
        self._guard.before("rename", old, new)
        self._disk.rename(old, new)
        self._guard.after()

    def flush_directory(self, path: str) -> None:
        self._guard.before("flush directory", path)
        self._disk.flush_directory(path)
        self._guard.after()

    def space(self, path: str) -> Space:
        self._guard.check()
        return self._disk.space(path)

    def boot_id(self) -> str:
        self._guard.check()
        return self._disk.boot_id()

    def lock(self, path: str) -> Closeable:
        self._guard.check()
        lock = self._disk.lock(path)
        self._locks.append(lock)
        return lock
