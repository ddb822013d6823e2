"""Open files, bounded: ten thousand partitions must not need ten thousand file descriptors.

Each segment keeps its own open file, so that the common case is one attribute. When `limit` files are open, the next
one not used since the hand last passed is let go (second chance). Letting go only drops the reference: a read that is
under way in another thread still holds the file, which closes with its last reference.

A file may be let go before what was written to it has been flushed. The kernel tells of a failed write-back to those
who have the file open, so nobody may be there to be told; `Segment.flush` makes up for that.
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
        """Drop the file and whatever else can be had back from disk."""
        ...


class OpenFiles:
    """All holders whose file is open."""

    def __init__(self, disk: Disk, limit: int) -> None:
        assert limit >= 8, "a handful of files is open at any time"
        self.disk = disk
        self.limit = limit
        self._ring: deque[Holder] = deque()
        self._lock = threading.Lock()

    def open(self, holder: Holder, *, create: bool = False) -> DiskFile:
        """The holder's file, opened if it is not; raises OSError."""
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
        """The holder's file is gone for good; close it without ceremony."""
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
        # Others, connections above all, have used up the descriptors: give one back and try once more.
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
