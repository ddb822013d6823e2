"""Converts a group from one protocol to the other while its members keep reading, in both directions.

A classic group of consumers is converted when the first member with the consumer protocol joins. Its members become
members of the new group. Their current assignments become their targets, and their next heartbeat asks them to rejoin.

A group of the consumer protocol is converted when the last member that uses this protocol leaves. The remaining members
form a classic group, which rebalances immediately.

The tombstones of the old group and the records of the new one are written together, so a crash leaves exactly one of
the two.
"""

from collections.abc import Mapping

from millstream.coordination.effects import Now
from millstream.groups.classic.group import ClassicGroup
from millstream.groups.classic.members import ClassicMember
from millstream.groups.classic.rebalance import ClassicState
from millstream.groups.consumer.assignors import Assignment
from millstream.groups.consumer.embedded_records import read_assignment, read_subscription, write_assignment
from millstream.groups.consumer.members import NO_HOLDING, ClassicTerms, MemberAssignment, MemberSubscription
from millstream.groups.consumer.records import GroupEpoch, TargetEpoch
from millstream.groups.consumer.state import GroupState
from millstream.groups.effects import GroupEffects
from millstream.groups.machine_context import MachineContext
from millstream.groups.records import CONSUMERS
from millstream.groups.responses import JoinResponse, SyncResponse
from millstream.groups.size_limits import ASSIGNED_BYTES_MAX
from millstream.groups.topic_image import TopicImage
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicIdBytes


def to_consumer(classic: ClassicGroup, context: MachineContext, now: Now, effects: GroupEffects) -> GroupState:
    """Returns the state of a new group that has the members of the classic one, and removes the classic group. Its
    members that wait for an answer are asked to rejoin. Raises GROUP_ID_NOT_FOUND or GROUP_MAX_SIZE_REACHED, before
    anything has changed, if the group cannot be converted."""
    _check_convertible(classic, context)
    subscriptions = {member.member_id: _subscription(classic, member, context.topics) for member in classic.members}
    assigned = _assigned_once(
        {member.member_id: _assignment(classic, member, context.topics) for member in classic.members}
    )
    _fail_pending_requests(classic, effects)
    classic.remove(effects)
    generation = classic.rebalance.generation
    state = GroupState(classic.group_id)
    for member_id, subscription in subscriptions.items():
        holding = MemberAssignment(generation, generation, assigned=assigned[member_id])
        effects.records += [
            state.write_subscription(member_id, subscription),
            state.write_target(member_id, assigned[member_id]),
            state.write_holding(member_id, holding),
        ]
    effects.records += [
        state.write_group(GroupEpoch(generation, state.hash_of_topics(context.topics))),
        state.write_target_epoch(TargetEpoch(generation, now.wall_ms)),
    ]
    return state


def _check_convertible(classic: ClassicGroup, context: MachineContext) -> None:
    if classic.rebalance.protocol_type != CONSUMERS:
        raise _not_convertible(classic, "its members are not consumers")
    if len(classic.members) >= context.settings.members_max:
        raise MillstreamError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The group has reached its maximum of {context.settings.members_max} members.",
        )


def _not_convertible(classic: ClassicGroup, reason: str) -> MillstreamError:
    return MillstreamError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Classic group {classic.group_id} cannot be converted to the consumer protocol: {reason}.",
    )


def _subscription(classic: ClassicGroup, member: ClassicMember, topics: TopicImage) -> MemberSubscription:
    try:
        embedded = read_subscription(member.protocols, topics)
    except MillstreamError as error:
        raise _not_convertible(classic, f"the subscription of member {member.member_id} cannot be decoded") from error
    return MemberSubscription(
        instance_id=member.instance_id,
        rack_id=embedded.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=embedded.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicTerms(member.session_timeout_ms, member.protocols),
    )


def _assignment(classic: ClassicGroup, member: ClassicMember, topics: TopicImage) -> Assignment:
    try:
        return read_assignment(member.assignment, topics)
    except MillstreamError as error:
        raise _not_convertible(classic, f"the assignment of member {member.member_id} cannot be decoded") from error


def _assigned_once(assigned: Mapping[str, Assignment]) -> dict[str, Assignment]:
    """Removes duplicates: the leader of a classic group may assign a partition to two members, and the first one keeps
    it."""
    taken: dict[TopicIdBytes, frozenset[int]] = {}
    once: dict[str, Assignment] = {}
    for member_id, assignment in assigned.items():
        own = {topic_id: numbers - taken.get(topic_id, frozenset()) for topic_id, numbers in assignment.items()}
        once[member_id] = {topic_id: numbers for topic_id, numbers in own.items() if numbers}
        for topic_id, numbers in assignment.items():
            taken[topic_id] = taken.get(topic_id, frozenset()) | numbers
    return once


def _fail_pending_requests(classic: ClassicGroup, effects: GroupEffects) -> None:
    rejoin = ErrorCode.REBALANCE_IN_PROGRESS
    for member in classic.members:
        classic.members.answer_join(member, JoinResponse(rejoin, member_id=member.member_id), effects)
        classic.members.answer_sync(member, SyncResponse(rejoin), effects)


def to_classic(state: GroupState, context: MachineContext, now: Now, effects: GroupEffects) -> ClassicGroup:
    """Returns a classic group with the members of this one, all of which use the classic protocol. It rebalances
    immediately."""
    group = ClassicGroup(state.group_id, context)
    rebalance = group.rebalance
    for member_id, subscription in state.subscriptions.items():
        terms = subscription.classic
        if terms is None:
            raise ValueError(f"member {member_id} does not use the classic protocol")
        assigned = state.holdings.get(member_id, NO_HOLDING).assigned
        member = ClassicMember(
            member_id=member_id,
            instance_id=subscription.instance_id,
            client_id=subscription.client_id,
            client_host=subscription.client_host,
            session_timeout_ms=terms.session_timeout_ms,
            rebalance_timeout_ms=subscription.rebalance_timeout_ms,
            protocols=terms.protocols,
            assignment=write_assignment(assigned, terms.protocols, context.topics),
        )
        rebalance.members.add(member)
        rebalance.heard_of(member, now)
    if sum(len(member.assignment) for member in group.members) > ASSIGNED_BYTES_MAX:
        # The group rebalances immediately, so only the log needs these assignments, and they do not fit into it.
        for member in group.members:
            member.assignment = b""
    rebalance.state = ClassicState.STABLE
    rebalance.since_ms = now.wall_ms
    rebalance.protocol_type = CONSUMERS
    rebalance.protocol_name = rebalance.members.choose_protocol()
    generation = state.epoch
    effects.records += state.drop_all()
    # The log gets the next generation, which no member knows yet. If a crash interrupts the rebalance, all members have
    # to rejoin. They could otherwise continue without the partitions that have become free.
    rebalance.generation = generation + 1
    rebalance.store(effects)
    rebalance.generation = generation
    rebalance.reason.add("last consumer protocol member gone")
    rebalance.prepare(now, effects)
    return group
