"""What lies in a caller's hand: messages that were brought to it, of which it takes one after the other.

Taking is plain code: it waits for nothing and may happen in another thread than the engine's. So this is the one thing
that both touch at once, without a lock. Invariants:

- The caller takes from the left of `_left`, the engine takes back from its right; each of these is one step that no
  thread interrupts, so a message is taken by exactly one of them. Before the caller has begun (`_left` is None) the
  engine takes nothing back.
- `_all` without its last `len(_left)` messages is what the caller has taken.
- What the caller took last counts as in work until it comes for more; all before that is finished.
"""

from collections import deque
from collections.abc import Callable, Sequence

from penstock.model.names import TopicPartition
from penstock.records.record import Message
from penstock.sdk.consuming.decoding import Decode, decode_some
from penstock.sdk.consuming.reader import Portion


class Hand:
    """`decode` makes values of bytes; a message that it cannot decode is raised in its turn, and passed over."""

    def __init__(self, decode: Decode | None = None) -> None:
        self.turns = 0
        """How often the caller has taken some: a sign of life."""
        self._decode = decode
        self._portions: list[tuple[Portion, int, int]] = []
        """Each with where in `_all` its messages begin and end."""
        self._all: list[Message] = []
        self._left: deque[Message] | None = None
        self._work_from: int | None = None
        """Where what is in work begins; None where it is the last message alone."""

    # For the caller, in its own thread.

    def __len__(self) -> int:
        return len(self._all) if self._left is None else len(self._left)

    def taker(self) -> Callable[[], Message]:
        """Takes one message after the other; IndexError when there is none here any more."""
        self.turns += 1
        if self._left is None:
            self._left = deque(self._all)
        self._work_from = None
        take = self._left.popleft
        decode = self._decode
        return take if decode is None else lambda: decode(take())

    def some(self, count_max: int) -> list[Message]:
        """Up to so many of those that are here. One that cannot be decoded is raised when it comes first."""
        self.turns += 1
        if self._left is None:
            self._work_from = 0
            if self._decode is None and len(self._all) <= count_max:
                self._left = deque()
                return self._all.copy()
            self._left = deque(self._all)
        left = self._left
        self._work_from = len(self._all) - len(left)
        found: list[Message] = []
        try:
            while len(found) < count_max:
                found.append(left.popleft())
        except IndexError:
            pass
        return found if self._decode is None else decode_some(self._decode, found, left)

    def some_of_one(self) -> list[Message]:
        """Those that come next of one partition."""
        taken = self.taken
        return next((self.some(end - taken) for _, _, end in self._portions if taken < end), [])

    # For the engine.

    def give(self, portions: Sequence[Portion]) -> None:
        """The messages of these, which are open, are the caller's now; it has asked for them and waits."""
        every: list[Message] = []
        self._portions = []
        for portion in portions:
            messages = portion.open()
            self._portions.append((portion, len(every), len(every) + len(messages)))
            every = every + messages if every else messages
        self._all = every
        self._left = None
        self._work_from = 0

    def give_whole(self, portion: Portion) -> None:
        """The caller has all of this, in another form."""
        self.give(())
        self._portions = [(portion, 0, 1)]
        self._left = deque()
        self._all = []

    def clear(self) -> None:
        """All that was here is finished, or taken back."""
        self.give(())

    def forget(self, where: TopicPartition) -> None:
        """What the caller has of this partition does not count any longer."""
        self._portions = [row for row in self._portions if row[0].reader.where != where]

    @property
    def taken(self) -> int:
        """How many messages of those that were given the caller has taken."""
        return 0 if self._left is None else len(self._all) - len(self._left)

    def positions(self) -> dict[TopicPartition, int]:
        """Behind what the caller has taken, of each partition here."""
        return self._offsets(self.taken if self._all else 1)

    def finished(self) -> dict[TopicPartition, int]:
        """Behind what is not in work any longer, of each partition here."""
        return self._offsets(max(0, self.taken - 1) if self._work_from is None else self._work_from)

    def _offsets(self, index: int) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, int] = {}
        for portion, begin, end in self._portions:
            if index >= end:
                offsets[portion.reader.where] = portion.next_offset
            elif index > begin:
                offsets[portion.reader.where] = self._all[index].offset
            else:
                offsets.setdefault(portion.reader.where, portion.offset)
        return offsets

    def take_back(self) -> list[Portion]:
        """What is left here is the engine's again."""
        rest: deque[Message] = deque()
        try:
            while self._left is not None:
                rest.appendleft(self._left.pop())
        except IndexError:
            pass
        if not rest:
            return []
        kept = len(self._all) - len(rest)
        back: list[Portion] = []
        portions: list[tuple[Portion, int, int]] = []
        for portion, begin, end in self._portions:
            if end <= kept:
                portions.append((portion, begin, end))
            elif begin >= kept:
                back.append(portion)
            else:
                back.append(portion.split(self._all[kept:end]))
                portions.append((portion, begin, kept))
        self._portions = portions
        self._all = self._all[:kept]
        return back
