"""One partition while it is read, and what was fetched of it and not handed out yet."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from uuid import UUID

from penstock.model.names import TopicPartition
from penstock.records.batch import decode_messages, each_piece, unpacked
from penstock.records.message import Message
from penstock.sdk.address import Address
from penstock.sdk.answers import FetchedBatches
from penstock.sdk.consuming.opening import HEAVY_BYTES

PIECE_BYTES = 1024 * 1024
"""As much is opened at once: the messages of more would drive each other out of the processor's caches."""

_offset = attrgetter("offset")


@dataclass(slots=True, eq=False)
class Reader:
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


class Portion:
    """What one fetch brought of one partition, or what is left of that; closed until somebody wants it."""

    __slots__ = (
        "_messages",
        "_packed_bytes",
        "high_watermark",
        "is_packed",
        "next_offset",
        "offset",
        "reader",
        "stored",
    )

    def __init__(self, reader: Reader, offset: int, next_offset: int, stored: memoryview, high_watermark: int) -> None:
        self.reader = reader
        self.offset = offset
        """Messages before it are not meant: a batch may begin earlier than was asked for."""
        self.next_offset = next_offset
        """Messages from there on are not meant either."""
        self.stored = stored
        self.high_watermark = high_watermark
        self.is_packed = False
        """Whether it is compressed, and large: who opens it would hold the event loop for long."""
        self._packed_bytes: int | None = None
        self._messages: list[Message] | None = None

    @classmethod
    def each(cls, reader: Reader, fetched: FetchedBatches) -> Iterator["Portion"]:
        """What was asked for at the reader's `fetch_offset`, in pieces."""
        offset = reader.fetch_offset
        stop_offset = reader.stop_offset
        for stored, next_offset, is_packed in each_piece(fetched.batches, offset, PIECE_BYTES):
            is_last = stop_offset is not None and next_offset > stop_offset
            end = max(stop_offset or 0, offset) if is_last else next_offset
            portion = cls(reader, offset, end, stored, fetched.high_watermark)
            portion.is_packed = is_packed and len(stored) >= HEAVY_BYTES
            yield portion
            if is_last:
                return
            offset = next_offset

    def unpacked(self) -> list["Portion"]:
        """The same messages, not compressed, in pieces again; CORRUPT_MESSAGE when they are damaged. In any thread."""
        stored = memoryview(unpacked(self.stored))
        found: list[Portion] = []
        offset = self.offset
        for piece, next_offset, _ in each_piece(stored, offset, PIECE_BYTES):
            portion = Portion(self.reader, offset, min(next_offset, self.next_offset), piece, self.high_watermark)
            portion._packed_bytes = self.size_bytes
            found.append(portion)
            offset = portion.next_offset
        if not found:
            return [Portion(self.reader, offset, self.next_offset, stored, self.high_watermark)]
        found[-1].next_offset = self.next_offset
        return found

    @property
    def size_bytes(self) -> int:
        return len(self.stored)

    def open(self) -> list[Message]:
        """Its messages; CORRUPT_MESSAGE when they are damaged."""
        if self._messages is None:
            messages = decode_messages(self.stored, *self.reader.where, packed_bytes=self._packed_bytes)
            if messages and (messages[0].offset < self.offset or messages[-1].offset >= self.next_offset):
                first = bisect_left(messages, self.offset, key=_offset)
                messages = messages[first : bisect_left(messages, self.next_offset, key=_offset)]
            self._messages = messages
        return self._messages

    def split(self, rest: list[Message]) -> "Portion":
        """The part of it that begins with `rest`, its last messages; the portion itself ends there from now on."""
        left = Portion(self.reader, rest[0].offset, self.next_offset, self.stored, self.high_watermark)
        left._messages = rest
        self.next_offset = left.offset
        return left
