"""Limits how many messages and bytes of a subscription are outstanding: sent, but not yet committed.

The state is pure: the caller reports what it sends and what the reader commits. Messages may be sent while less than
the window is outstanding. When the next portion does not fit, the gate closes. It opens again once a set share of the
messages outstanding at that moment is committed. So a fast reader receives everything as it arrives, and a slow reader
receives its messages in a few large portions.

A batch is never split. Each partition has a `PartitionFlow`; the window limits all of them together.

Invariants:
- More than the window is outstanding only if that is a single batch, sent when nothing was outstanding.
- Nothing is admitted while the gate is closed. If nothing is outstanding, the gate is open.
- A committed message is no longer outstanding. Its bytes stay counted until the whole mark that contains them is
  committed. A mark has at most the window's bytes divided by `MARKS`, unless a single portion is larger.
- The number of marks is bounded: two neighbouring marks of a partition together exceed that size.
"""

from typing import NamedTuple

from millstream.model.ids import Offset

MARKS = 8


class FlowWindow(NamedTuple):
    messages: int
    size_bytes: int
    share_percent: int
    """The share of the messages outstanding when the gate closed that must be committed before it opens."""


class AvailableWindow(NamedTuple):
    messages: int
    size_bytes: int


class _Mark:
    """A range of sent offsets. The first of them may already be committed."""

    __slots__ = ("begin", "end", "size_bytes")

    def __init__(self, begin: int, *, end: int, size_bytes: int) -> None:
        self.begin = begin
        self.end = end
        self.size_bytes = size_bytes


class PartitionFlow:
    """The outstanding messages of one partition. `position` is the offset to send next."""

    __slots__ = ("_marks", "position")

    def __init__(self, position: Offset) -> None:
        self.position = position
        self._marks: list[_Mark] = []

    def move(self, position: Offset) -> None:
        """Continue at another offset. Skipped offsets do not count as outstanding."""
        self.position = position

    def add(self, next_offset: Offset, size_bytes: int, *, mark_bytes: int) -> None:
        last = self._marks[-1] if self._marks else None
        if last is not None and last.end == self.position and last.size_bytes + size_bytes <= mark_bytes:
            last.end = next_offset
            last.size_bytes += size_bytes
        else:
            self._marks.append(_Mark(self.position, end=next_offset, size_bytes=size_bytes))
        self.position = next_offset

    def take_off(self, offset: int) -> AvailableWindow:
        """Remove everything before `offset` and return the freed messages and bytes."""
        messages = size_bytes = 0
        while self._marks and self._marks[0].end <= offset:
            mark = self._marks.pop(0)
            messages += mark.end - mark.begin
            size_bytes += mark.size_bytes
        if self._marks and self._marks[0].begin < offset:
            messages += offset - self._marks[0].begin
            self._marks[0].begin = offset
        return AvailableWindow(messages, size_bytes)

    @property
    def marks(self) -> int:
        return len(self._marks)


class SubscriptionFlow:
    __slots__ = ("_needed", "messages", "size_bytes", "window")

    def __init__(self, window: FlowWindow) -> None:
        self.window = window
        self.messages = 0
        """Outstanding messages of all partitions."""
        self.size_bytes = 0
        """Outstanding bytes of all partitions."""
        self._needed = 0
        """Number of messages that must be committed before the gate opens. 0 if it is open."""

    @property
    def is_open(self) -> bool:
        return self._needed == 0

    def room(self) -> AvailableWindow | None:
        """Return the free part of the window, or None while the gate is closed. A full window closes the gate."""
        if self._needed:
            return None
        room = AvailableWindow(self.window.messages - self.messages, self.window.size_bytes - self.size_bytes)
        if room.messages <= 0 or room.size_bytes <= 0:
            self._close()
            return None
        return room

    def admits(self, messages: int, *, size_bytes: int) -> bool:
        """True if a portion may be sent; otherwise the gate closes. An empty window admits any portion."""
        if self._needed:
            return False
        window = self.window
        if self.messages and (
            self.messages + messages > window.messages or self.size_bytes + size_bytes > window.size_bytes
        ):
            self._close()
            return False
        return True

    def sent(self, partition: PartitionFlow, next_offset: Offset, size_bytes: int) -> None:
        """Count an admitted portion as outstanding. It ends before `next_offset`."""
        assert not self._needed, "nothing is admitted while the gate is closed"
        is_first, window = not self.messages, self.window
        self.messages += next_offset - partition.position
        self.size_bytes += size_bytes
        is_within = self.messages <= window.messages and self.size_bytes <= window.size_bytes
        assert is_first or is_within, "only a first portion may exceed the window"
        partition.add(next_offset, size_bytes, mark_bytes=self.window.size_bytes // MARKS)

    def committed(self, partition: PartitionFlow, offset: int) -> None:
        """Count everything before `offset` as committed. A repeated commit has no effect."""
        assert offset <= partition.position, "only sent messages can be committed"
        freed = partition.take_off(offset)
        self.messages -= freed.messages
        self.size_bytes -= freed.size_bytes
        self._needed = max(0, self._needed - freed.messages)
        assert self.messages > 0 or not self._needed, "if nothing is outstanding, the gate is open"

    def _close(self) -> None:
        self._needed = -(-self.messages * self.window.share_percent // 100)
