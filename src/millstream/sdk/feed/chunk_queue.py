"""Queues the unopened chunks of a delivered buffer: the pieces of the last opened chunk, and the chunks after them.

The caller takes from the left and the engine takes back from the right, perhaps in another thread. Each step on a deque
is atomic, so exactly one of them gets each chunk. CPython runs signal handlers at function entries and calls: `pop`
and `add_pieces` have none after their effect.
"""

from collections import deque
from collections.abc import Iterable

from millstream.sdk.feed.fetched_chunk import FetchedChunk


class ChunkQueue:
    def __init__(self, chunks: Iterable[FetchedChunk] = (), pieces: Iterable[FetchedChunk] = ()) -> None:
        self._closed = deque(chunks)
        self._pieces = deque(pieces)
        """The remaining pieces of the last chunk that was read from a file or cut into batches."""

    def __len__(self) -> int:
        return len(self._closed) + len(self._pieces)

    @property
    def pieces(self) -> list[FetchedChunk]:
        return list(self._pieces)

    def with_pieces(self, pieces: Iterable[FetchedChunk]) -> "ChunkQueue":
        """Return a queue with the same chunks and other pieces. This queue must not be used any more."""
        other = ChunkQueue((), pieces)
        other._closed = self._closed
        return other

    def pop(self) -> FetchedChunk | None:
        """Remove and return the first chunk; None if there is none."""
        waiting = self._pieces or self._closed
        try:
            chunk = waiting[0]
            del waiting[0]
        except IndexError:
            return None
        return chunk

    def add_pieces(self, pieces: list[FetchedChunk]) -> None:
        """Add the other pieces of the chunk that was removed. There are no other pieces if it was not the last one."""
        self._pieces += pieces

    def put_first(self, *chunks: FetchedChunk) -> None:
        """Put chunks, in order, before all others."""
        self._pieces.extendleft(chunks[::-1])

    def begins_with(self, chunks: list[FetchedChunk]) -> bool:
        """True if the first of these chunks, if there are any, is the first of the queue."""
        return bool(chunks and self._pieces) and self._pieces[0] is chunks[0]

    def take_back(self, back: deque[FetchedChunk]) -> None:
        """Move all chunks to the front of `back`."""
        for waiting in (self._closed, self._pieces):
            try:
                while True:
                    back.appendleft(waiting.pop())
            except IndexError:
                pass  # The caller may empty it at any time.
