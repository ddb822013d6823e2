"""What the server of a partition knows of the iterators that are read from it: the highest generations, and no more.

It asks nobody. What it knows it was told by a coordinator, or has seen in an iterator, whose signature was checked
before it came here. Knowing nothing, as after a start, it goes by the iterator alone. None of this decides who reads
for a group, only how early somebody notices who no longer does: a commit is the coordinator's to accept.

Time: what a coordinator told of is in flight by the monotonic clock, from then on. Only an iterator that comes first by
itself is held against the wall clock, with a tolerance for the clocks of others, and runs on the monotonic one from
then on too. One whose time ends further ahead than any can was issued by a clock that differs more than that, or ours
was set back: it is as good as expired, until a coordinator tells of it.

Bounds: what is known of a partition is forgotten when no iterator from then can be in flight any more, and earlier
where there is too much of it.
"""

from collections import OrderedDict
from typing import NamedTuple

from msgspec import Struct

from millstream.groups.iterators.iterator import CLOCK_TOLERANCE_MS, Iterator, IteratorNotice
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.clock import Clock

KNOWN_MAX = 100_000
"""Partitions of groups of which something is known; the one that was heard of longest ago goes first."""


class _Place(NamedTuple):
    group_id: str
    life: int
    topic_id: bytes
    partition: int


class _Known(Struct):
    """Invariant: `generation <= group_generation`."""

    heard_ms: int
    generation: int = -1
    """The highest that an iterator had."""
    group_generation: int = -1
    """The highest that the group is known to have come to."""
    issue: int = 0
    until_ms: int = 0
    """When the iterator of this issue, of the highest generation, is no longer in flight."""


class ServedIterators:
    def __init__(self, clock: Clock, in_flight_max_ms: int, known_max: int = KNOWN_MAX) -> None:
        self._clock = clock
        self._longest_ms = in_flight_max_ms + 2 * CLOCK_TOLERANCE_MS
        self._known_max = known_max
        self._known: OrderedDict[_Place, _Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def told(self, told: IteratorNotice) -> None:
        """A coordinator says how far a group is with a partition. What is older than what is known changes nothing."""
        now_ms = self._now_ms()
        known = self._heard_of(_Place(*told[:4]), now_ms)
        known.group_generation = max(known.group_generation, told.generation)
        if told.issue and (told.generation, told.issue) >= (known.generation, known.issue):
            known.generation, known.issue = told.generation, told.issue
            known.until_ms = now_ms + told.left_ms

    def has_next(self, iterator: Iterator) -> bool:
        """Whether what was read with this iterator has a next one: not if its group has shared out anew since."""
        known = self._known.get(_place(iterator))
        return known is None or iterator.generation >= known.group_generation

    def check(self, iterator: Iterator) -> None:
        """Raises FENCED_ITERATOR for one of a generation below the highest, ITERATOR_EXPIRED for one that is no longer
        in flight."""
        now_ms = self._now_ms()
        place = _place(iterator)
        known = self._known.get(place)
        if known is not None and iterator.generation < known.generation:
            raise MillstreamError(
                ErrorCode.FENCED_ITERATOR,
                f"{iterator.topic}-{iterator.partition} was issued to group {iterator.group_id} in generation "
                f"{known.generation} since; the iterator is of {iterator.generation}",
            )
        if known is not None and (known.generation, known.issue) == (iterator.generation, iterator.issue):
            if now_ms >= known.until_ms:
                raise _expired(iterator)
        else:
            left_ms = iterator.expires_ms + CLOCK_TOLERANCE_MS - self._clock.wall_ms()
            if not 0 < left_ms <= self._longest_ms:
                raise _expired(iterator)
            self._seen(place, iterator, left_ms, now_ms)

    def _seen(self, place: _Place, iterator: Iterator, left_ms: int, now_ms: int) -> None:
        known = self._heard_of(place, now_ms)
        if (iterator.generation, iterator.issue) > (known.generation, known.issue):
            known.generation, known.issue = iterator.generation, iterator.issue
            known.group_generation = max(known.group_generation, known.generation)
            known.until_ms = now_ms + left_ms

    def _heard_of(self, place: _Place, now_ms: int) -> _Known:
        known = self._known.setdefault(place, _Known(now_ms))
        known.heard_ms = now_ms
        self._known.move_to_end(place)
        while len(self._known) > self._known_max or self._oldest_ms + self._longest_ms < now_ms:
            self._known.popitem(last=False)
        return known

    @property
    def _oldest_ms(self) -> int:
        return next(iter(self._known.values())).heard_ms

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)


def _place(iterator: Iterator) -> _Place:
    return _Place(iterator.group_id, iterator.life, iterator.topic_id, iterator.partition)


def _expired(iterator: Iterator) -> MillstreamError:
    return MillstreamError(
        ErrorCode.ITERATOR_EXPIRED,
        f"the iterator of {iterator.topic}-{iterator.partition} is no longer in flight; get it again",
    )
