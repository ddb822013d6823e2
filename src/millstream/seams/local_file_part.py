"""Sends parts of this machine's files to sockets, directly from the kernel's page cache.

The system call `cachestat` (Linux 6.5), which Python does not offer, checks whether a part is in memory. Without it no
part counts as cached, and everything is read instead: slower, but correct. The head of a response is written
separately. With `MSG_MORE` it would share a packet with the first pages, which costs a fifth more.

This differs from sending bytes that were read in two respects. If the kernel evicts a page between the check and the
send, the send waits for the device, which is rare. And the kernel sends the file's current content, so bytes that
readers may have must never be overwritten. That holds because log files only grow until they are removed as a whole.
"""

import ctypes
import errno
import os
from mmap import PAGESIZE
from typing import Protocol

from millstream.seams.file_part import FilePlace

_CACHESTAT = 451
_Range = ctypes.c_uint64 * 2
_Counts = ctypes.c_uint64 * 5
_syscall = ctypes.CDLL(None).syscall
_syscall.restype = ctypes.c_long


class OpenFile(Protocol):
    """A file that is closed with its last reference. Closing it earlier sets `fd` to -1, which every call rejects."""

    fd: int


class LocalPart:
    """`size` bytes of `file` at `position`."""

    __slots__ = ("_file", "_position", "_size")

    def __init__(self, file: OpenFile, *, position: int, size: int) -> None:
        self._file = file
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def is_cached(self) -> bool:
        counts = _Counts()
        first, end = self._position, self._position + self._size
        if _syscall(_CACHESTAT, self._file.fd, _Range(first, self._size), counts, 0):
            return False
        return counts[0] > (end - 1) // PAGESIZE - first // PAGESIZE

    def send(self, head: bytes, socket_fd: int) -> int:
        taken = 0
        try:
            if head:
                taken = os.write(socket_fd, head)
                if taken < len(head):
                    return taken
            sent = os.sendfile(socket_fd, self._file.fd, self._position, self._size)
        except BlockingIOError:
            return taken
        if not sent:
            raise OSError(errno.EIO, f"the file ends before byte {self._position}")
        return taken + sent

    def behind(self, size: int) -> "LocalPart":
        return LocalPart(self._file, position=self._position + size, size=self._size - size)

    def read(self, size_max: int) -> bytes:
        size = min(size_max, self._size)
        data = os.pread(self._file.fd, size, self._position)
        if len(data) < size:
            raise OSError(errno.EIO, f"the file ends at byte {self._position + len(data)}")
        return data

    def place(self) -> FilePlace | None:
        fd = self._file.fd
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")  # The current name: the file may have been renamed since open.
            path.encode()
            found = os.fstat(fd)
        except (OSError, UnicodeEncodeError):
            return None
        if not found.st_nlink:
            return None
        return FilePlace(path, found.st_dev, found.st_ino, self._position, self._size)
