"""Gives the offline tools read-only access to the disk."""

import errno
import os
from collections.abc import Sequence
from typing import NoReturn

from millstream.seams.machine import machine_id

Buffer = bytes | bytearray | memoryview


class ReadOnlyFile:
    """A file opened for reading. It is closed when its last reference is dropped."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, size: int, *, position: int) -> bytes:
        parts = []
        while size > 0 and (data := os.pread(self._fd, size, position)):
            parts.append(data)
            size -= len(data)
            position += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_cached(self, size: int, *, position: int) -> bytes | None:
        return self.read(size, position=position)

    def part(self, size: int, *, position: int) -> None:
        return None

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def write(self, data: Buffer | Sequence[Buffer], position: int) -> None:
        _refuse(self.path)

    def allocate(self, size: int) -> None:
        _refuse(self.path)

    def truncate(self, size: int) -> None:
        _refuse(self.path)

    def flush(self) -> None:
        _refuse(self.path)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class ReadOnlyDisk:
    """The operating system's files, read-only. Methods that would write or lock raise OSError (EROFS)."""

    def open(self, path: str, *, create: bool = False) -> ReadOnlyFile:
        return ReadOnlyFile(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        _refuse(path)

    def remove(self, path: str) -> None:
        _refuse(path)

    def rename(self, old: str, new: str) -> None:
        _refuse(old)

    def flush_directory(self, path: str) -> None:
        _refuse(path)

    def space(self, path: str) -> NoReturn:
        _refuse(path)

    def boot_id(self) -> str:
        return machine_id()

    def lock(self, path: str) -> NoReturn:
        _refuse(path)


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
