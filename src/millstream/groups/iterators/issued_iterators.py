"""Stores the last issued iterator of each partition in each group, and when it expires.

Every change appends its record, so replaying the records restores the same state. The time in flight is measured by the
monotonic clock, which a record cannot contain. After a replay, an iterator has the time that remains by the wall clock,
but at most its full time in flight. So a wall clock that was set back cannot delay other clients any longer than that.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from millstream.coordination.effects import LogRecord, Now
from millstream.groups.effects import GroupEffects
from millstream.groups.iterators.iterator import MEMBER_PREFIX, IteratorNotice
from millstream.groups.iterators.records import (
    IssuedIterator,
    IssuedKey,
    issued_record,
    issued_tombstone,
    read_issued,
    read_issued_key,
)
from millstream.model.ids import TopicIdBytes

Place = tuple[str, int]
"""Topic and partition."""


class IssuedIterators:
    """Issued iterators by group, topic and partition. A group has an entry exactly while it has an issued iterator."""

    __slots__ = ("_groups", "_held", "_until_ms")

    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, IssuedIterator]] = {}
        self._held: dict[tuple[str, str], dict[Place, None]] = {}
        """Partitions whose iterator has not ended, by group and client."""
        self._until_ms: dict[IssuedKey, int] = {}

    def get(self, key: IssuedKey) -> IssuedIterator | None:
        return self._groups.get(key.group_id, {}).get((key.topic, key.partition))

    def left_ms(self, key: IssuedKey, now: Now) -> int:
        """Returns the remaining time in flight; 0 after the expiry.

        The result may be above 0 for an iterator that has ended.
        """
        return max(0, self._until_ms.get(key, 0) - now.monotonic_ms)

    def of_group(self, group_id: str, client_id: str | None = None) -> Iterator[tuple[IssuedKey, IssuedIterator]]:
        """Yields all issued iterators of a group, or only those of `client_id` that have not ended.

        The store must not change during the iteration.
        """
        issued = self._groups.get(group_id, {})
        for place in issued if client_id is None else self._held.get((group_id, client_id), ()):
            yield IssuedKey(group_id, *place), issued[place]

    def in_flight(self, group_id: str, client_id: str, now: Now) -> dict[TopicIdBytes, list[int]]:
        """Returns the partitions of which a client has iterators in flight, by topic id."""
        found: dict[TopicIdBytes, list[int]] = {}
        for place in self._held.get((group_id, client_id), ()):
            if self.left_ms(IssuedKey(group_id, *place), now):
                found.setdefault(self._groups[group_id][place].topic_id, []).append(place[1])
        return found

    # Changes, each with its record.

    def put(self, key: IssuedKey, issued: IssuedIterator, now: Now, effects: GroupEffects) -> None:
        """Stores an iterator, whose time in flight starts now."""
        assert 0 <= issued.delivered <= issued.messages_max, "no more messages are delivered than the iterator has"
        self._put(key, issued)
        self._until_ms[key] = now.monotonic_ms + issued.in_flight_ms
        effects.records.append(issued_record(key, issued))

    def note(self, key: IssuedKey, issued: IssuedIterator, effects: GroupEffects) -> None:
        """Replaces a stored iterator without restarting its time in flight."""
        assert 0 <= issued.delivered <= issued.messages_max, "no more messages are delivered than the iterator has"
        until_ms = self._until_ms[key]
        self._put(key, issued)
        self._until_ms[key] = until_ms
        effects.records.append(issued_record(key, issued))

    def drop(self, keys: Iterable[IssuedKey], effects: GroupEffects) -> None:
        for key in keys:
            self._remove(key)
            effects.records.append(issued_tombstone(key))

    def drop_group(self, group_id: str, effects: GroupEffects) -> None:
        self.drop([key for key, _ in self.of_group(group_id)], effects)

    def moved_on(self, group_id: str, generation: int, effects: GroupEffects) -> None:
        """Notifies the partitions' servers that the group has a new assignment.

        The servers then return no further iterators of older generations.
        """
        for key, issued in self.of_group(group_id):
            effects.notices.append(IteratorNotice(group_id, issued.life, issued.topic_id, key.partition, generation))

    def abandon(self, group_id: str, member_id: str, now: Now, effects: GroupEffects) -> None:
        """Ends the iterators of a removed member, if it is an iterator client. Commits that arrive later are
        refused."""
        client_id = member_id.removeprefix(MEMBER_PREFIX)
        for place in list(self._held.get((group_id, client_id), ())) if client_id != member_id else ():
            issued = self._groups[group_id][place]
            over = replace(issued, is_over=True, issue=issued.issue + 1, after=0, delivered=0)
            self.put(IssuedKey(group_id, *place), over, now, effects)

    # The log.

    def replay(self, record: LogRecord) -> None:
        """Applies a record whose key identifies it as an issued iterator. Raises MalformedMessageError."""
        key = read_issued_key(record.key)
        if record.value is None:
            self._remove(key)
        else:
            self._put(key, read_issued(record.value))

    def loaded(self, group_id: str, now: Now) -> None:
        """Restarts the time in flight of a group's iterators, after the replay."""
        for key, issued in self.of_group(group_id):
            left_ms = min(max(0, issued.expires_ms - now.wall_ms), issued.in_flight_ms)
            self._until_ms[key] = now.monotonic_ms + left_ms

    def dump(self) -> Iterator[LogRecord]:
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
