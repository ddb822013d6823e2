"""The sparse index of one segment, for offsets and times in one.

An entry stands for a batch: its base offset, its position in the segment, and the largest time stamp of all batches of
the segment *before* it. There is one entry about every `interval_bytes`, so a lookup ends a few kilobytes before what
it looks for and a walk along the headers does the rest.

The file `<base offset>.index` is a sealed file (see `sealed_file`) whose payload is, little-endian: base offset (8),
bytes of the segment it covers (8), number of entries (8), then all offsets, all positions, all times (8 each).

It is written behind the data, in one piece and without a flush. A crash may leave none, an old one or half of one:
nothing is lost by that, since every lookup is checked against the segment and a file that is missing, damaged or lying
is made anew from the batch headers.

Invariants: offsets and positions rise strictly, times never fall; the entries of `_head` lie before `start`, those of
the tail at or after it. Entries are only ever added, by one thread; other threads may look things up meanwhile, which
is why a tail entry becomes visible with its last part, the position.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from millstream.storage import sealed_file

KIND = b"MSTRMIX1"
_HEAD = struct.Struct("<qqq")


class BatchPosition(NamedTuple):
    """Where a batch begins."""

    offset: int
    position: int


class IndexEntries(NamedTuple):
    offsets: "array[int]"
    positions: "array[int]"
    times: "array[int]"


def no_entries() -> IndexEntries:
    return IndexEntries(array("q"), array("q"), array("q"))


class SparseIndex:
    """Entries from position `start` on, kept as batches are appended; those before it come from disk when asked for."""

    __slots__ = ("_head", "_tail", "base_offset", "due", "interval_bytes", "saved_bytes", "start")

    def __init__(self, base_offset: int, start: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.start = start
        self.interval_bytes = interval_bytes
        self.due = start
        self.saved_bytes = 0
        self._head: IndexEntries | None = no_entries() if start == 0 else None
        self._tail = no_entries()

    def add(self, offset: int, position: int, time_before: int) -> None:
        """Note the batch at `position`, which is at or after `due`."""
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
        """Take what was read from disk for the part before `start`."""
        assert not head.positions or head.positions[-1] < self.start, "the head ends where the tail begins"
        self._head = head

    def last_at_offset(self, offset: int) -> BatchPosition | None:
        """The last entry whose batch begins at or before `offset`; None when the part before `start` must be loaded."""
        return self._last(0, offset)

    def last_at_position(self, position: int) -> BatchPosition | None:
        """The last entry at or before `position`; None as above."""
        return self._last(1, position)

    def _last(self, column: int, value: int) -> BatchPosition | None:
        tail, head = self._tail, self._head
        at = bisect_right(tail[column], value, 0, len(tail.positions)) - 1
        if at >= 0:
            return BatchPosition(tail.offsets[at], tail.positions[at])
        if head is None:
            return None
        at = bisect_right(head[column], value) - 1
        return BatchPosition(head.offsets[at], head.positions[at]) if at >= 0 else BatchPosition(self.base_offset, 0)

    def last_before_time(self, time: int) -> BatchPosition | None:
        """The last entry before which no batch reaches `time`; None as above."""
        tail, head = self._tail, self._head
        at = bisect_left(tail.times, time, 0, len(tail.positions)) - 1
        if at >= 0:
            return BatchPosition(tail.offsets[at], tail.positions[at])
        if head is None:
            return None
        at = bisect_left(head.times, time) - 1
        return BatchPosition(head.offsets[at], head.positions[at]) if at >= 0 else BatchPosition(self.base_offset, 0)

    def encode(self, covered_bytes: int) -> bytes | None:
        """The file's bytes for a segment of `covered_bytes`; None while the part before `start` is not known."""
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
    """What the file says, and how many bytes of the segment it speaks of; None when it cannot be believed."""
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
    """The entries before `position`."""
    count = bisect_left(entries.positions, position)
    return IndexEntries(entries.offsets[:count], entries.positions[:count], entries.times[:count])
