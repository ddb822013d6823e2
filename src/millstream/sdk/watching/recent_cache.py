"""Caches recently delivered messages for the next reads; a chunk is decoded once and shared by all reads.

Invariants:
- The chunks of a partition have no gap, so the cache holds every message between its first and its last offset.
- A chunk is in its partition's list exactly while the cache counts it. The cache keeps all chunks in order of arrival,
  so the oldest chunk is the first of its partition.
- The cache and each partition stay within their size limits; the oldest chunks are evicted first.
"""

from bisect import bisect_right
from collections import OrderedDict
from operator import attrgetter

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.message import Message
from millstream.sdk.feed.chunk_opener import LIGHT_BYTES_MAX
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.watching.read_result import WatchLimits, from_on, size_of

ALL_BYTES = 64 * 1024 * 1024
PARTITION_BYTES = 4 * 1024 * 1024
KEEP_S = 5.0

_CHUNK_BYTES = 400
_MESSAGE_BYTES = 200
"""Approximate memory of one chunk object and one message object, in addition to their content."""

_begin = attrgetter("chunk.offset")


class RecentChunk:
    """A cached chunk with its arrival time and its memory use."""

    __slots__ = ("arrived_s", "chunk", "size_bytes")

    def __init__(self, chunk: FetchedChunk, arrived_s: float) -> None:
        self.chunk = chunk
        self.arrived_s = arrived_s
        self.size_bytes = _CHUNK_BYTES + chunk.size_bytes

    def open(self) -> list[Message]:
        """Return the messages, which readers share and must not change. Raises CORRUPT_MESSAGE if they are damaged
        or too large."""
        messages = self.chunk.open(max(LIGHT_BYTES_MAX, self.chunk.size_bytes))
        if self.chunk.drop_stored():
            self.size_bytes = _CHUNK_BYTES + sum(_MESSAGE_BYTES + size_of(message) for message in messages)
        return messages


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
        """Return the index of the chunk that contains `offset`; -1 if none does."""
        number = bisect_right(self._chunks, offset, key=_begin) - 1
        return number if number >= 0 and offset < self._chunks[number].chunk.next_offset else -1

    def append(self, chunk: RecentChunk) -> None:
        self._chunks.append(chunk)
        self.size_bytes += chunk.size_bytes

    def drop_first(self) -> RecentChunk:
        chunk = self._chunks.pop(0)
        self.size_bytes -= chunk.size_bytes
        return chunk


class RecentCache:
    """The recent messages of all partitions that a client watches."""

    def __init__(
        self, *, all_bytes: int = ALL_BYTES, partition_bytes: int = PARTITION_BYTES, keep_s: float = KEEP_S
    ) -> None:
        self.size_bytes = 0
        self._all_bytes = all_bytes
        self._partition_bytes = partition_bytes
        self._keep_s = keep_s
        self._order: OrderedDict[RecentChunk, RecentMessages] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def put(self, recent: RecentMessages, chunk: RecentChunk) -> None:
        """Append a chunk, which must begin at the end of the partition's cached messages."""
        assert not len(recent) or recent[-1].chunk.next_offset == chunk.chunk.offset, "a partition's chunks have no gap"
        recent.append(chunk)
        self._order[chunk] = recent
        self.size_bytes += chunk.size_bytes
        self._make_room(recent)

    def take(self, recent: RecentMessages, offset: int, limits: WatchLimits) -> tuple[list[Message], int] | None:
        """Return cached messages from `offset` on (as many as the limits allow, or more), and the next offset.

        None if `offset` is not cached. If a chunk is damaged, the partition's messages are evicted and None returned.
        """
        number = recent.find(offset)
        if number < 0:
            return None
        messages: list[Message] = []
        size_bytes, end = 0, offset
        try:
            while number < len(recent) and len(messages) < limits.messages and size_bytes < limits.size_bytes:
                chunk = recent[number]
                messages += from_on(self._opened(recent, chunk), offset)
                size_bytes += chunk.size_bytes
                end = chunk.chunk.next_offset
                number += 1
        except MillstreamError:
            self.clear(recent)
            return None
        self._make_room(recent)
        return messages, end

    def clear(self, recent: RecentMessages) -> None:
        while len(recent):
            self._drop_first(recent)

    def expire(self, now_s: float) -> None:
        """Evict chunks older than `keep_s`."""
        while self._order:
            chunk, recent = next(iter(self._order.items()))
            if chunk.arrived_s + self._keep_s > now_s:
                return
            self._drop_first(recent)

    def _opened(self, recent: RecentMessages, chunk: RecentChunk) -> list[Message]:
        before = chunk.size_bytes
        messages = chunk.open()
        recent.size_bytes += chunk.size_bytes - before
        self.size_bytes += chunk.size_bytes - before
        return messages

    def _make_room(self, recent: RecentMessages) -> None:
        while recent.size_bytes > self._partition_bytes:
            self._drop_first(recent)
        while self.size_bytes > self._all_bytes:
            self._drop_first(next(iter(self._order.values())))

    def _drop_first(self, recent: RecentMessages) -> None:
        chunk = recent.drop_first()
        del self._order[chunk]
        self.size_bytes -= chunk.size_bytes
