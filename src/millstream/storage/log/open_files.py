"""Limits the number of open files, so that ten thousand partitions do not need ten thousand file descriptors.

Each segment keeps its open file, so the usual case is one attribute access. At the limit, the second-chance (clock)
algorithm selects a file to close: the first file that was not used since the algorithm last examined it. Closing only
drops the reference. A read in another thread still holds the file, which is closed with its last reference.

A file may be closed before its written bytes have been flushed. The kernel reports a failed write-back only to
processes that have the file open, so the error may go unnoticed. `Segment.flush` compensates for that.
"""

import errno
import threading
from collections import deque
from typing import Protocol

from millstream.seams.disk import Disk, DiskFile


class Holder(Protocol):
    """Something that keeps a file open while it is in use."""

    path: str
    file: DiskFile | None
    used: bool

    def let_go(self) -> None:
        """Drop the file, and all state that can be read from disk again."""
        ...


class OpenFiles:
    """The holders whose file is open."""

    def __init__(self, disk: Disk, limit: int, *, is_careful: bool = True) -> None:
        """`is_careful` is True if a flush must compensate for files that were closed too early."""
        assert limit >= 8, "several files are open at the same time"
        self.is_careful = is_careful
        self.disk = disk
        self.limit = limit
        self._ring: deque[Holder] = deque()
        self._lock = threading.Lock()

    def open(self, holder: Holder, *, create: bool = False) -> DiskFile:
        """Return the holder's file; open it if necessary. Raise OSError."""
        with self._lock:
            file = holder.file
            if file is None:
                if len(self._ring) >= self.limit:
                    self._make_room()
                file = holder.file = self._open(holder.path, create)
                self._ring.append(holder)
            holder.used = True
            return file

    def forget(self, holder: Holder) -> None:
        """Close the holder's file, because it has been removed or replaced."""
        with self._lock:
            if holder.file is not None:
                holder.file = None
                self._ring.remove(holder)

    def count(self) -> int:
        return len(self._ring)

    def _open(self, path: str, create: bool) -> DiskFile:
        try:
            return self.disk.open(path, create=create)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        # Connections, for example, have used up the descriptors: close one file and try once more.
        self._make_room()
        return self.disk.open(path, create=create)

    def _make_room(self) -> None:
        ring = self._ring
        while ring:
            holder = ring.popleft()
            if holder.used:
                holder.used = False
                ring.append(holder)
            else:
                holder.let_go()
                return
