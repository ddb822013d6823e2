"""Checks iterators on the server of a partition, which remembers only the latest generations.

The server asks no other broker. It knows what the coordinator's notices contain, and the iterators that it has seen;
their signatures were verified before. Without such knowledge, for example after a start, it relies on the iterator
alone. These checks do not decide which client reads for a group. They only inform a client early that it lost the
partition; the coordinator decides which commits are accepted.

Expiry: an iterator that the coordinator announced expires by the monotonic clock, counted from the notice. An iterator
that arrives without a notice is first checked against the wall clock, with a tolerance for differing clocks, and
expires by the monotonic clock from then on. Its expiry time may be further ahead than any time in flight allows. Then
its broker's clock differs by more than the tolerance, or this clock was set back. Such an iterator counts as expired
until a notice announces it.

Limits: an entry of a partition is removed when none of its iterators can be in flight any more, or earlier if there are
too many entries.
"""

from collections import OrderedDict

from msgspec import Struct

from millstream.groups.iterators.iterator import CLOCK_TOLERANCE_MS, Iterator, IteratorNotice
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicIdBytes
from millstream.seams.clock import Clock

KNOWN_MAX = 100_000
"""Maximum number of entries, one per group and partition; the least recently updated entry is removed first."""


class _Key(Struct, frozen=True):
    group_id: str
    life: int
    topic_id: TopicIdBytes
    partition: int


class _Entry(Struct):
    """Latest known state of a partition in a group. Invariant: `generation <= group_generation`."""

    heard_ms: int
    generation: int = -1
    """Highest generation of an iterator."""
    group_generation: int = -1
    """Highest known generation of the group."""
    issue: int = 0
    until_ms: int = 0
    """Expiry of the iterator with this issue number and the highest generation."""

    def check(self) -> None:
        assert self.generation <= self.group_generation, "no iterator has a generation beyond that of its group"


class ServedIterators:
    """The entries of all partitions that this broker serves to iterators."""

    def __init__(self, clock: Clock, in_flight_max_ms: int, *, known_max: int = KNOWN_MAX) -> None:
        self._clock = clock
        self._longest_ms = in_flight_max_ms + 2 * CLOCK_TOLERANCE_MS
        self._entries_max = known_max
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def told(self, told: IteratorNotice) -> None:
        """Applies a notice of a coordinator. Information that is older than the entry changes nothing."""
        now_ms = self._now_ms()
        entry = self._touched(_Key(*told[:4]), now_ms)
        entry.group_generation = max(entry.group_generation, told.generation)
        if told.issue and (told.generation, told.issue) >= (entry.generation, entry.issue):
            entry.generation, entry.issue = told.generation, told.issue
            entry.until_ms = now_ms + told.left_ms
        entry.check()

    def has_next(self, iterator: Iterator) -> bool:
        """True if reading with this iterator may return a next one: its group has not rebalanced since."""
        entry = self._entries.get(_key(iterator))
        return entry is None or iterator.generation >= entry.group_generation

    def check(self, iterator: Iterator) -> None:
        """Raises FENCED_ITERATOR if a newer generation was issued, and ITERATOR_EXPIRED if the iterator is not in
        flight."""
        now_ms = self._now_ms()
        key = _key(iterator)
        entry = self._entries.get(key)
        if entry is not None and iterator.generation < entry.generation:
            raise MillstreamError(
                ErrorCode.FENCED_ITERATOR,
                f"{iterator.topic}-{iterator.partition} was issued to group {iterator.group_id} in generation "
                f"{entry.generation} since; the iterator is of {iterator.generation}",
            )
        if entry is not None and (entry.generation, entry.issue) == (iterator.generation, iterator.issue):
            if now_ms >= entry.until_ms:
                raise _expired(iterator)
        else:
            left_ms = iterator.expires_ms + CLOCK_TOLERANCE_MS - self._clock.wall_ms()
            if not 0 < left_ms <= self._longest_ms:
                raise _expired(iterator)
            self._note_seen(key, iterator, left_ms=left_ms, now_ms=now_ms)

    def _note_seen(self, key: _Key, iterator: Iterator, *, left_ms: int, now_ms: int) -> None:
        entry = self._touched(key, now_ms)
        if (iterator.generation, iterator.issue) > (entry.generation, entry.issue):
            entry.generation, entry.issue = iterator.generation, iterator.issue
            entry.group_generation = max(entry.group_generation, entry.generation)
            entry.until_ms = now_ms + left_ms
        entry.check()

    def _touched(self, key: _Key, now_ms: int) -> _Entry:
        entry = self._entries.setdefault(key, _Entry(now_ms))
        entry.heard_ms = now_ms
        self._entries.move_to_end(key)
        while len(self._entries) > self._entries_max or self._oldest_ms + self._longest_ms < now_ms:
            self._entries.popitem(last=False)
        return entry

    @property
    def _oldest_ms(self) -> int:
        return next(iter(self._entries.values())).heard_ms

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)


def _key(iterator: Iterator) -> _Key:
    return _Key(iterator.group_id, iterator.life, iterator.topic_id, iterator.partition)


def _expired(iterator: Iterator) -> MillstreamError:
    return MillstreamError(
        ErrorCode.ITERATOR_EXPIRED,
        f"the iterator of {iterator.topic}-{iterator.partition} has expired; get a new one",
    )
