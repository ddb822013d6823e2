"""Parts of this machine's files, sent by the kernel from its page cache.

A call that Python does not offer, `cachestat` (Linux 6.5), tells whether a part is in memory. Where it is missing
nothing is ever known to be, and everything is read instead: slower, never wrong. An answer's head goes ahead by itself:
made to wait for what follows (`MSG_MORE`), it would lie in one packet with the first pages, and cost a fifth more.

Two things differ from bytes that were read. A page that the kernel takes back between the question and the sending is
waited for, which is as rare as it sounds. And what is on its way is the file itself: bytes that were handed to readers
must never be written over with others, which holds because a log's file only grows, until it is dropped as a whole.
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
    """Closes with its last reference; whoever closes it earlier sets `fd` to -1, which no call takes for a file."""

    fd: int


class LocalPart:
    """`size` bytes of `file` at `position`."""

    __slots__ = ("_file", "_position", "_size")

    def __init__(self, file: OpenFile, position: int, size: int) -> None:
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
        return LocalPart(self._file, self._position + size, self._size - size)

    def read(self, size_max: int) -> bytes:
        size = min(size_max, self._size)
        data = os.pread(self._file.fd, size, self._position)
        if len(data) < size:
            raise OSError(errno.EIO, f"the file ends at byte {self._position + len(data)}")
        return data

    def place(self) -> FilePlace | None:
        fd = self._file.fd
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")  # Its name now: it may have had another when it was opened.
            path.encode()
            found = os.fstat(fd)
        except (OSError, UnicodeEncodeError):
            return None
        if not found.st_nlink:
            return None
        return FilePlace(path, found.st_dev, found.st_ino, self._position, self._size)
