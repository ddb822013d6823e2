"""The next step of one member towards what it is to have.

A member first gives back what it is no longer to have, and stays in its epoch until it has; then it goes on to the
epoch of the target and gets what is free; what others have not yet given back, it gets in later steps. So a partition
never has two owners, and nobody waits for members that are not concerned.
"""

from collections.abc import Callable, Collection

from msgspec.structs import replace

from millstream.groups.commands import OwnedPartitions
from millstream.groups.consumer.assignors import Assignment
from millstream.groups.consumer.members import MemberAssignment, MemberState

Owned = Collection[OwnedPartitions]
IsFree = Callable[[bytes, int], bool]
"""Whether no other member has the partition, by topic id and number."""


def next_holding(
    holding: MemberAssignment, epoch: int, target: Assignment, owned: Owned | None, is_free: IsFree
) -> MemberAssignment:
    """What the member has after this step; `holding` itself if nothing changes.

    `target` is what it is to have at `epoch`. `owned` is what it says to have; None if it says nothing, which is no
    sign of having given anything back.
    """
    if holding.state is MemberState.STABLE and holding.epoch == epoch:
        return holding
    if holding.state is MemberState.UNREVOKED and _has_any(owned, holding.revoking):
        return _take_back(holding, target)
    return _towards(holding, epoch, target, owned, is_free)


def _towards(
    holding: MemberAssignment, epoch: int, target: Assignment, owned: Owned | None, is_free: IsFree
) -> MemberAssignment:
    kept = _common(holding.assigned, target)
    revoking = _without(holding.assigned, kept)
    if revoking and _has_any(owned, revoking):
        return replace(holding, state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    wanted = _without(target, kept)
    free = _free(wanted, is_free)
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED
    assigned = _joined(kept, free)
    if state is holding.state and epoch == holding.epoch and assigned == holding.assigned and not holding.revoking:
        return holding
    previous_epoch = holding.previous_epoch if epoch == holding.epoch else holding.epoch
    return MemberAssignment(epoch, previous_epoch, state, assigned)


def _take_back(holding: MemberAssignment, target: Assignment) -> MemberAssignment:
    """What the member is to give back grows when the target shrinks once more meanwhile."""
    kept = _common(holding.assigned, target)
    if kept == holding.assigned:
        return holding
    revoking = _joined(holding.revoking, _without(holding.assigned, kept))
    return replace(holding, assigned=kept, revoking=revoking)


def _has_any(owned: Owned | None, partitions: Assignment) -> bool:
    if owned is None:
        return True
    return any(not partitions.get(topic_id, frozenset()).isdisjoint(numbers) for topic_id, numbers in owned)


def _common(one: Assignment, other: Assignment) -> Assignment:
    both = {topic_id: numbers & other[topic_id] for topic_id, numbers in one.items() if topic_id in other}
    return {topic_id: numbers for topic_id, numbers in both.items() if numbers}


def _without(one: Assignment, other: Assignment) -> Assignment:
    left = {topic_id: numbers - other.get(topic_id, frozenset()) for topic_id, numbers in one.items()}
    return {topic_id: numbers for topic_id, numbers in left.items() if numbers}


def _joined(one: Assignment, other: Assignment) -> Assignment:
    return {**one, **{topic_id: numbers | one.get(topic_id, frozenset()) for topic_id, numbers in other.items()}}


def _free(wanted: Assignment, is_free: IsFree) -> Assignment:
    free = {topic: frozenset(each for each in numbers if is_free(topic, each)) for topic, numbers in wanted.items()}
    return {topic_id: numbers for topic_id, numbers in free.items() if numbers}
