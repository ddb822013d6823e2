"""Maps some offsets and times of one segment to file positions.

Each entry describes a batch: its base offset, its position in the segment, and the largest timestamp of all batches
*before* it. There is one entry per about `interval_bytes`. So a lookup ends a few kilobytes before its target, and a
scan of the headers finds it.

The file `<base offset>.index` is a sealed file (see `sealed_file`). Its payload is, little-endian: base offset (8),
bytes of the segment it covers (8), number of entries (8), then all offsets, all positions, all times (8 each).

The file is written after the data, in one write and without a flush. After a crash it may be missing, outdated or
incomplete. No data is lost, because every lookup is verified against the segment. A missing, damaged or wrong file is
rebuilt from the batch headers.

Invariants: offsets and positions strictly increase, and times never decrease. The entries of `_head` are before
`start`, those of `_tail` at or after it. Entries are only added, and only by one thread. Other threads may read at the
same time, so an entry of the tail becomes visible with its last part, the position.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from millstream.model.ids import Offset
from millstream.storage import sealed_file

KIND = b"MSTRMIX1"
_HEAD = struct.Struct("<qqq")


class BatchPosition(NamedTuple):
    """The offset and the file position of a batch."""

    offset: Offset
    position: int


class IndexEntries(NamedTuple):
    offsets: "array[int]"
    positions: "array[int]"
    times: "array[int]"


def no_entries() -> IndexEntries:
    return IndexEntries(array("q"), array("q"), array("q"))


class SparseIndex:
    """Index entries from position `start` on, added by appends. Earlier entries are loaded from disk on demand."""

    __slots__ = ("_head", "_tail", "base_offset", "due", "interval_bytes", "saved_bytes", "start")

    def __init__(self, base_offset: Offset, *, start: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.start = start
        self.interval_bytes = interval_bytes
        self.due = start
        self.saved_bytes = 0
        self._head: IndexEntries | None = no_entries() if start == 0 else None
        self._tail = no_entries()

    def add(self, offset: Offset, *, position: int, time_before: int) -> None:
        """Add an entry for the batch at `position`, which is at or after `due`."""
        offsets, positions, times = self._tail
        assert position >= self.due, "entries are added in order"
        times.append(time_before)
        offsets.append(offset)
        positions.append(position)
        self.due = position + self.interval_bytes

    def is_loaded(self) -> bool:
        return self._head is not None

    def entry_count(self) -> int:
        head = self._head
        return len(self._tail.positions) + (len(head.positions) if head else 0)

    def install(self, head: IndexEntries) -> None:
        """Install the entries before `start`, which were loaded or rebuilt."""
        assert not head.positions or head.positions[-1] < self.start, "the head ends where the tail begins"
        self._head = head

    def last_at_offset(self, offset: Offset) -> BatchPosition | None:
        """The last entry at or before `offset`; None if the entries before `start` must be loaded first."""
        return self._last(0, value=offset)

    def last_at_position(self, position: int) -> BatchPosition | None:
        """The last entry at or before `position`; None as in `last_at_offset`."""
        return self._last(1, value=position)

    def _last(self, column: int, *, value: int) -> BatchPosition | None:
        tail, head = self._tail, self._head
        at = bisect_right(tail[column], value, 0, len(tail.positions)) - 1
        if at >= 0:
            return BatchPosition(Offset(tail.offsets[at]), tail.positions[at])
        if head is None:
            return None
        at = bisect_right(head[column], value) - 1
        if at < 0:
            return BatchPosition(self.base_offset, 0)
        return BatchPosition(Offset(head.offsets[at]), head.positions[at])

    def last_before_time(self, time: int) -> BatchPosition | None:
        """The last entry whose preceding batches are all older than `time`; None as in `last_at_offset`."""
        tail, head = self._tail, self._head
        at = bisect_left(tail.times, time, 0, len(tail.positions)) - 1
        if at >= 0:
            return BatchPosition(Offset(tail.offsets[at]), tail.positions[at])
        if head is None:
            return None
        at = bisect_left(head.times, time) - 1
        if at < 0:
            return BatchPosition(self.base_offset, 0)
        return BatchPosition(Offset(head.offsets[at]), head.positions[at])

    def encode(self, covered_bytes: int) -> bytes | None:
        """Encode the file for a segment of `covered_bytes`; None if the entries before `start` are not loaded."""
        head, tail = self._head, self._tail
        if head is None:
            return None
        count = len(tail.positions)
        columns = [h + t[:count] for h, t in zip(head, tail, strict=True)]
        payload = [_HEAD.pack(self.base_offset, covered_bytes, len(columns[0]))]
        for column in columns:
            if sys.byteorder == "big":
                column.byteswap()
            payload.append(column.tobytes())
        return sealed_file.seal(KIND, b"".join(payload))


def decode(data: bytes, base_offset: int) -> tuple[IndexEntries, int] | None:
    """Decode the file's entries and the number of bytes of the segment that it covers; None if it is invalid."""
    payload = sealed_file.unseal(KIND, data)
    if payload is None or len(payload) < _HEAD.size:
        return None
    base, covered_bytes, count = _HEAD.unpack_from(payload)
    if base != base_offset or count < 0 or len(payload) != _HEAD.size + 24 * count:
        return None
    entries = no_entries()
    for number, column in enumerate(entries):
        first = _HEAD.size + 8 * count * number
        column.frombytes(payload[first : first + 8 * count])
        if sys.byteorder == "big":
            column.byteswap()
    return entries, covered_bytes


def cut(entries: IndexEntries, position: int) -> IndexEntries:
    """Return the entries before `position`."""
    count = bisect_left(entries.positions, position)
    return IndexEntries(entries.offsets[:count], entries.positions[:count], entries.times[:count])
