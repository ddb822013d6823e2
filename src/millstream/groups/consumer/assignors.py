"""Who is to get which partition: the assignors of the broker, pure functions of subscriptions and what was before.

Every partition of a subscribed topic goes to exactly one of its subscribers. The order of members and topics in the
input does not matter: equal input gives equal output, so that a replay or a simulation comes to the same result.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, pairwise
from typing import NamedTuple

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; topics without partitions are not named. Never changed once made."""

NOTHING: Assignment = {}


class Subscriber(NamedTuple):
    topic_ids: frozenset[bytes]
    """Existing topics only."""
    before: Assignment
    """What it was to have until now."""
    instance_id: str | None = None


Subscribers = Mapping[str, Subscriber]
Assignor = Callable[[Subscribers, Mapping[bytes, int]], dict[str, Assignment]]
"""From subscribers by member id, and the number of partitions by topic id, to what each of them is to have."""


def uniform(subscribers: Subscribers, partitions: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Balanced and sticky: everybody gets as many partitions as the others, and keeps what it had.

    What was held and still fits stays; what nobody holds goes to the least loaded; then single partitions move from
    the most loaded to the least loaded, until nobody could give one to a member that has two less. Where all subscribe
    to the same topics, loads differ by one at most and no other assignment of such loads would have moved less.
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
    """Compared by identity, because there is one for each set of members; the order of use never depends on it."""

    def __init__(self, members: tuple[str, ...]) -> None:
        self.members = members


_ToGive = tuple[int, bytes, list[int]]
"""How many partitions of a topic a member has, negative; the topic; the partitions, the next one to give last."""


class _Sharing:
    """Topics with the same subscribers, an audience, are looked at together: mostly there is only one."""

    def __init__(self, subscribers: Subscribers, partitions: Mapping[bytes, int]) -> None:
        self._subscribers = subscribers
        self._topics_of = _topics_by_audience(subscribers)
        self._audience_of = {
            topic_id: audience for audience, topic_ids in self._topics_of.items() for topic_id in topic_ids
        }
        self.held: dict[str, dict[bytes, set[int]]] = {member_id: defaultdict(set) for member_id in subscribers}
        self._load = dict.fromkeys(subscribers, 0)
        self._unassigned = {topic_id: set(range(partitions[topic_id])) for topic_id in self._audience_of}
        self._to_give: dict[str, dict[_Audience, list[_ToGive]]] = {}
        self._by_load: dict[_Audience, list[tuple[int, str]]] = {}
        """Heaps for `_least_loaded`: each member has a place in them that is not higher than its load."""
        self._audiences_with: dict[str, list[_Audience]] = {member_id: [] for member_id in subscribers}
        """Those of `_by_load` that a member is in."""

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
        """Topics with few subscribers first: their partitions have the least choice."""
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
        """Ends, because each move makes the sum of the squared loads smaller."""
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
        """To the least loaded of those who read what the giver has, if that one has two less at least."""
        best: tuple[int, str] | None = None
        for audience in self._to_give.get(giver) or self._read_with(giver):
            taker = self._least_loaded(audience)
            if taker[0] + 2 <= self._load[giver] and (best is None or taker < best):
                best, best_audience = taker, audience
        if best is None:
            return False
        if giver not in self._to_give:
            self._to_give[giver] = self._topics_to_give(giver)
        self._move(giver, best[1], best_audience)
        return True

    def _read_with(self, giver: str) -> Iterable[_Audience]:
        """Those who read what the giver has."""
        return dict.fromkeys(self._audience_of[topic_id] for topic_id, held in self.held[giver].items() if held)

    def _least_loaded(self, audience: _Audience) -> tuple[int, str]:
        """Loads that have grown are noticed when they come up; one that shrinks must be put in by who makes it so."""
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

    def _topics_to_give(self, giver: str) -> dict[_Audience, list[_ToGive]]:
        """By who else reads them, in heaps: of which topic it has the most, it gives first, to keep topics spread."""
        topics: dict[_Audience, list[_ToGive]] = {}
        for topic_id, held in self.held[giver].items():
            if held:
                topics.setdefault(self._audience_of[topic_id], []).append((-len(held), topic_id, sorted(held)))
        for heap in topics.values():
            heapify(heap)
        return topics

    def _move(self, giver: str, taker: str, audience: _Audience) -> None:
        heap = self._to_give[giver][audience]
        _, topic_id, partitions = heap[0]
        partition = partitions.pop()
        self.held[giver][topic_id].remove(partition)
        if partitions:
            heapreplace(heap, (-len(partitions), topic_id, partitions))
        else:
            heappop(heap)
            if not heap:
                del self._to_give[giver][audience]
        self.held[taker][topic_id].add(partition)
        self._to_give.pop(taker, None)
        self._load[giver] -= 1
        self._load[taker] += 1
        for each in self._audiences_with[giver]:
            heappush(self._by_load[each], (self._load[giver], giver))


def range_(subscribers: Subscribers, partitions: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Neighbouring partitions together, and the same numbers of topics that are partitioned alike: members that join
    topics by key find both sides of a key with one member. The order is by static id, so it outlives a restart."""
    given: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in subscribers}
    for audience, topic_ids in _topics_by_audience(subscribers).items():
        ordered = sorted(audience.members, key=lambda each: (subscribers[each].instance_id or each, each))
        for topic_id in topic_ids:
            for member_id, share in zip(ordered, _ranges(partitions[topic_id], len(ordered)), strict=False):
                given[member_id][topic_id] = share
    return {**given}


@lru_cache(maxsize=64)
def _ranges(partitions: int, members: int) -> tuple[frozenset[int], ...]:
    """As many shares as there are members, or partitions if these are fewer; the first ones are larger by one."""
    size, larger = divmod(partitions, members)
    begins = [index * size + min(index, larger) for index in range(min(members, partitions) + 1)]
    return tuple(frozenset(range(begin, end)) for begin, end in pairwise(begins))


def _topics_by_audience(subscribers: Subscribers) -> dict[_Audience, list[bytes]]:
    """Members and topics of each audience are sorted."""
    alike: dict[frozenset[bytes], list[str]] = {}
    for member_id in sorted(subscribers):
        alike.setdefault(subscribers[member_id].topic_ids, []).append(member_id)
    readers_of: dict[bytes, list[int]] = {}
    for index, topic_ids in enumerate(alike):
        for topic_id in topic_ids:
            readers_of.setdefault(topic_id, []).append(index)
    members = list(alike.values())
    audiences: dict[tuple[int, ...], _Audience] = {}
    topics: dict[_Audience, list[bytes]] = {}
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


def is_within(owned: Iterable[tuple[bytes, Iterable[int]]], assignment: Assignment) -> bool:
    """Whether nothing is owned that is not in the assignment."""
    return all(partition in assignment.get(topic_id, ()) for topic_id, partitions in owned for partition in partitions)
