"""Describes what one call has taken from a delivered buffer, so that it can be put back if the call is interrupted.

Pure: it computes the chunks and offsets, and the buffer puts them in place.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from millstream.model.names import TopicPartition
from millstream.records.message import Message
from millstream.sdk.feed.fetched_chunk import FetchedChunk

_offset = attrgetter("offset")


class TakenMessages(NamedTuple):
    """Messages that the current call has taken from the open chunk: those from `offset` on."""

    chunk: FetchedChunk
    messages: list[Message]
    """The messages of the chunk, and possibly others behind them: the caller may extend the list."""
    length: int
    offset: int

    def again(self) -> FetchedChunk | None:
        """Return a chunk with these messages and the later ones of the open chunk; None if there are none."""
        first = bisect_left(self.messages, self.offset, 0, self.length, key=_offset)
        end = bisect_left(self.messages, self.chunk.next_offset, first, self.length, key=_offset)
        return self.chunk.rest(self.offset, self.messages[first:end]) if first < end else None


class TakenChunk(NamedTuple):
    """A chunk that the current call has converted, and the unread chunk from which it was read, if any."""

    chunk: FetchedChunk
    source: FetchedChunk

    @property
    def offset(self) -> int:
        return self.source.offset


class OpenChunk(NamedTuple):
    """The chunk that is open, if any, and its messages."""

    chunk: FetchedChunk | None
    messages: list[Message]


def untaken(
    taken: Sequence[TakenMessages | TakenChunk], opened: OpenChunk, following: Sequence[FetchedChunk]
) -> tuple[list[FetchedChunk], dict[TopicPartition, int]]:
    """Return the contents of the buffer after an interrupted call: its chunks, and the position of each partition."""
    chunks, offsets = list(following), dict[TopicPartition, int]()
    parts, chunk = list(taken), opened.chunk
    if chunk is not None and all(part.chunk is not chunk for part in parts):
        parts.append(TakenMessages(chunk, opened.messages, len(opened.messages), chunk.offset))
    for part in reversed(parts):
        where = part.chunk.where
        if isinstance(part, TakenChunk):
            offsets[where] = part.offset
            chunks = _unread(part, chunks)
            continue
        again = part.again()
        offsets[where] = part.chunk.next_offset if again is None else again.offset
        if again is not None:
            chunks.insert(0, again)
    return chunks, offsets


def _unread(part: TakenChunk, pieces: list[FetchedChunk]) -> list[FetchedChunk]:
    """Return the chunks that follow once this one is put back; `pieces` are those that follow it now.

    A chunk that was read from a file is put back unread, together with its other pieces: its bytes are in a buffer that
    the next read overwrites.
    """
    if part.source.place is None:
        return [part.source, *pieces]
    return [part.source.until(pieces[-1].next_offset if pieces else part.chunk.next_offset)]
