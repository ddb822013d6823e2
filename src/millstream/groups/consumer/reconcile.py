"""Computes the next step of one member towards its target assignment.

A member first revokes the partitions that it must lose, and stays in its epoch until it has done so. Then it advances
to the epoch of the target and gets the target partitions that are free. It gets the others in later steps, when their
owners have revoked them. So a partition never has two owners, and no member waits for unrelated members.
"""

from collections.abc import Callable, Collection

from msgspec.structs import replace

from millstream.groups.commands import OwnedPartitions
from millstream.groups.consumer.assignors import Assignment
from millstream.groups.consumer.members import MemberAssignment, MemberState
from millstream.model.ids import TopicIdBytes

Owned = Collection[OwnedPartitions]
IsFree = Callable[[TopicIdBytes, int], bool]
"""Returns True if no other member has the partition, by topic id and number."""


def next_holding(
    holding: MemberAssignment, epoch: int, target: Assignment, owned: Owned | None, is_free: IsFree
) -> MemberAssignment:
    """Returns the assignment of the member after this step; the same object if nothing changes.

    `target` is the member's assignment at `epoch`. `owned` contains the partitions that the member reports. If `owned`
    is None, the member has reported nothing, and no revocation is confirmed.
    """
    if holding.state is MemberState.STABLE and holding.epoch == epoch:
        return holding
    if holding.state is MemberState.UNREVOKED and _has_any(owned, holding.revoking):
        return _extend_revocation(holding, target)
    return _advance(holding, epoch, target, owned, is_free)


def _advance(
    holding: MemberAssignment, epoch: int, target: Assignment, owned: Owned | None, is_free: IsFree
) -> MemberAssignment:
    kept = _common(holding.assigned, target)
    revoking = without(holding.assigned, kept)
    if revoking and _has_any(owned, revoking):
        return replace(holding, state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    wanted = without(target, kept)
    free = _free(wanted, is_free)
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED
    assigned = _joined(kept, free)
    if state is holding.state and epoch == holding.epoch and assigned == holding.assigned and not holding.revoking:
        return holding
    previous_epoch = holding.previous_epoch if epoch == holding.epoch else holding.epoch
    return MemberAssignment(epoch, previous_epoch, state, assigned)


def _extend_revocation(holding: MemberAssignment, target: Assignment) -> MemberAssignment:
    """Extends the revocation if the target has shrunk again meanwhile."""
    kept = _common(holding.assigned, target)
    if kept == holding.assigned:
        return holding
    revoking = _joined(holding.revoking, without(holding.assigned, kept))
    return replace(holding, assigned=kept, revoking=revoking)


def _has_any(owned: Owned | None, partitions: Assignment) -> bool:
    if owned is None:
        return True
    return any(not partitions.get(topic_id, frozenset()).isdisjoint(numbers) for topic_id, numbers in owned)


def _common(one: Assignment, other: Assignment) -> Assignment:
    both = {topic_id: numbers & other[topic_id] for topic_id, numbers in one.items() if topic_id in other}
    return {topic_id: numbers for topic_id, numbers in both.items() if numbers}


def without(one: Assignment, other: Assignment) -> Assignment:
    """Returns the partitions of one assignment that are not in the other."""
    left = {topic_id: numbers - other.get(topic_id, frozenset()) for topic_id, numbers in one.items()}
    return {topic_id: numbers for topic_id, numbers in left.items() if numbers}


def _joined(one: Assignment, other: Assignment) -> Assignment:
    return {**one, **{topic_id: numbers | one.get(topic_id, frozenset()) for topic_id, numbers in other.items()}}


def _free(wanted: Assignment, is_free: IsFree) -> Assignment:
    free = {topic: frozenset(each for each in numbers if is_free(topic, each)) for topic, numbers in wanted.items()}
    return {topic_id: numbers for topic_id, numbers in free.items() if numbers}
