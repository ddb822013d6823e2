"""What lies in a caller's hand: portions that were brought to it, and the messages of the one it has opened.

Opening and taking is plain code: it waits for nothing but, where the caller may be held up, a file, and may happen in
another thread than the engine's. So this is the one thing that both touch at once. Invariants:

- The caller takes from the left of `_closed`, of `_pieces` and of `_left`, the engine takes back from their right; each
  of these is one step that no thread interrupts, so everything is taken by exactly one of them, messages without a
  lock. Of a portion that is open, but of which the caller has taken nothing yet (`_left` is None), the engine takes
  nothing back. The caller does not leave a portion while the engine takes messages of it back (`_leaving`).
- A portion that is being read or opened is nobody's (`_is_opening`) until that is done: nothing of it counts as taken,
  and whatever interrupts it puts the portion back. Signals interrupt where something is called, so nothing is called
  between taking a portion and being ready to put it back, nor between having opened it and being through with that.
- What the caller took last counts as in work until it comes for more; all before that is finished.
"""

from collections import deque
from collections.abc import Callable, Iterable
from threading import Lock
from typing import TypeVar

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.message import Message
from millstream.sdk.consuming.decoding import Decode, decode_some
from millstream.sdk.consuming.local_files import MORE_BYTES, ScratchBuffer
from millstream.sdk.consuming.partition_reader import COLUMNS_BYTES, PIECE_BYTES, FetchedChunk

T = TypeVar("T")

ENOUGH = 1_000
"""With so many messages nobody opens a further portion to have more at once."""


class DeliveredBuffer:
    """`decode` makes values of bytes; a message that it cannot decode is raised in its turn, and passed over.

    `reads` is whether the caller reads portions from files by itself; otherwise they are brought to it read.
    """

    def __init__(self, decode: Decode | None = None, *, reads: bool = False) -> None:
        self.reads = reads
        self.turns = 0
        """How often the caller has taken some: a sign of life."""
        self.wants_columns = False
        """How the caller has taken last."""
        self.damage: tuple[FetchedChunk, MillstreamError] | None = None
        """What could not be opened, and why."""
        self.opened: list[tuple[str, int, int]] = []
        """Topics, numbers of messages and bytes of portions that were opened."""
        self._decode = decode
        self._closed: deque[FetchedChunk] = deque()
        self._pieces: deque[FetchedChunk] = deque()
        """What is left of the last one that was read: it comes before those that are closed."""
        self._leaving = Lock()
        self._is_opening = False
        self._portion: FetchedChunk | None = None
        self._all: list[Message] = []
        self._left: deque[Message] | None = deque()
        self._memory: ScratchBuffer | None = None
        self._behind: dict[TopicPartition, int] = {}
        """Where portions end of which everything was taken."""
        self._work: dict[TopicPartition, int] | None = {}
        """Where what is in work begins; None where it is the last message alone."""

    # For the caller, in its own thread.

    def __len__(self) -> int:
        """How much is here: messages of the open portion, and portions."""
        messages = self._all if self._left is None else self._left
        return self._is_opening + len(self._closed) + len(self._pieces) + len(messages)

    def open(self) -> bool:
        """Whether there are messages here; opens the next portion where there is need."""
        while self._left is not None and not self._left:
            opened = self._opened(FetchedChunk.open, PIECE_BYTES, PIECE_BYTES)
            if opened is None:
                return False
            portion, self._all = opened
            self._left = None if self._all else self._left
            self._portion = portion
            self.note(portion, len(self._all))
        return True

    def note(self, portion: FetchedChunk, count: int) -> None:
        """That it was opened and has so many messages; what was taken back meanwhile was noted before."""
        if not portion.was_opened:
            self.opened.append((portion.reader.where.topic, count, portion.size_bytes))

    def _opened(
        self,
        opens: Callable[[FetchedChunk], T],
        piece_bytes: int,
        read_bytes: int,
        scratch: ScratchBuffer | None = None,
    ) -> tuple[FetchedChunk, T] | None:
        """The next portion, and what `opens` makes of it; None where there is none, or where it is damaged.

        Of one that lies in a file, that is the beginning: it is read, and cut in pieces.
        """
        if self.damage is not None:
            return None
        self._is_opening = True
        try:
            self._leave()
            waiting = self._pieces or self._closed
            try:
                portion = waiting[0]
                del waiting[0]
            except IndexError:
                return None
            try:
                is_here = portion.place is None
                first, *pieces = [portion] if is_here else portion.unpacked(piece_bytes, read_bytes, scratch)
                made = opens(first)
                self._pieces += pieces  # There are no others: what lies in a file is the last of its pieces.
                return first, made
            except MillstreamError as error:
                self.damage = portion, error
                return None
            except BaseException:
                self._pieces.appendleft(portion)
                raise
        finally:
            self._is_opening = False

    def _leave(self) -> None:
        """The caller is through with the portion that is open."""
        with self._leaving:
            if self._portion is not None:
                self._behind[self._portion.reader.where] = self._portion.next_offset
                self._portion = None
            self._all = []

    def taker(self) -> Callable[[], Message]:
        """Takes one message after the other of the open portion; IndexError when it has no more."""
        self.turns += 1
        self.wants_columns = False
        self._work = None
        left = self._begun()
        take = left.popleft
        decode = self._decode
        return take if decode is None else lambda: decode(take())

    def some(self, count_max: int) -> list[Message]:
        """Up to so many messages. One that cannot be decoded is raised when it comes first."""
        self.turns += 1
        self.wants_columns = False
        self._work = {}
        found = self.some_of_one(count_max)
        while found and len(found) < min(count_max, ENOUGH) and self._decode is None and self.open():
            found += self.some_of_one(count_max - len(found))
        return found

    def some_of_one(self, count_max: int) -> list[Message]:
        """As `some`, of the open portion alone."""
        portion = self._portion
        if portion is None:
            return []
        self._work = {} if self._work is None else self._work
        if self._left is None and self._decode is None and len(self._all) <= count_max:
            self._work.setdefault(portion.reader.where, portion.offset)
            self._left = deque()
            everything, self._all = self._all, []
            return everything
        left = self._begun()
        found: list[Message] = []
        try:
            while len(found) < count_max:
                found.append(left.popleft())
        except IndexError:
            pass
        if found:
            self._work.setdefault(portion.reader.where, found[0].offset)
        return found if self._decode is None else decode_some(self._decode, found, left)

    def one(self) -> list[Message]:
        """All that is left of the open portion."""
        self.turns += 1
        self._work = {}
        return self.some_of_one(len(self))

    def whole(self, opens: Callable[[FetchedChunk], T]) -> tuple[FetchedChunk, T] | None:
        """The next portion that is closed, and what `opens`, which keeps none of its bytes, makes of it; None where
        there is none, where it is damaged, or where messages of an open one come before it."""
        self.turns += 1
        self.wants_columns = True
        if self._left is None or self._left:
            return None
        found = self._opened(opens, COLUMNS_BYTES + MORE_BYTES, COLUMNS_BYTES, self._scratch())
        if found is not None:
            portion = found[0]
            self._work = {portion.reader.where: portion.offset}
            self._portion = portion
        return found

    def drop(self) -> None:
        """Hand out nothing more, nor to a loop that is under way: it asks for more, and is told why there is none."""
        if self._left is not None:
            self._left.clear()

    def _scratch(self) -> ScratchBuffer | None:
        """Where to read what becomes columns at once, and is not needed any more then; all else is kept."""
        if self._memory is None and self.reads:
            self._memory = ScratchBuffer(COLUMNS_BYTES)
        return self._memory

    def _begun(self) -> deque[Message]:
        if self._left is None:
            self._left = deque(self._all)
        return self._left

    # For the engine.

    def give(self, portions: Iterable[FetchedChunk]) -> None:
        """These are the caller's now, which has asked for them and waits; nothing else is here any longer."""
        self.damage = None
        self._portion = None
        self._all = []
        self._left = deque()
        self._behind = {}
        self._work = {}
        self._pieces = deque()
        self._closed = deque(portions)

    def close(self) -> None:
        """Nothing is left here for the caller, and nothing will be: neither portions nor memory nor a thread."""
        self.take_back()
        self.give(())
        self.reads = False
        self._memory = None

    def forget(self, where: TopicPartition) -> None:
        """What the caller has of this partition does not count any longer."""
        self._behind.pop(where, None)
        if self._portion is not None and self._portion.reader.where == where:
            self._portion = None

    @property
    def progress(self) -> int:
        """Another number whenever the caller has given a sign of life."""
        return (self.turns << 32) - (len(self._left) if self._left is not None else 0)

    def positions(self) -> dict[TopicPartition, int]:
        """Behind what the caller has taken, of each partition of which it has taken something."""
        positions = dict(self._behind)
        portion, left = self._portion, self._left
        if portion is not None:
            here = portion.offset if left is None else left[0].offset if left else portion.next_offset
            positions[portion.reader.where] = here
        return positions

    def finished(self) -> dict[TopicPartition, int]:
        """Behind what is not in work any longer, of the same partitions."""
        positions = self.positions()
        portion, left = self._portion, self._left
        if self._work is not None:
            return positions | self._work
        if portion is not None and left is not None and len(left) < len(self._all):
            positions[portion.reader.where] = self._all[len(self._all) - len(left) - 1].offset
        return positions

    def take_back(self) -> list[FetchedChunk]:
        """What is left here is the engine's again."""
        back: deque[FetchedChunk] = deque()
        rest: deque[Message] = deque()
        for portions in (self._closed, self._pieces):
            try:
                while True:
                    back.appendleft(portions.pop())
            except IndexError:
                pass
        with self._leaving:
            try:
                while self._left is not None:
                    rest.appendleft(self._left.pop())
            except IndexError:
                pass
            if rest and self._portion is not None:
                self._all = self._all[: len(self._all) - len(rest)]
                back.appendleft(self._portion.split(list(rest)))
        return list(back)

    def come_back(self) -> list[FetchedChunk]:
        """As `take_back`, by the caller itself: also what it has opened and not begun."""
        if self._left is None:
            self._left = deque(self._all)
        return self.take_back()
