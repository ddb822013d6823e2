"""How much of a subscription may be under way: a pure state, told of what is sent and of what is committed.

Outstanding is what was sent and not committed. There is room as long as less than the window is outstanding. Once what
comes next does not fit, the gate is closed, and opens when the set share of what was outstanding then is committed. So
a reader that keeps up is sent everything as it arrives, and one that does not gets its messages in few large portions.

A batch is never cut. Of several partitions, each has a lane of its own; the window is that of all together.

Invariants:
- More than the window is outstanding only while that is one batch, sent when nothing was outstanding.
- Nothing is admitted while the gate is closed; with nothing outstanding it is open.
- Whatever was committed is no longer outstanding. Bytes may be counted longer: until the whole mark they lie in is
  committed, where a mark is never larger than `MARKS` of them make up the window, unless a single portion was.
- So what a flow remembers is bounded: two neighbouring marks of a lane together have more bytes than that.
"""

from typing import NamedTuple

MARKS = 8


class FlowWindow(NamedTuple):
    messages: int
    size_bytes: int
    share_percent: int
    """Of what was outstanding when the gate was closed, so much must be committed before more is sent."""


class AvailableWindow(NamedTuple):
    messages: int
    size_bytes: int


class _Mark:
    """A run of offsets that was sent; its first ones may be committed already."""

    __slots__ = ("begin", "end", "size_bytes")

    def __init__(self, begin: int, end: int, size_bytes: int) -> None:
        self.begin = begin
        self.end = end
        self.size_bytes = size_bytes


class PartitionFlow:
    """One partition's part of a flow. `position` is what comes next; nothing at or beyond it was sent."""

    __slots__ = ("_marks", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self._marks: list[_Mark] = []

    def add(self, next_offset: int, size_bytes: int, mark_bytes: int) -> None:
        last = self._marks[-1] if self._marks else None
        if last is not None and last.end == self.position and last.size_bytes + size_bytes <= mark_bytes:
            last.end = next_offset
            last.size_bytes += size_bytes
        else:
            self._marks.append(_Mark(self.position, next_offset, size_bytes))
        self.position = next_offset

    def take_off(self, offset: int) -> AvailableWindow:
        """Forget what lies before `offset`, and tell how much that is."""
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
        """Outstanding, as are the bytes."""
        self.size_bytes = 0
        self._needed = 0
        """Messages that must be committed before the gate opens; 0: it is open."""

    @property
    def is_open(self) -> bool:
        return self._needed == 0

    def room(self) -> AvailableWindow | None:
        """What may be sent now; None while the gate is closed, which it is when nothing fits any more."""
        if self._needed:
            return None
        room = AvailableWindow(self.window.messages - self.messages, self.window.size_bytes - self.size_bytes)
        if room.messages <= 0 or room.size_bytes <= 0:
            self._close()
            return None
        return room

    def admits(self, messages: int, size_bytes: int) -> bool:
        """Whether a portion may be sent; one that may not closes the gate. The first fits always."""
        if self._needed:
            return False
        window = self.window
        if self.messages and (
            self.messages + messages > window.messages or self.size_bytes + size_bytes > window.size_bytes
        ):
            self._close()
            return False
        return True

    def sent(self, lane: PartitionFlow, next_offset: int, size_bytes: int) -> None:
        """A portion that was admitted is on its way."""
        self.messages += next_offset - lane.position
        self.size_bytes += size_bytes
        lane.add(next_offset, size_bytes, self.window.size_bytes // MARKS)

    def committed(self, lane: PartitionFlow, offset: int) -> None:
        """Everything before `offset` is done with, which is nothing new if it was before."""
        assert offset <= lane.position, "who commits has got it"
        freed = lane.take_off(offset)
        self.messages -= freed.messages
        self.size_bytes -= freed.size_bytes
        self._needed = max(0, self._needed - freed.messages)

    def _close(self) -> None:
        self._needed = -(-self.messages * self.window.share_percent // 100)
