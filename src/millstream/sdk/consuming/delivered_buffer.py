"""Holds chunks that the engine has delivered to the caller, and the messages of the chunk that the caller has opened.

The caller opens chunks and takes messages synchronously, without an event loop, possibly in another thread than the
engine's. It blocks only to read a local file. This buffer is the only object that both threads use. Invariants:

- The caller pops from the left of `_queue` and `_left`; the engine pops from the right to take back what the caller
  has not taken. Each pop is atomic, so exactly one thread gets each item, and messages need no lock.
- The engine takes nothing back from an open chunk of which the caller has taken no message yet (`_left` is None).
- The caller does not leave a chunk while the engine takes messages of it back (`_leaving`).
- A chunk that is being read or opened (`_is_opening`) is in no queue. None of it counts as taken. If opening is
  interrupted, the chunk is put back.
- The messages that the caller took last count as in progress until it asks for more; earlier messages are finished.
- A signal handler may raise in any call of the caller, also after the call has taken messages. `_taken` lists what the
  current call has taken, until the next call begins. A call that raises puts it back (`put_back`).

CPython runs signal handlers at calls, loop jumps and function entries. The statements that must not be separated have
none of these between them: removing a chunk and entering the `try` that puts it back, opening a chunk and noting it as
taken, and the assignments that end `put_back`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock
from typing import TypeVar

from millstream.model.errors import MillstreamError, UnreadableError
from millstream.model.names import TopicPartition
from millstream.records.header import CorruptBatch
from millstream.records.message import Message
from millstream.sdk.consuming.bad_values import SkippingDecoder
from millstream.sdk.consuming.decoding import Decode, decode_first, decode_some
from millstream.sdk.consuming.taken_parts import OpenChunk, TakenChunk, TakenMessages, untaken
from millstream.sdk.feed.chunk_queue import ChunkQueue
from millstream.sdk.feed.fetched_chunk import COLUMNS_BYTES, PIECE_BYTES, FetchedChunk
from millstream.sdk.feed.local_files import MORE_BYTES, ScratchBuffer
from millstream.sdk.feed.undecodable_batches import isolated
from millstream.seams.signal_handlers import raised_by_signal_handler

T = TypeVar("T")

ValueDecoder = Decode | SkippingDecoder

ENOUGH = 1_000
"""`some` opens no further chunk once it has this many messages."""


class DeliveredBuffer:
    """Buffer between one engine and one caller.

    `decode` decodes values. The error of an undecodable message is raised when the message is next, and the message
    is skipped. A `SkippingDecoder` skips it without raising. If `reads` is true, the caller reads chunks from local
    files itself; otherwise the engine delivers them already read. `skips` skips batches that cannot be decoded.
    """

    def __init__(self, decode: ValueDecoder | None = None, *, reads: bool = False, skips: bool = False) -> None:
        self.reads = reads
        self._skips = skips
        self.turns = 0
        """Number of times that the caller has taken messages. A changed number shows that the caller is alive."""
        self.wants_columns = False
        """True if the caller last took a record batch, false if it last took messages."""
        self.damage: tuple[FetchedChunk, MillstreamError] | None = None
        """The chunk that could not be opened, and the error."""
        self.opened: list[tuple[str, int, int]] = []
        """Topic, number of messages and bytes of each opened chunk that is not yet counted in the metrics."""
        self._decode = decode
        self.skipping = decode if isinstance(decode, SkippingDecoder) else None
        """The decoder if it skips undecodable messages; the engine reads its counts."""
        self._decode_first = None if decode is None else partial(decode_first, decode)
        self._queue = ChunkQueue()
        self._leaving = Lock()
        self._is_opening = False
        self._chunk: FetchedChunk | None = None
        self._all: list[Message] = []
        self._left: deque[Message] | None = deque()
        self._memory: ScratchBuffer | None = None
        self._behind: dict[TopicPartition, int] = {}
        """The offset after the last chunk that was taken completely, for each partition."""
        self._work: dict[TopicPartition, int] | None = {}
        """The first offset in progress for each partition; None if only the last message taken is in progress."""
        self._taken: list[TakenMessages | TakenChunk] = []
        """The parts of chunks that the current call has taken."""
        self._is_interrupted = False
        """True if the current call has raised and what it has taken is not put back yet."""

    # Called by the caller, in its own thread.

    def __len__(self) -> int:
        """Count the remaining messages of the open chunk and the unopened chunks."""
        messages = self._all if self._left is None else self._left
        return self._is_opening + len(self._queue) + len(messages)

    def begin(self) -> None:
        """Begin a call that takes messages: the caller has what the previous call returned."""
        if self._is_interrupted:
            self.put_back()
        self._taken = []

    def put_back(self) -> None:
        """Put back everything that the current call has taken, because it raises instead of returning it."""
        self._is_interrupted = True
        with self._leaving:
            if self._taken:
                damaged = [] if self.damage is None else [self.damage[0]]
                opened = OpenChunk(self._chunk, self._all)
                pieces, offsets = untaken(self._taken, opened, [*damaged, *self._queue.pieces])
                behind, waiting, nothing = self._behind | offsets, self._queue.with_pieces(pieces), deque[Message]()
                self._behind, self._queue, self._left, self._all, self._chunk = behind, waiting, nothing, [], None
                self.damage, self._work = None, {}
            self._taken = []
            self._is_interrupted = False

    def open(self) -> bool:
        """Open the next chunk if the open one has no messages left; return false if there are no messages."""
        while self._left is not None and not self._left:
            opened = self._opened(FetchedChunk.open, piece_bytes=PIECE_BYTES, read_bytes=PIECE_BYTES)
            if opened is None:
                return False
            _, chunk, self._all = opened
            self._left = None if self._all else self._left
            self._chunk = chunk
            self.note(chunk, len(self._all))
        return True

    def note(self, chunk: FetchedChunk, count: int) -> None:
        """Record for the metrics that a chunk was opened; a chunk that was opened before is not counted again."""
        if not chunk.was_opened:
            self.opened.append((chunk.where.topic, count, chunk.size_bytes))

    def _opened(
        self,
        opens: Callable[[FetchedChunk], T],
        *,
        piece_bytes: int,
        read_bytes: int,
        scratch: ScratchBuffer | None = None,
    ) -> tuple[FetchedChunk, FetchedChunk, T] | None:
        """Take the next chunk and open it with `opens`; None if there is no chunk or it is damaged.

        Returns the chunk, the chunk or piece that was opened, and the result of `opens`. A chunk in a local file is
        read and cut into pieces. A chunk that cannot be opened is cut into its batches.
        """
        if self.damage is not None:
            return None
        assert not self._is_opening, "the caller opens one chunk at a time"
        self._is_opening = True
        try:
            self._leave()
            chunk = self._queue.pop()
            if chunk is None:
                return None
            parts: list[FetchedChunk] = []
            try:
                first, pieces = chunk, list[FetchedChunk]()
                if chunk.place is not None:
                    first, *pieces = chunk.unpacked(piece_bytes=piece_bytes, read_bytes=read_bytes, scratch=scratch)
                try:
                    made = opens(first)
                    self._queue.add_pieces(pieces)
                    return chunk, first, made
                except (CorruptBatch, UnreadableError) as error:
                    parts = isolated(first, error, skips=self._skips, is_raised=first is chunk)
                self._queue.put_first(*parts, *pieces)
                empty = first.without_messages(first.offset)
                return empty, empty, opens(empty)
            except MillstreamError as error:
                self.damage = chunk, error
                return None
            except BaseException:
                if not self._queue.begins_with(parts):
                    self._queue.put_first(chunk)
                raise
        finally:
            self._is_opening = False

    def _leave(self) -> None:
        """Close the open chunk: the caller has taken all of it."""
        with self._leaving:
            if self._chunk is not None:
                self._behind[self._chunk.where] = self._chunk.next_offset
                self._chunk = None
            self._all = []

    def each(self) -> tuple[deque[Message], Callable[[deque[Message]], Message] | None]:
        """Return the messages of the open chunk, and the function that decodes the first message, if there is one.

        The caller removes a message from the left and returns it without any call in between. The engine may remove
        messages from the right at any time.
        """
        self.turns += 1
        self.wants_columns = False
        self._work = None
        return self._begun(), self._decode_first

    def some(self, count_max: int) -> list[Message]:
        """Take up to `count_max` messages. The error of an undecodable message is raised when it is the first."""
        self.turns += 1
        self.wants_columns = False
        self._work = {}
        found = self.some_of_one(count_max)
        while found and len(found) < min(count_max, ENOUGH) and self._decode is None and self.open():
            found += self.some_of_one(count_max - len(found))
        return found

    def some_of_one(self, count_max: int) -> list[Message]:
        """Take up to `count_max` messages, from the open chunk only."""
        chunk = self._chunk
        if chunk is None:
            return []
        if self._left is None and self._decode is None and len(self._all) <= count_max:
            self._note_taken(chunk, chunk.offset)
            everything, self._all, self._left = self._all, [], deque()
            return everything
        left = self._begun()
        if not left:
            return []
        self._note_taken(chunk, left[0].offset)
        found = _popped(left, count_max)
        try:
            return found if self._decode is None else decode_some(self._decode, found, left)
        except Exception as error:
            if not raised_by_signal_handler(error):
                self._taken = []  # The message is skipped.
            raise

    def _note_taken(self, chunk: FetchedChunk, offset: int) -> None:
        """Note that the current call takes messages of this chunk from here on, before it does."""
        work = self._work = {} if self._work is None else self._work
        work.setdefault(chunk.where, offset)
        self._taken.append(TakenMessages(chunk, self._all, len(self._all), offset))

    def one(self) -> list[Message]:
        """Take all remaining messages of the open chunk."""
        self.turns += 1
        self._work = {}
        return self.some_of_one(len(self))

    def whole(self, opens: Callable[[FetchedChunk], T]) -> tuple[FetchedChunk, T] | None:
        """Take the next closed chunk and convert it with `opens`, which must not keep references to its bytes.

        None if there is no chunk, if it is damaged, or if messages of an open chunk come first.
        """
        self.turns += 1
        self.wants_columns = True
        if self._left is None or self._left:
            return None
        found = self._opened(
            opens, piece_bytes=COLUMNS_BYTES + MORE_BYTES, read_bytes=COLUMNS_BYTES, scratch=self._scratch()
        )
        if found is None:
            return None
        source, chunk, made = found
        self._taken, self._chunk, self._work = [TakenChunk(chunk, source)], chunk, {chunk.where: chunk.offset}
        return chunk, made

    def note_turn(self) -> None:
        """Note that the caller is alive."""
        self.turns += 1

    def drop(self) -> None:
        """Discard the open chunk's messages. A running loop then asks the engine for more, which raises the reason."""
        (self._left or deque()).clear()

    def _scratch(self) -> ScratchBuffer | None:
        """Return the reusable read buffer for chunks that become columns at once, so that their bytes are not kept."""
        if self._memory is None and self.reads:
            self._memory = ScratchBuffer(COLUMNS_BYTES)
        return self._memory

    def _begun(self) -> deque[Message]:
        if self._left is None:
            self._left = deque(self._all)
        return self._left

    # Called by the engine.

    def give(self, chunks: Iterable[FetchedChunk]) -> None:
        """Replace the buffer's content with these chunks. The caller must be waiting for the engine."""
        self.damage = None
        self._taken = []
        self._chunk = None
        self._all, self._left = [], deque()
        self._behind, self._work = {}, {}
        self._queue = ChunkQueue(chunks)

    def close(self) -> None:
        """Empty the buffer for good, and release its memory and its reader thread."""
        self.take_back()
        self.give(())
        self.reads = False
        self._memory = None

    def forget(self, where: TopicPartition) -> None:
        """Forget the caller's position in this partition, after a seek."""
        self._behind.pop(where, None)
        if self._chunk is not None and self._chunk.where == where:
            self._chunk = None

    @property
    def progress(self) -> int:
        """A number that changes whenever the caller takes messages."""
        return (self.turns << 32) - (len(self._left) if self._left is not None else 0)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset after the last message taken, for each partition of which any was taken."""
        positions = dict(self._behind)
        chunk, left = self._chunk, self._left
        if chunk is not None:
            here = chunk.offset if left is None else left[0].offset if left else chunk.next_offset
            positions[chunk.where] = here
        return positions

    def finished(self) -> dict[TopicPartition, int]:
        """Return the offset after the last finished message, for the same partitions as `positions`."""
        positions = self.positions()
        chunk, left = self._chunk, self._left
        if self._work is not None:
            return positions | self._work
        if chunk is not None and left is not None and len(left) < len(self._all):
            positions[chunk.where] = self._all[len(self._all) - len(left) - 1].offset
        return positions

    def take_back(self) -> list[FetchedChunk]:
        """Return to the engine everything that the caller has not taken, except an open chunk that it has not begun."""
        back: deque[FetchedChunk] = deque()
        rest: deque[Message] = deque()
        with self._leaving:
            self._queue.take_back(back)
            if self._left is not None:
                _move(self._left, rest)
            assert len(rest) <= len(self._all), "what is left of a chunk is a part of it"
            if rest and self._chunk is not None:
                self._all = self._all[: len(self._all) - len(rest)]
                back.appendleft(self._chunk.split(list(rest)))
        return list(back)

    def come_back(self) -> list[FetchedChunk]:
        """Return everything that the caller has not taken. Must only run while the caller takes nothing."""
        self.begin()
        if self._left is None:
            self._left = deque(self._all)
        damage = self.damage
        if damage is None or not isinstance(damage[1], UnreadableError):
            return self.take_back()
        self.damage = None
        return [damage[0], *self.take_back()]


def _popped(left: deque[Message], count_max: int) -> list[Message]:
    found: list[Message] = []
    try:
        while len(found) < count_max:
            found.append(left.popleft())
    except IndexError:
        pass  # The engine may empty it at any time.
    return found


def _move(source: deque[T], target: deque[T]) -> None:
    """Move everything from the end of one deque to the start of another."""
    try:
        while True:
            target.appendleft(source.pop())
    except IndexError:
        pass  # The caller may empty it at any time.
