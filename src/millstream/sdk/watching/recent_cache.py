"""What was delivered a moment ago, kept for those who ask next: opened once, and handed to everybody.

Invariants:
- The chunks of a shelf lie end to end, so a shelf has whatever lies between its first offset and its last.
- A chunk is on its shelf exactly while the cache counts it. The cache has them in the order in which they came, so the
  oldest of all is the first of its shelf.
- All together, and those of one shelf, are within their bounds: what is beyond goes, the oldest first.
"""

from bisect import bisect_right
from collections import OrderedDict
from operator import attrgetter

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import decode_messages
from millstream.records.message import Message
from millstream.sdk.watching.read_result import WatchLimits, from_on, size_of

ALL_BYTES = 64 * 1024 * 1024
SHELF_BYTES = 4 * 1024 * 1024
KEEP_S = 5.0

_CHUNK_BYTES = 400
_MESSAGE_BYTES = 200
"""What an object of ours takes, about, besides what it holds."""

_begin = attrgetter("begin")


class RecentChunk:
    """What one delivery brought: the messages from `begin` up to `end`."""

    __slots__ = ("_messages", "_stored", "begin", "came_s", "end", "size_bytes")

    def __init__(self, begin: int, end: int, stored: memoryview, came_s: float) -> None:
        self.begin = begin
        self.end = end
        self.came_s = came_s
        self.size_bytes = _CHUNK_BYTES + len(stored)
        self._stored = stored
        self._messages: list[Message] | None = None

    def open(self, where: TopicPartition) -> list[Message]:
        """Its messages, for all who want them: not to be changed. CORRUPT_MESSAGE when they are damaged."""
        if self._messages is None:
            self._messages = from_on(decode_messages(self._stored, *where), self.begin)
            self._stored = memoryview(b"")
            self.size_bytes = _CHUNK_BYTES + sum(_MESSAGE_BYTES + size_of(message) for message in self._messages)
        return self._messages


class RecentMessages:
    """The last chunks of one partition."""

    __slots__ = ("_chunks", "size_bytes", "where")

    def __init__(self, where: TopicPartition) -> None:
        self.where = where
        self.size_bytes = 0
        self._chunks: list[RecentChunk] = []

    def __len__(self) -> int:
        return len(self._chunks)

    def __getitem__(self, number: int) -> RecentChunk:
        return self._chunks[number]

    def find(self, offset: int) -> int:
        """The number of the chunk that has `offset`; -1 when none has."""
        number = bisect_right(self._chunks, offset, key=_begin) - 1
        return number if number >= 0 and offset < self._chunks[number].end else -1

    def append(self, chunk: RecentChunk) -> None:
        self._chunks.append(chunk)
        self.size_bytes += chunk.size_bytes

    def drop_first(self) -> RecentChunk:
        chunk = self._chunks.pop(0)
        self.size_bytes -= chunk.size_bytes
        return chunk


class RecentCache:
    """All shelves of a client together."""

    def __init__(self, all_bytes: int = ALL_BYTES, shelf_bytes: int = SHELF_BYTES, keep_s: float = KEEP_S) -> None:
        self.size_bytes = 0
        self._all_bytes = all_bytes
        self._shelf_bytes = shelf_bytes
        self._keep_s = keep_s
        self._order: OrderedDict[RecentChunk, RecentMessages] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def put(self, shelf: RecentMessages, chunk: RecentChunk) -> None:
        """Keep it behind what the shelf has; it begins where that ends."""
        assert not len(shelf) or shelf[-1].end == chunk.begin, "chunks lie end to end"
        shelf.append(chunk)
        self._order[chunk] = shelf
        self.size_bytes += chunk.size_bytes
        self._make_room(shelf)

    def take(self, shelf: RecentMessages, offset: int, limits: WatchLimits) -> tuple[list[Message], int] | None:
        """Messages from `offset` on, at least as many as the limits allow if they are here, and where to go on.

        None when `offset` is not here, or when what is here cannot be read: then it is not kept either.
        """
        number = shelf.find(offset)
        if number < 0:
            return None
        messages: list[Message] = []
        size_bytes, end = 0, offset
        try:
            while number < len(shelf) and len(messages) < limits.messages and size_bytes < limits.size_bytes:
                chunk = shelf[number]
                messages += from_on(self._opened(shelf, chunk), offset)
                size_bytes += chunk.size_bytes
                end = chunk.end
                number += 1
        except MillstreamError:
            self.clear(shelf)
            return None
        self._make_room(shelf)
        return messages, end

    def clear(self, shelf: RecentMessages) -> None:
        while len(shelf):
            self._drop_first(shelf)

    def expire(self, now_s: float) -> None:
        """Forget what has been here for long enough."""
        while self._order:
            chunk, shelf = next(iter(self._order.items()))
            if chunk.came_s + self._keep_s > now_s:
                return
            self._drop_first(shelf)

    def _opened(self, shelf: RecentMessages, chunk: RecentChunk) -> list[Message]:
        before = chunk.size_bytes
        messages = chunk.open(shelf.where)
        shelf.size_bytes += chunk.size_bytes - before
        self.size_bytes += chunk.size_bytes - before
        return messages

    def _make_room(self, shelf: RecentMessages) -> None:
        while shelf.size_bytes > self._shelf_bytes:
            self._drop_first(shelf)
        while self.size_bytes > self._all_bytes:
            self._drop_first(next(iter(self._order.values())))

    def _drop_first(self, shelf: RecentMessages) -> None:
        chunk = shelf.drop_first()
        del self._order[chunk]
        self.size_bytes -= chunk.size_bytes
