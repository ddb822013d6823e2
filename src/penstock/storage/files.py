"""Open files, bounded: ten thousand partitions must not need ten thousand file descriptors.

Each segment keeps its own open file, so that the common case is one attribute. When more than `limit` files are open,
those not used since the hand last passed are let go (second chance). Letting go only drops the reference: a read that
is under way in another thread still holds the file, which closes with its last reference.

A file with bytes that were written but not flushed is pinned: the kernel reports a failed write-back to files that
were open when it happened, so closing one early could turn an error into silence. When pinned files alone reach twice
the limit, the oldest is flushed on the spot and let go.
"""

import errno
import threading
from collections import deque
from typing import Protocol

from penstock.storage.disk import Disk, DiskFile


class Holder(Protocol):
    """Something that keeps a file open while it is in use."""

    path: str
    file: DiskFile | None
    used: bool

    def is_pinned(self) -> bool: ...

    def flush_now(self) -> None:
        """Flush, so that the file may be let go; a failure is the holder's to report."""
        ...

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
                    self._make_room(len(self._ring) >= 2 * self.limit)
                file = holder.file = self._open(holder.path, create)
                self._ring.append(holder)
            holder.used = True
            return file

    def readopt(self, holder: Holder, file: DiskFile) -> None:
        """Take back a file that was let go while it was being written to."""
        with self._lock:
            if holder.file is None:
                holder.file = file
                self._ring.append(holder)

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
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._ring:
                raise
        # Others, connections above all, have used up the descriptors: give one back and try once more.
        self._make_room(True)
        return self.disk.open(path, create=create)

    def _make_room(self, at_any_price: bool) -> None:
        """Let one file go; one that is pinned only at any price, which is a flush on the spot."""
        ring = self._ring
        for _ in range(2 * len(ring)):
            if not ring:
                return
            holder = ring.popleft()
            if holder.file is None:
                continue
            if holder.used or holder.is_pinned():
                holder.used = False
                ring.append(holder)
                continue
            holder.let_go()
            return
        if at_any_price and ring:
            holder = ring.popleft()
            holder.flush_now()
            holder.let_go()
