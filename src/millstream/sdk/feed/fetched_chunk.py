"""Holds records that were fetched or pushed and not taken yet. Consumers, subscriptions, iterators and reads use it.

A chunk consists of whole batches as the broker stores them. Opening it decodes the messages and drops those outside of
`offset..next_offset`.
"""

from bisect import bisect_left
from collections.abc import Iterator
from copy import copy
from operator import attrgetter

from millstream.model.errors import MillstreamError
from millstream.records.batch import DECODED_BYTES_MAX, decode_messages, each_piece, unpacked
from millstream.records.message import Message
from millstream.sdk.feed.batch_opening import HEAVY_BYTES
from millstream.sdk.feed.local_files import LocalFileReader, ScratchBuffer
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.responses import FetchedBatches
from millstream.seams.file_part import FilePlace

PIECE_BYTES = 1024 * 1024
"""Bytes decoded to messages at once. The messages of larger pieces would not fit into the processor's caches."""
COLUMNS_BYTES = 2 * 1024 * 1024
"""Bytes decoded to columns at once. Columns take little more memory than their input, but each batch has a fixed
cost."""

UNREAD_RATIO = 16
"""Unread bytes of a local file count as this much less prefetch: they take no memory, but the file may disappear."""

_offset = attrgetter("offset")


class FetchedChunk:
    """Records of one partition from one fetch or delivery, or the remaining part of them."""

    __slots__ = (
        "_messages",
        "_packed_bytes",
        "failure",
        "feed",
        "high_watermark",
        "is_packed",
        "nearby",
        "next_offset",
        "offset",
        "place",
        "stored",
        "was_opened",
        "where",
    )

    def __init__(
        self,
        feed: PartitionFeed,
        offset: int,
        *,
        next_offset: int,
        stored: memoryview,
        high_watermark: int = -1,
        is_packed: bool = False,
    ) -> None:
        self.feed = feed
        self.where = feed.where
        self.offset = offset
        """The first offset of the chunk. Earlier messages are dropped: a batch may begin before the fetch offset."""
        self.next_offset = next_offset
        """The offset after the chunk. Messages from there on are dropped."""
        self.stored = stored
        self.high_watermark = high_watermark
        self.is_packed = is_packed
        """True if opening it could block the event loop: it is large and compressed, or must be read from a file."""
        self.place: FilePlace | None = None
        """The file position of an unread chunk; None if the bytes are in memory."""
        self.nearby: LocalFileReader | None = None
        """The reader of the broker's files, for an unread chunk."""
        self.was_opened = False
        """True if it is the remaining part of a chunk that was opened before."""
        self.failure: MillstreamError | None = None
        """The error of an attempt to unpack it."""
        self._packed_bytes: int | None = None
        self._messages: list[Message] | None = None

    @classmethod
    def each(
        cls, feed: PartitionFeed, fetched: FetchedBatches, piece_bytes: int, *, stop_offset: int | None = None
    ) -> Iterator["FetchedChunk"]:
        """Split fetched batches into chunks of about `piece_bytes`, from the feed's offset up to the stop offset."""
        offset = feed.offset
        for stored, next_offset, is_packed in each_piece(fetched.batches, offset, size_bytes=piece_bytes):
            is_last = stop_offset is not None and next_offset > stop_offset
            end = max(stop_offset or 0, offset) if is_last else next_offset
            chunk = cls(feed, offset, next_offset=end, stored=stored, high_watermark=fetched.high_watermark)
            chunk.is_packed = is_packed and len(stored) >= HEAVY_BYTES
            yield chunk
            if is_last:
                return
            offset = next_offset

    @classmethod
    def unread(
        cls,
        feed: PartitionFeed,
        fetched: FetchedBatches,
        nearby: LocalFileReader,
        *,
        is_packed: bool,
        stop_offset: int | None = None,
    ) -> "FetchedChunk":
        """Make the chunk for batches that must be read from a local file, from the feed's offset on."""
        end = fetched.next_offset if stop_offset is None else min(fetched.next_offset, stop_offset)
        chunk = cls(feed, feed.offset, next_offset=end, stored=fetched.batches, high_watermark=fetched.high_watermark)
        chunk.place, chunk.nearby, chunk.is_packed = fetched.place, nearby, is_packed
        return chunk

    def unpacked(
        self,
        *,
        piece_bytes: int,
        read_bytes: int,
        scratch: ScratchBuffer | None = None,
        limit_bytes: int = DECODED_BYTES_MAX,
    ) -> list["FetchedChunk"]:
        """Decompress this chunk and split it into chunks of about `piece_bytes`. May run in any thread.

        An unread chunk is read, up to about `read_bytes`; the last of the returned chunks is then the unread rest.
        Raises CORRUPT_MESSAGE if a batch is damaged or cannot be decompressed, and FileMovedError if the file does not
        hold the batches any more.
        """
        packed_bytes: int | None = None
        rest: FilePlace | None = None
        if self.place is not None and self.nearby is not None:
            stored, rest = self.nearby.read(
                self.where,
                self.place,
                offset=self.offset,
                end_offset=self.next_offset,
                size_bytes=read_bytes,
                scratch=scratch,
            )
        else:
            stored, packed_bytes = memoryview(unpacked(self.stored, limit_bytes=limit_bytes)), self.size_bytes
        found: list[FetchedChunk] = []
        offset = self.offset
        for piece, next_offset, is_packed in each_piece(stored, offset, size_bytes=piece_bytes):
            is_heavy = is_packed and len(piece) >= HEAVY_BYTES
            chunk = self.part(offset, next_offset=min(next_offset, self.next_offset), stored=piece, is_packed=is_heavy)
            chunk._packed_bytes = packed_bytes
            found.append(chunk)
            offset = chunk.next_offset
            if next_offset >= self.next_offset:
                break
        if rest is not None and offset < self.next_offset:
            found.append(self._placed(offset, rest))
        elif found:
            found[-1].next_offset = self.next_offset
        else:
            found.append(self.without_messages(self.next_offset))
        return found

    def _placed(self, offset: int, place: FilePlace) -> "FetchedChunk":
        """Make the unread rest of this chunk, from `offset` on, at this file position."""
        rest = FetchedChunk(
            self.feed, offset, next_offset=self.next_offset, stored=self.stored, high_watermark=self.high_watermark
        )
        rest.place, rest.nearby, rest.is_packed = place, self.nearby, self.is_packed
        return rest

    @property
    def held_bytes(self) -> int:
        """Number of bytes that this chunk counts as prefetched."""
        return len(self.stored) if self.place is None else self.place.size_bytes // UNREAD_RATIO

    @property
    def size_bytes(self) -> int:
        return len(self.stored) if self.place is None else self.place.size_bytes

    def open(self, limit_bytes: int = DECODED_BYTES_MAX) -> list[Message]:
        """Return the messages, decoded at the first call; they may unpack to at most `limit_bytes`.

        Raises CORRUPT_MESSAGE if a batch is damaged or cannot be decoded.
        """
        if self.failure is not None:
            raise copy(self.failure)
        if self._messages is None:
            messages = decode_messages(
                self.stored, *self.where, limit_bytes=limit_bytes, packed_bytes=self._packed_bytes
            )
            if messages and (messages[0].offset < self.offset or messages[-1].offset >= self.next_offset):
                first = bisect_left(messages, self.offset, key=_offset)
                messages = messages[first : bisect_left(messages, self.next_offset, key=_offset)]
            self._messages = messages
        return self._messages

    def part(self, offset: int, *, next_offset: int, stored: memoryview, is_packed: bool = False) -> "FetchedChunk":
        """Return the chunk of some of this chunk's batches, or of none of them, for these offsets."""
        part = FetchedChunk(
            self.feed,
            offset,
            next_offset=next_offset,
            stored=stored,
            high_watermark=self.high_watermark,
            is_packed=is_packed,
        )
        part._packed_bytes = self._packed_bytes
        return part

    def without_messages(self, next_offset: int) -> "FetchedChunk":
        """Return a chunk without messages, from the same offset on."""
        return self.part(self.offset, next_offset=next_offset, stored=memoryview(b""))

    def fail(self, error: MillstreamError) -> None:
        """Set the error of an attempt to unpack the chunk; opening it raises the same error without another attempt."""
        self.failure = error

    def drop_stored(self) -> bool:
        """Release the stored bytes of an opened chunk and keep its messages; True if there were bytes to release."""
        if self._messages is None or not len(self.stored):
            return False
        self.stored = memoryview(b"")
        return True

    def split(self, rest: list[Message]) -> "FetchedChunk":
        """Split off the last messages (`rest`) as a chunk of their own; this chunk then ends before them."""
        left = self.rest(rest[0].offset, rest)
        self.next_offset = left.offset
        return left

    def rest(self, offset: int, messages: list[Message]) -> "FetchedChunk":
        """Return the part of this opened chunk from `offset` on, which has these messages."""
        rest = FetchedChunk(
            self.feed, offset, next_offset=self.next_offset, stored=self.stored, high_watermark=self.high_watermark
        )
        rest._messages = messages
        rest.was_opened = True
        return rest

    def until(self, next_offset: int) -> "FetchedChunk":
        """Return the part of this unread chunk before `next_offset`."""
        assert self.place is not None, "only an unread chunk can be read again"
        part = self._placed(self.offset, self.place)
        part.next_offset = next_offset
        return part
