"""Distributes partitions over members: the broker's assignors, pure functions of subscriptions and the last assignment.

Every partition of a subscribed topic goes to exactly one of its subscribers. The order of members and topics in the
input does not matter: equal input gives equal output, so a replay or a simulation computes the same assignment.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, pairwise
from typing import NamedTuple

from millstream.model.ids import TopicIdBytes

Assignment = Mapping[TopicIdBytes, frozenset[int]]
"""Partitions by topic id. Topics without partitions have no entry. Never changed after creation."""

NOTHING: Assignment = {}


class Subscriber(NamedTuple):
    topic_ids: frozenset[TopicIdBytes]
    """Only topics that exist."""
    before: Assignment
    """The member's previous target assignment."""
    instance_id: str | None = None


Subscribers = Mapping[str, Subscriber]
Assignor = Callable[[Subscribers, Mapping[TopicIdBytes, int]], dict[str, Assignment]]
"""Takes the subscribers by member id and the number of partitions by topic id; returns the target of each member."""


def uniform(subscribers: Subscribers, partitions: Mapping[TopicIdBytes, int]) -> dict[str, Assignment]:
    """Assigns partitions evenly, and moves as few of them as possible.

    Partitions that a member has and may keep stay with it. Unassigned ones go to the least loaded subscriber. Then
    single partitions move from more loaded to less loaded members, until no member could give one to a member that has
    at least two fewer. If all members subscribe to the same topics, their loads differ by at most one, and no
    assignment with these loads would have moved fewer partitions.
    """
    sharing = _Sharing(subscribers, partitions)
    sharing.keep_what_fits()
    sharing.give_the_rest()
    sharing.balance()
    return {
        member_id: {topic_id: frozenset(held) for topic_id, held in sharing.held[member_id].items() if held}
        for member_id in subscribers
    }


class _Audience:
    """Members that subscribe to the same topic. Compared by identity, because there is one object for each set of
    members; the result never depends on the order of these objects."""

    def __init__(self, members: tuple[str, ...]) -> None:
        self.members = members


_MovableTopic = tuple[int, TopicIdBytes, list[int]]
"""Number of partitions of a topic that a member has, negated; the topic; the partitions, the next one to move last."""


class _Sharing:
    """One computation of `uniform`. Topics with the same subscribers (an audience) are processed together; usually
    there is only one audience."""

    def __init__(self, subscribers: Subscribers, partitions: Mapping[TopicIdBytes, int]) -> None:
        self._subscribers = subscribers
        self._topics_of = _topics_by_audience(subscribers)
        self._audience_of = {
            topic_id: audience for audience, topic_ids in self._topics_of.items() for topic_id in topic_ids
        }
        self.held: dict[str, dict[TopicIdBytes, set[int]]] = {member_id: defaultdict(set) for member_id in subscribers}
        self._load = dict.fromkeys(subscribers, 0)
        self._unassigned = {topic_id: set(range(partitions[topic_id])) for topic_id in self._audience_of}
        self._movable: dict[str, dict[_Audience, list[_MovableTopic]]] = {}
        self._by_load: dict[_Audience, list[tuple[int, str]]] = {}
        """Heaps for `_least_loaded`: each member has an entry in them that does not exceed its load."""
        self._audiences_with: dict[str, list[_Audience]] = {member_id: [] for member_id in subscribers}
        """The audiences in `_by_load` that contain a member."""

    def keep_what_fits(self) -> None:
        for member_id in sorted(self._subscribers):
            subscriber = self._subscribers[member_id]
            for topic_id, before in subscriber.before.items():
                if topic_id not in subscriber.topic_ids:
                    continue
                kept = before & self._unassigned[topic_id]
                if kept:
                    self._unassigned[topic_id] -= kept
                    self.held[member_id][topic_id] |= kept
                    self._load[member_id] += len(kept)

    def give_the_rest(self) -> None:
        """Assigns the remaining partitions. Topics with few subscribers come first, because their partitions have the
        least choice."""
        for audience in sorted(self._topics_of, key=lambda each: (len(each.members), each.members)):
            by_load = [(self._load[member_id], member_id) for member_id in audience.members]
            heapify(by_load)
            for topic_id in self._topics_of[audience]:
                for partition in sorted(self._unassigned[topic_id]):
                    load, member_id = by_load[0]
                    self.held[member_id][topic_id].add(partition)
                    self._load[member_id] = load + 1
                    heapreplace(by_load, (load + 1, member_id))

    def balance(self) -> None:
        """Moves single partitions until the loads are balanced. Terminates because each move reduces the sum of squared
        loads."""
        moved = True
        while moved:
            moved = False
            by_load = [(-load, member_id) for member_id, load in self._load.items()]
            heapify(by_load)
            while by_load:
                load, giver = heappop(by_load)
                if -load == self._load[giver] and self._give_one(giver):
                    moved = True
                    heappush(by_load, (-self._load[giver], giver))

    def _give_one(self, giver: str) -> bool:
        """Moves one partition to the least loaded member that reads the topic. Returns False if no such member has at
        least two partitions fewer."""
        best: tuple[int, str] | None = None
        for audience in self._movable.get(giver) or self._read_with(giver):
            taker = self._least_loaded(audience)
            if taker[0] + 2 <= self._load[giver] and (best is None or taker < best):
                best, best_audience = taker, audience
        if best is None:
            return False
        if giver not in self._movable:
            self._movable[giver] = self._movable_topics(giver)
        self._move(giver, best[1], best_audience)
        return True

    def _read_with(self, giver: str) -> Iterable[_Audience]:
        """Returns the audiences of the topics of which the giver has partitions."""
        return dict.fromkeys(self._audience_of[topic_id] for topic_id, held in self.held[giver].items() if held)

    def _least_loaded(self, audience: _Audience) -> tuple[int, str]:
        """Returns the least loaded member of an audience. Increased loads are corrected when their entry reaches the
        top of the heap; the code that reduces a load must push a new entry."""
        heap = self._by_load.get(audience)
        if heap is None:
            heap = self._by_load[audience] = [(self._load[member_id], member_id) for member_id in audience.members]
            heapify(heap)
            for member_id in audience.members:
                self._audiences_with[member_id].append(audience)
        load, member_id = heap[0]
        while load != self._load[member_id]:
            heapreplace(heap, (self._load[member_id], member_id))
            load, member_id = heap[0]
        return load, member_id

    def _movable_topics(self, giver: str) -> dict[_Audience, list[_MovableTopic]]:
        """Returns heaps of the giver's topics by audience. The giver moves partitions of the topic of which it has the
        most, so that topics stay spread over the members."""
        topics: dict[_Audience, list[_MovableTopic]] = {}
        for topic_id, held in self.held[giver].items():
            if held:
                topics.setdefault(self._audience_of[topic_id], []).append((-len(held), topic_id, sorted(held)))
        for heap in topics.values():
            heapify(heap)
        return topics

    def _move(self, giver: str, taker: str, audience: _Audience) -> None:
        heap = self._movable[giver][audience]
        _, topic_id, partitions = heap[0]
        partition = partitions.pop()
        self.held[giver][topic_id].remove(partition)
        if partitions:
            heapreplace(heap, (-len(partitions), topic_id, partitions))
        else:
            heappop(heap)
            if not heap:
                del self._movable[giver][audience]
        self.held[taker][topic_id].add(partition)
        self._movable.pop(taker, None)
        self._load[giver] -= 1
        self._load[taker] += 1
        for each in self._audiences_with[giver]:
            heappush(self._by_load[each], (self._load[giver], giver))


def range_(subscribers: Subscribers, partitions: Mapping[TopicIdBytes, int]) -> dict[str, Assignment]:
    """Assigns contiguous ranges of partitions, and the same partition numbers of all topics with equal partition
    counts. So members that join topics by key find both sides of a key in one member. Members are ordered by instance
    id, which does not change at a restart."""
    given: dict[str, dict[TopicIdBytes, frozenset[int]]] = {member_id: {} for member_id in subscribers}
    for audience, topic_ids in _topics_by_audience(subscribers).items():
        ordered = sorted(audience.members, key=lambda each: (subscribers[each].instance_id or each, each))
        for topic_id in topic_ids:
            for member_id, share in zip(ordered, _ranges(partitions[topic_id], members=len(ordered)), strict=False):
                given[member_id][topic_id] = share
    return {**given}


@lru_cache(maxsize=64)
def _ranges(partitions: int, *, members: int) -> tuple[frozenset[int], ...]:
    """Splits the partitions into one range per member, but at most one per partition. The first ranges are larger by
    one."""
    size, larger = divmod(partitions, members)
    begins = [index * size + min(index, larger) for index in range(min(members, partitions) + 1)]
    return tuple(frozenset(range(begin, end)) for begin, end in pairwise(begins))


def _topics_by_audience(subscribers: Subscribers) -> dict[_Audience, list[TopicIdBytes]]:
    """Groups the topics by their subscribers. The members and the topics of each audience are sorted."""
    alike: dict[frozenset[TopicIdBytes], list[str]] = {}
    for member_id in sorted(subscribers):
        alike.setdefault(subscribers[member_id].topic_ids, []).append(member_id)
    readers_of: dict[TopicIdBytes, list[int]] = {}
    for index, topic_ids in enumerate(alike):
        for topic_id in topic_ids:
            readers_of.setdefault(topic_id, []).append(index)
    members = list(alike.values())
    audiences: dict[tuple[int, ...], _Audience] = {}
    topics: dict[_Audience, list[TopicIdBytes]] = {}
    for topic_id in sorted(readers_of):
        readers = tuple(readers_of[topic_id])
        audience = audiences.get(readers)
        if audience is None:
            audience = _Audience(tuple(sorted(chain.from_iterable(members[index] for index in readers))))
            audiences[readers] = audience
        topics.setdefault(audience, []).append(topic_id)
    return topics


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}
DEFAULT_ASSIGNOR = "uniform"


def partition_count(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def is_within(owned: Iterable[tuple[TopicIdBytes, Iterable[int]]], assignment: Assignment) -> bool:
    """True if the assignment contains every owned partition."""
    return all(partition in assignment.get(topic_id, ()) for topic_id, partitions in owned for partition in partitions)
