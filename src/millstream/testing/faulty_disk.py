"""Wraps the real disk with faults that a test switches on and off. It may be used from several threads at once.

The files stay real: a refused write leaves nothing, and a failed flush flushes nothing.
"""

import errno
import time
from collections.abc import Sequence

from millstream.seams.disk import Buffer, Closeable, Disk, DiskFile, Space
from millstream.seams.file_part import FilePart


class DiskFaults:
    """The switches of the faults. All are off by default."""

    def __init__(self) -> None:
        self.heal()

    def heal(self) -> None:
        """Switch off all faults."""
        self.is_full = False
        """Writes fail as on a full disk."""
        self.writes_fail = False
        self.flushes_fail = False
        self.reads_fail = False
        self.flush_delay_s = 0.0
        """The additional duration of each flush."""


class _FaultyFile:
    __slots__ = ("_disk", "_file", "_path")

    def __init__(self, file: DiskFile, path: str, disk: "FaultyDisk") -> None:
        self._file = file
        self._path = path
        self._disk = disk

    def write(self, data: Buffer | Sequence[Buffer], position: int) -> None:
        self._disk.check_write(self._path)
        self._file.write(data, position)

    def read(self, size: int, *, position: int) -> bytes:
        self._disk.check_read(self._path)
        return self._file.read(size, position=position)

    def read_cached(self, size: int, *, position: int) -> bytes | None:
        self._disk.check_read(self._path)
        return self._file.read_cached(size, position=position)

    def part(self, size: int, *, position: int) -> FilePart | None:
        self._disk.check_read(self._path)
        return self._file.part(size, position=position)

    def flush(self) -> None:
        self._disk.check_flush(self._path)
        self._file.flush()

    def size(self) -> int:
        return self._file.size()

    def allocate(self, size: int) -> None:
        self._disk.check_write(self._path)
        self._file.allocate(size)

    def truncate(self, size: int) -> None:
        self._disk.check_write(self._path)
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()


class FaultyDisk:
    """A `Disk` that wraps another one, for one process."""

    def __init__(self, disk: Disk, faults: DiskFaults) -> None:
        self._disk = disk
        self._faults = faults
        self._locks: list[Closeable] = []
        self._is_cut_off = False

    def cut_off(self) -> None:
        """Make all later operations fail, because the process is dead although its code still runs."""
        self._is_cut_off = True

    def release(self) -> None:
        """Release the locks, as a kernel does for a dead process."""
        for lock in self._locks:
            lock.close()
        self._locks.clear()

    def check_write(self, path: str) -> None:
        self._check_alive(path)
        if self._faults.is_full:
            raise OSError(errno.ENOSPC, "No space left on device (a fault of the test)", path)
        if self._faults.writes_fail:
            raise OSError(errno.EIO, "Input/output error (a fault of the test)", path)

    def check_flush(self, path: str) -> None:
        self._check_alive(path)
        if self._faults.flush_delay_s:
            time.sleep(self._faults.flush_delay_s)
        if self._faults.flushes_fail:
            raise OSError(errno.EIO, "Input/output error (a fault of the test)", path)

    def check_read(self, path: str) -> None:
        self._check_alive(path)
        if self._faults.reads_fail:
            raise OSError(errno.EIO, "Input/output error (a fault of the test)", path)

    def _check_alive(self, path: str) -> None:
        if self._is_cut_off:
            raise OSError(errno.EIO, "the broker was killed", path)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if create and not self._disk.exists(path):
            self.check_write(path)
        else:
            self.check_read(path)
        return _FaultyFile(self._disk.open(path, create=create), path, self)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def list(self, path: str) -> list[str]:
        self.check_read(path)
        return self._disk.list(path)

    def make_directory(self, path: str) -> None:
        self.check_write(path)
        self._disk.make_directory(path)

    def remove(self, path: str) -> None:
        self.check_flush(path)
        self._disk.remove(path)

    def rename(self, old: str, new: str) -> None:
        self.check_flush(new)
        self._disk.rename(old, new)

    def flush_directory(self, path: str) -> None:
        self.check_flush(path)
        self._disk.flush_directory(path)

    def space(self, path: str) -> Space:
        self.check_read(path)
        return self._disk.space(path)

    def boot_id(self) -> str:
        return self._disk.boot_id()

    def lock(self, path: str) -> Closeable:
        lock = self._disk.lock(path)
        self._locks.append(lock)
        return lock
