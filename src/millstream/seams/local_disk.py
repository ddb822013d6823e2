"""Implements the disk of this machine with direct system calls.

Reads that must not wait use `preadv` with RWF_NOWAIT. Some network and overlay file systems do not support the flag.
There, every such read returns "not in memory" and the caller reads in a worker instead: slower, but correct.
"""

import ctypes
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar, cast

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.disk import Buffer, Space
from millstream.seams.local_file_part import LocalPart
from millstream.seams.machine import machine_id

RESERVE_FROM_BYTES = 64 * 1024
"""Smaller writes do not reserve space, because other costs dominate them."""
RESERVE_BYTES_MAX = 16 * 1024 * 1024
RESERVE_RATIO = 8
"""The reserved space, which may stay unused, is at most this fraction (1/8) of the file."""
SPARE_DESCRIPTORS = 4
"""Descriptors that the process holds for operations on directories. They are opened by the first operation."""

_OWNER_FILE = 0o600
_OWNER_DIRECTORY = 0o700
"""The modes of new files and directories: only the user of the process may use them."""

T = TypeVar("T")
_IOV_MAX = 1024
_KEEP_SIZE = 1
_libc = ctypes.CDLL(None)
_fallocate = getattr(_libc, "fallocate64", None) or getattr(_libc, "fallocate", None)
_NOT_NOW = (errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class LocalFile:
    """A file descriptor that is closed with its last reference."""

    __slots__ = ("_reserved", "fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self._reserved = 0
        """The file position up to which space was reserved."""

    def write(self, data: Buffer | Sequence[Buffer], position: int) -> None:
        if isinstance(data, (bytes, bytearray, memoryview)):
            if len(data) >= RESERVE_FROM_BYTES and position + len(data) > self._reserved:
                self._reserve(position, size=len(data))
            written = os.pwrite(self.fd, data, position)
            if written != len(data):
                self._write_rest(memoryview(data).cast("B"), done=written, position=position)
            return
        for first in range(0, len(data), _IOV_MAX):
            part = data[first : first + _IOV_MAX]
            size = sum(map(len, part))
            written = os.pwritev(self.fd, part, position)
            if written != size:
                self._write_rest(memoryview(b"".join(part)), done=written, position=position)
            position += size

    def _reserve(self, position: int, *, size: int) -> None:
        """Reserve disk space for this write and the following ones.

        Allocating space block by block is a third of the cost of a write. The file size does not change. Errors are
        ignored: the file system may not support it, or may be full.
        """
        ahead = min(position // RESERVE_RATIO, RESERVE_BYTES_MAX)
        self._reserved = position + size + ahead
        if ahead >= size and _fallocate is not None:
            _fallocate(self.fd, _KEEP_SIZE, ctypes.c_int64(position), ctypes.c_int64(size + ahead))

    def _write_rest(self, data: memoryview, *, done: int, position: int) -> None:
        while done < len(data):
            written = os.pwrite(self.fd, data[done:], position + done)
            if written == 0:
                raise OSError(errno.EIO, "the file system accepts no more bytes", self.path)
            done += written

    def read(self, size: int, *, position: int) -> bytes:
        data = os.pread(self.fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing and data:
            data = os.pread(self.fd, missing, position + size - missing)
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read_cached(self, size: int, *, position: int) -> bytes | None:
        buffer = bytearray(size)
        try:
            count = os.preadv(self.fd, [buffer], position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in _NOT_NOW:
                return None
            raise
        if count != size:
            return None
        # This function holds the only reference, so the buffer can pass as bytes; a copy would double the cost.
        return cast(bytes, buffer)

    def part(self, size: int, *, position: int) -> "LocalPart | None":
        part = LocalPart(self, position=position, size=size)
        return part if part.is_cached() else None

    def flush(self) -> None:
        os.fdatasync(self.fd)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def allocate(self, size: int) -> None:
        os.posix_fallocate(self.fd, 0, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)
        self._reserved = 0

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class _SpareDescriptors:
    """A few open descriptors that are closed when the process has no other one left. Used by several threads."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[int] = []
        self._lock = threading.Lock()

    def refill(self) -> None:
        """Hold as many descriptors as configured, or as many as the process can open."""
        with self._lock, suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release(self) -> bool:
        """Close one descriptor. Return False if none is left."""
        with self._lock:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True


_spare = _SpareDescriptors(SPARE_DESCRIPTORS)


class LocalDisk:
    """Files and directories of the operating system.

    Every operation on a directory works without free file descriptors, because the process holds a few spare ones.
    """

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return LocalFile(path, os.open(path, flags, _OWNER_FILE))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> list[str]:
        return sorted(_with_descriptor(lambda: os.listdir(path)))

    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path) or "."
        self.make_directory(parent)
        try:
            os.mkdir(path, _OWNER_DIRECTORY)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        self.flush_directory(parent)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except (IsADirectoryError, PermissionError):
            os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def flush_directory(self, path: str) -> None:
        _with_descriptor(lambda: _flush_directory(path))

    def space(self, path: str) -> Space:
        found = os.statvfs(path)
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def boot_id(self) -> str:
        return machine_id()

    def lock(self, path: str) -> LocalFile:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_FILE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise MillstreamError(
                ErrorCode.DATA_DIRECTORY_IN_USE,
                f"{os.path.dirname(path)} is in use by process {holder or 'unknown'}; stop it or use another directory",
            ) from None
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # On a full disk the process id cannot be recorded, but the lock holds.
        return LocalFile(path, fd)


def _with_descriptor(work: Callable[[], T]) -> T:
    """Run `work`, which opens a directory for a short time. Without a free descriptor, use a spare one for it."""
    while True:
        try:
            done = work()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not _spare.release():
                raise
        else:
            _spare.refill()
            return done


def _flush_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lock_holder(path: str) -> str | None:
    """Returns the process that holds the lock at `path`, or None if none does. Changes nothing (blocking)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
    finally:
        os.close(fd)
    return None
