"""What was issued of each partition to each group, and until when it is in flight.

Every change makes its record, so that replaying the records gives the same. How long an iterator is in flight runs on
the monotonic clock, which no record can hold: after a replay it has what the wall clock leaves of its time, but never
more than it was issued for, so that a wall clock that was set back holds up nobody for longer.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from millstream.groups.effects import Effects, GroupLogRecord, Now
from millstream.groups.iterators.iterator import MEMBER_PREFIX, IteratorNotice
from millstream.groups.iterators.records import (
    IssuedIterator,
    IssuedKey,
    issued_record,
    issued_tombstone,
    read_issued,
    read_issued_key,
)

Place = tuple[str, int]
"""Topic and partition."""


class IssuedIterators:
    """By group, then by topic and partition. A group has a place here exactly as long as something is known of it."""

    __slots__ = ("_groups", "_held", "_until_ms")

    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, IssuedIterator]] = {}
        self._held: dict[tuple[str, str], dict[Place, None]] = {}
        """Places of what is not over, by group and client."""
        self._until_ms: dict[IssuedKey, int] = {}

    def get(self, key: IssuedKey) -> IssuedIterator | None:
        return self._groups.get(key.group_id, {}).get((key.topic, key.partition))

    def left_ms(self, key: IssuedKey, now: Now) -> int:
        """For how long what was issued is still in flight, or could be if it is over; 0 when it no longer is."""
        return max(0, self._until_ms.get(key, 0) - now.monotonic_ms)

    def of_group(self, group_id: str, client_id: str | None = None) -> Iterator[tuple[IssuedKey, IssuedIterator]]:
        """All, or what a client has that is not over. Nothing may be changed meanwhile."""
        issued = self._groups.get(group_id, {})
        for place in issued if client_id is None else self._held.get((group_id, client_id), ()):
            yield IssuedKey(group_id, *place), issued[place]

    def in_flight(self, group_id: str, client_id: str, now: Now) -> dict[bytes, list[int]]:
        """What a client has in flight: partitions by topic id."""
        found: dict[bytes, list[int]] = {}
        for place in self._held.get((group_id, client_id), ()):
            if self.left_ms(IssuedKey(group_id, *place), now):
                found.setdefault(self._groups[group_id][place].topic_id, []).append(place[1])
        return found

    # Changes, each with its record.

    def put(self, key: IssuedKey, issued: IssuedIterator, now: Now, effects: Effects) -> None:
        """Its time in flight begins."""
        self._put(key, issued)
        self._until_ms[key] = now.monotonic_ms + issued.in_flight_ms
        effects.records.append(issued_record(key, issued))

    def note(self, key: IssuedKey, issued: IssuedIterator, effects: Effects) -> None:
        """What is known to be issued, with something new noted of it; its time goes on as it did."""
        until_ms = self._until_ms[key]
        self._put(key, issued)
        self._until_ms[key] = until_ms
        effects.records.append(issued_record(key, issued))

    def drop(self, keys: Iterable[IssuedKey], effects: Effects) -> None:
        for key in keys:
            self._remove(key)
            effects.records.append(issued_tombstone(key))

    def drop_group(self, group_id: str, effects: Effects) -> None:
        self.drop([key for key, _ in self.of_group(group_id)], effects)

    def moved_on(self, group_id: str, generation: int, effects: Effects) -> None:
        """The group has shared out anew: the servers hear of it, so that nobody is given a next iterator."""
        for key, issued in self.of_group(group_id):
            effects.told.append(IteratorNotice(group_id, issued.life, issued.topic_id, key.partition, generation))

    def abandon(self, group_id: str, member_id: str, now: Now, effects: Effects) -> None:
        """A member is gone: if it was a client, what it had is over, and no commit of it counts any more."""
        client_id = member_id.removeprefix(MEMBER_PREFIX)
        for place in list(self._held.get((group_id, client_id), ())) if client_id != member_id else ():
            issued = self._groups[group_id][place]
            over = replace(issued, is_over=True, issue=issued.issue + 1, after=0, handed=0)
            self.put(IssuedKey(group_id, *place), over, now, effects)

    # The log.

    def replay(self, record: GroupLogRecord) -> None:
        """Take in a record whose key says that it is one of these; MalformedMessageError if it is not laid out so."""
        key = read_issued_key(record.key)
        if record.value is None:
            self._remove(key)
        else:
            self._put(key, read_issued(record.value))

    def loaded(self, group_id: str, now: Now) -> None:
        """Replay is over: what is in flight goes on to be."""
        for key, issued in self.of_group(group_id):
            left_ms = min(max(0, issued.expires_ms - now.wall_ms), issued.in_flight_ms)
            self._until_ms[key] = now.monotonic_ms + left_ms

    def dump(self) -> Iterator[GroupLogRecord]:
        for group_id in self._groups:
            for key, issued in self.of_group(group_id):
                yield issued_record(key, issued)

    def _put(self, key: IssuedKey, issued: IssuedIterator) -> None:
        self._remove(key)
        place = (key.topic, key.partition)
        self._groups.setdefault(key.group_id, {})[place] = issued
        if not issued.is_over:
            self._held.setdefault((key.group_id, issued.client_id), {})[place] = None

    def _remove(self, key: IssuedKey) -> None:
        places, place = self._groups.get(key.group_id, {}), (key.topic, key.partition)
        before = places.pop(place, None)
        self._until_ms.pop(key, None)
        if before is None:
            return
        if not places:
            del self._groups[key.group_id]
        holder = (key.group_id, before.client_id)
        held = self._held.get(holder, {})
        held.pop(place, None)
        if not held:
            self._held.pop(holder, None)
