"""What lies in a caller's hand: portions that were brought to it, and the messages of the one it has opened.

Opening and taking is plain code: it waits for nothing and may happen in another thread than the engine's. So this is
the one thing that both touch at once, without a lock. Invariants:

- The caller takes from the left of `_closed` and of `_left`, the engine takes back from their right; each of these is
  one step that no thread interrupts, so everything is taken by exactly one of them. Of a portion that is open, but of
  which the caller has taken nothing yet (`_left` is None), the engine takes nothing back.
- What the caller took last counts as in work until it comes for more; all before that is finished.
"""

from collections import deque
from collections.abc import Callable, Iterable

from penstock.model.errors import PenstockError
from penstock.model.names import TopicPartition
from penstock.records.message import Message
from penstock.sdk.consuming.decoding import Decode, decode_some
from penstock.sdk.consuming.reader import Portion

ENOUGH = 1_000
"""With so many messages nobody opens a further portion to have more at once."""


class Hand:
    """`decode` makes values of bytes; a message that it cannot decode is raised in its turn, and passed over."""

    def __init__(self, decode: Decode | None = None) -> None:
        self.turns = 0
        """How often the caller has taken some: a sign of life."""
        self.damage: tuple[Portion, PenstockError] | None = None
        """What could not be opened, and why."""
        self.opened: list[tuple[str, int]] = []
        """Topics and numbers of messages of portions that were opened."""
        self._decode = decode
        self._closed: deque[Portion] = deque()
        self._portion: Portion | None = None
        self._all: list[Message] = []
        self._left: deque[Message] | None = deque()
        self._behind: dict[TopicPartition, int] = {}
        """Where portions end of which everything was taken."""
        self._work: dict[TopicPartition, int] | None = {}
        """Where what is in work begins; None where it is the last message alone."""

    # For the caller, in its own thread.

    def __len__(self) -> int:
        """How much is here: messages of the open portion, and portions."""
        return len(self._closed) + len(self._all if self._left is None else self._left)

    def open(self) -> bool:
        """Whether there are messages here; opens the next portion where there is need."""
        while self._left is not None and not self._left:
            if self.damage is not None or not self._next():
                return False
            assert self._portion is not None
            try:
                self._all = self._portion.open()
            except PenstockError as error:
                self.damage = self._portion, error
                self._portion = None
                return False
            self.opened.append((self._portion.reader.where.topic, len(self._all)))
            self._left = None if self._all else deque()
        return True

    def _next(self) -> bool:
        if self._portion is not None:
            self._behind[self._portion.reader.where] = self._portion.next_offset
        try:
            self._portion = self._closed.popleft()
        except IndexError:
            self._portion = None
            return False
        return True

    def taker(self) -> Callable[[], Message]:
        """Takes one message after the other of the open portion; IndexError when it has no more."""
        self.turns += 1
        self._work = None
        left = self._begun()
        take = left.popleft
        decode = self._decode
        return take if decode is None else lambda: decode(take())

    def some(self, count_max: int) -> list[Message]:
        """Up to so many messages. One that cannot be decoded is raised when it comes first."""
        self.turns += 1
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

    def whole(self) -> Portion | None:
        """The next portion that is closed, for who opens it in another way; None where there is none, or where messages
        of an open one come before it."""
        self.turns += 1
        if self.damage is not None or self._left is None or self._left or not self._next():
            return None
        assert self._portion is not None
        self._all = []
        self._work = {self._portion.reader.where: self._portion.offset}
        return self._portion

    def cannot_open(self, portion: Portion, error: PenstockError) -> None:
        """What `whole` gave is damaged."""
        self.damage = portion, error
        self._portion = None

    def _begun(self) -> deque[Message]:
        if self._left is None:
            self._left = deque(self._all)
        return self._left

    # For the engine.

    def give(self, portions: Iterable[Portion]) -> None:
        """These are the caller's now, which has asked for them and waits; nothing else is here any longer."""
        self.damage = None
        self._portion = None
        self._all = []
        self._left = deque()
        self._behind = {}
        self._work = {}
        self._closed = deque(portions)

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

    def take_back(self) -> list[Portion]:
        """What is left here is the engine's again."""
        back: deque[Portion] = deque()
        rest: deque[Message] = deque()
        try:
            while True:
                back.appendleft(self._closed.pop())
        except IndexError:
            pass
        try:
            while self._left is not None:
                rest.appendleft(self._left.pop())
        except IndexError:
            pass
        if rest and self._portion is not None:
            self._all = self._all[: len(self._all) - len(rest)]
            back.appendleft(self._portion.split(list(rest)))
        return list(back)

    def come_back(self) -> list[Portion]:
        """As `take_back`, by the caller itself: also what it has opened and not begun."""
        if self._left is None:
            self._left = deque(self._all)
        return self.take_back()
