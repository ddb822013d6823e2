"""One partition while it is read, and what was fetched of it and not handed out yet."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from uuid import UUID

from millstream.model.names import TopicPartition
from millstream.records.batch import decode_messages, each_piece, unpacked
from millstream.records.message import Message
from millstream.sdk.connection.address import Address
from millstream.sdk.consuming.batch_opening import HEAVY_BYTES
from millstream.sdk.consuming.local_files import LocalFileReader, ScratchBuffer
from millstream.sdk.responses import FetchedBatches
from millstream.seams.file_part import FilePlace

PIECE_BYTES = 1024 * 1024
"""As much is opened at once: the messages of more would drive each other out of the processor's caches."""
COLUMNS_BYTES = 2 * 1024 * 1024
"""As much is made columns of at once: they take little more than the bytes they are made of, but each has its price."""

LYING_RATIO = 16
"""What lies in a file, and is not read yet, counts for so much less: it takes no memory, but may be gone."""

_offset = attrgetter("offset")


@dataclass(slots=True, eq=False)
class PartitionReader:
    """Invariant: `handed_offset <= fetch_offset`, and what lies between is in this reader's portions, in order."""

    where: TopicPartition
    fetch_offset: int
    """Where the next fetch begins: behind all that was fetched, handed out or not."""
    handed_offset: int
    """Behind all that was handed out."""
    topic_id: UUID
    """Of the topic that its offsets are places in."""
    stop_offset: int | None = None
    """Where reading ends; None where it does not."""
    is_paused: bool = False
    leader: Address | None = None
    failures: int = 0
    """How often in a row it went wrong in a way that mostly stays."""
    high_watermark: int = -1
    """Where the partition ended when it was last heard of; -1 before."""

    @property
    def is_finished(self) -> bool:
        """Whether all up to the stop was handed out."""
        return self.stop_offset is not None and self.handed_offset >= self.stop_offset

    @property
    def wants_more(self) -> bool:
        return not self.is_paused and (self.stop_offset is None or self.fetch_offset < self.stop_offset)

    def move(self, offset: int) -> None:
        """Go on from there, whatever was fetched."""
        self.fetch_offset = self.handed_offset = offset


class FetchedChunk:
    """What one fetch brought of one partition, or what is left of that; closed until somebody wants it."""

    __slots__ = (
        "_messages",
        "_packed_bytes",
        "high_watermark",
        "is_packed",
        "nearby",
        "next_offset",
        "offset",
        "place",
        "reader",
        "stored",
        "was_opened",
    )

    def __init__(
        self, reader: PartitionReader, offset: int, next_offset: int, stored: memoryview, high_watermark: int
    ) -> None:
        self.reader = reader
        self.offset = offset
        """Messages before it are not meant: a batch may begin earlier than was asked for."""
        self.next_offset = next_offset
        """Messages from there on are not meant either."""
        self.stored = stored
        self.high_watermark = high_watermark
        self.is_packed = False
        """Whether it is compressed, and large, or to be read: who opens it would hold the event loop for long."""
        self.place: FilePlace | None = None
        """Where it is to be read from; None for what is here."""
        self.nearby: LocalFileReader | None = None
        """Whom to tell whether it was there."""
        self.was_opened = False
        """Whether it is what is left of one that was open."""
        self._packed_bytes: int | None = None
        self._messages: list[Message] | None = None

    @classmethod
    def each(cls, reader: PartitionReader, fetched: FetchedBatches, piece_bytes: int) -> Iterator["FetchedChunk"]:
        """What was asked for at the reader's `fetch_offset`, in pieces."""
        offset = reader.fetch_offset
        stop_offset = reader.stop_offset
        for stored, next_offset, is_packed in each_piece(fetched.batches, offset, piece_bytes):
            is_last = stop_offset is not None and next_offset > stop_offset
            end = max(stop_offset or 0, offset) if is_last else next_offset
            portion = cls(reader, offset, end, stored, fetched.high_watermark)
            portion.is_packed = is_packed and len(stored) >= HEAVY_BYTES
            yield portion
            if is_last:
                return
            offset = next_offset

    @classmethod
    def lying(
        cls, reader: PartitionReader, fetched: FetchedBatches, nearby: LocalFileReader, *, is_packed: bool
    ) -> "FetchedChunk":
        """What was asked for there, and lies in a file."""
        end = fetched.next_offset if reader.stop_offset is None else min(fetched.next_offset, reader.stop_offset)
        portion = cls(reader, reader.fetch_offset, end, fetched.batches, fetched.high_watermark)
        portion.place, portion.nearby, portion.is_packed = fetched.place, nearby, is_packed
        return portion

    def unpacked(self, piece_bytes: int, read_bytes: int, scratch: ScratchBuffer | None = None) -> list["FetchedChunk"]:
        """The same messages, not compressed, in pieces; CORRUPT_MESSAGE when they are damaged.

        Of what lies in a file, about `read_bytes` are read; the last of the pieces is the rest, which still does.
        FileMovedError when it is not where it should be. In any thread.
        """
        packed_bytes: int | None = None
        rest: FilePlace | None = None
        if self.place is not None and self.nearby is not None:
            where, bounds = self.reader.where, (self.offset, self.next_offset)
            stored, rest = self.nearby.read(where, self.place, *bounds, read_bytes, scratch)
        else:
            stored, packed_bytes = memoryview(unpacked(self.stored)), self.size_bytes
        found: list[FetchedChunk] = []
        offset = self.offset
        for piece, next_offset, is_packed in each_piece(stored, offset, piece_bytes):
            portion = FetchedChunk(self.reader, offset, min(next_offset, self.next_offset), piece, self.high_watermark)
            portion._packed_bytes = packed_bytes
            portion.is_packed = is_packed and len(piece) >= HEAVY_BYTES
            found.append(portion)
            offset = portion.next_offset
            if next_offset >= self.next_offset:
                break
        if rest is not None and offset < self.next_offset:
            found.append(self._placed(offset, rest))
        elif found:
            found[-1].next_offset = self.next_offset
        else:
            found.append(FetchedChunk(self.reader, offset, self.next_offset, stored, self.high_watermark))
        return found

    def _placed(self, offset: int, place: FilePlace) -> "FetchedChunk":
        """What is left of it from `offset` on, at this place."""
        rest = FetchedChunk(self.reader, offset, self.next_offset, self.stored, self.high_watermark)
        rest.place, rest.nearby, rest.is_packed = place, self.nearby, self.is_packed
        return rest

    @property
    def held_bytes(self) -> int:
        """What it counts for among all that is fetched ahead."""
        return len(self.stored) if self.place is None else self.place.size_bytes // LYING_RATIO

    @property
    def size_bytes(self) -> int:
        return len(self.stored) if self.place is None else self.place.size_bytes

    def open(self) -> list[Message]:
        """Its messages; CORRUPT_MESSAGE when they are damaged."""
        if self._messages is None:
            messages = decode_messages(self.stored, *self.reader.where, packed_bytes=self._packed_bytes)
            if messages and (messages[0].offset < self.offset or messages[-1].offset >= self.next_offset):
                first = bisect_left(messages, self.offset, key=_offset)
                messages = messages[first : bisect_left(messages, self.next_offset, key=_offset)]
            self._messages = messages
        return self._messages

    def split(self, rest: list[Message]) -> "FetchedChunk":
        """The part of it that begins with `rest`, its last messages; the portion itself ends there from now on."""
        left = FetchedChunk(self.reader, rest[0].offset, self.next_offset, self.stored, self.high_watermark)
        left._messages = rest
        left.was_opened = True
        self.next_offset = left.offset
        return left
