"""Keeps the open watches of a group's members, and answers each one when the member should send a heartbeat now.

A watch reports that the next heartbeat of its member would change the member's partitions: its target has changed, or a
partition that it waits for was released. Members without a watch learn of the change from a heartbeat that they send
after the heartbeat interval. Watches are not durable: a machine that is discarded fails them, and members open new
ones.

Invariants: a member has at most one watch, and each watch is answered once. An awaited partition belongs to one open
watch.
"""

from collections.abc import Iterable

from msgspec import Struct

from millstream.coordination.effects import Token
from millstream.groups.consumer.assignors import Assignment
from millstream.groups.effects import GroupEffects
from millstream.groups.responses import EmptyResponse
from millstream.model.ids import TopicIdBytes

_Partition = tuple[TopicIdBytes, int]


class _Watch(Struct, frozen=True):
    token: Token
    awaited: tuple[_Partition, ...]
    """Partitions of the member's target that it did not hold when the watch was opened."""


class MemberWatches:
    """The open watches of one group, by member id."""

    __slots__ = ("_awaited_by", "_watches")

    def __init__(self) -> None:
        self._watches: dict[str, _Watch] = {}
        self._awaited_by: dict[_Partition, str] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._watches

    def open(self, member_id: str, token: Token, awaited: Assignment, effects: GroupEffects) -> None:
        """Opens a watch. An earlier watch of the member is answered."""
        self.answer(member_id, effects)
        assert member_id not in self._watches, "a member has at most one watch"
        watch = _Watch(token, tuple(_partitions(awaited)))
        self._watches[member_id] = watch
        self._awaited_by.update(dict.fromkeys(watch.awaited, member_id))

    def answer(self, member_id: str, effects: GroupEffects) -> None:
        """Answers and closes the watch of a member, if it has one."""
        watch = self._watches.pop(member_id, None)
        if watch is None:
            return
        for partition in watch.awaited:
            if self._awaited_by.get(partition) == member_id:
                del self._awaited_by[partition]
        effects.reply(watch.token, EmptyResponse())

    def answer_all(self, effects: GroupEffects) -> None:
        for member_id in list(self._watches):
            self.answer(member_id, effects)

    def released(self, before: Assignment, after: Assignment, effects: GroupEffects) -> None:
        """Answers the members that wait for partitions that a member held before and does not hold after a step."""
        if not self._awaited_by:
            return
        for partition in _partitions(before):
            member_id = self._awaited_by.get(partition)
            if member_id is not None and partition[1] not in after.get(partition[0], ()):
                assert member_id in self._watches, "an awaited partition belongs to an open watch"
                self.answer(member_id, effects)


def _partitions(assignment: Assignment) -> Iterable[_Partition]:
    return ((topic_id, number) for topic_id, numbers in assignment.items() for number in numbers)
