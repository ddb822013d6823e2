"""Handles members that use the classic protocol in a group of the newer one: JoinGroup, SyncGroup, Heartbeat,
LeaveGroup.

The broker assigns partitions to these members too. A join is answered immediately and names no leader. The following
sync returns the assignment, in the embedded protocol. When the member can take its next step, a heartbeat asks it to
join again. This happens only after the partitions have been assigned, because an earlier join would have no effect. The
member's generation is its member epoch.
"""

from millstream.coordination.effects import Now
from millstream.groups.commands import Heartbeat, JoinGroup, LeaveGroup, LeavingMember, SyncGroup
from millstream.groups.consumer.embedded_records import EmbeddedSubscription, read_subscription, write_assignment
from millstream.groups.consumer.members import ClassicTerms, MemberAssignment, MemberState, MemberSubscription
from millstream.groups.consumer.membership import GroupMembership
from millstream.groups.effects import GroupEffects
from millstream.groups.records import CONSUMERS
from millstream.groups.responses import EmptyResponse, JoinResponse, LeftMember, SyncResponse
from millstream.groups.timers import TimerKind
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.entropy import random_uuid


def check_join(members: GroupMembership, command: JoinGroup) -> EmbeddedSubscription:
    """Returns the subscription in a join. Raises an error if the request or the limits of the group do not permit the
    join."""
    holder = members.state.static_ids.get(command.instance_id) if command.instance_id is not None else None
    members.check_room(command.member_id or holder or "")
    if command.protocol_type != CONSUMERS or not _is_supported(members, command):
        raise MillstreamError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        embedded = read_subscription(command.protocols, members.context.topics)
    except MillstreamError as error:
        raise MillstreamError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, error.detail) from error
    members.check_told(command.member_id or holder or "", _subscription(command, embedded))
    return embedded


def _is_supported(members: GroupMembership, command: JoinGroup) -> bool:
    """True if all classic members would have a protocol in common, so that they could form a classic group."""
    common = {each.name for each in command.protocols}
    for member_id, subscription in members.state.subscriptions.items():
        if subscription.classic is not None and member_id != command.member_id:
            common &= {each.name for each in subscription.classic.protocols}
    return bool(common)


def join(members: GroupMembership, command: JoinGroup, now: Now, effects: GroupEffects) -> JoinResponse:
    """Adds or updates a member that uses the classic protocol. An error is raised before anything has changed."""
    embedded = check_join(members, command)
    state = members.state
    if command.member_id:
        member_id = command.member_id
    else:
        member_id = f"{command.instance_id or command.client_id}-{random_uuid(members.context.entropy)}"
        if command.instance_id is None and command.knows_member_id_required:
            return JoinResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    if command.instance_id is not None:
        if command.member_id:
            members.check_instance(member_id, command.instance_id)
        elif (holder := state.static_ids.get(command.instance_id)) is not None:
            members.replace(holder, member_id, effects)
    members.subscribe(member_id, _subscription(command, embedded), now, effects)
    members.assign(now, effects)
    holding = members.reconcile(member_id, embedded.owned, now, effects)
    members.cancel(TimerKind.JOIN, member_id)
    members.cancel(TimerKind.REBALANCE, member_id)
    members.heard_of(member_id, now)
    members.set_timer(TimerKind.SYNC, member_id, command.rebalance_timeout_ms, now)
    return JoinResponse(
        generation=holding.epoch,
        protocol_type=CONSUMERS,
        protocol_name=command.protocols[0].name,
        member_id=member_id,
    )


def _subscription(command: JoinGroup, embedded: EmbeddedSubscription) -> MemberSubscription:
    return MemberSubscription(
        instance_id=command.instance_id,
        rack_id=embedded.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=embedded.topics,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        classic=ClassicTerms(command.session_timeout_ms, command.protocols),
    )


def sync(members: GroupMembership, command: SyncGroup, now: Now, effects: GroupEffects) -> SyncResponse:
    """Returns the member's current assignment."""
    classic, holding = _check(members, command)
    protocol = classic.protocols[0]
    if command.protocol_type not in (None, CONSUMERS) or command.protocol_name not in (None, protocol.name):
        raise MillstreamError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    members.assign(now, effects)
    if members.state.target_epoch > holding.epoch and holding.state is not MemberState.UNREVOKED:
        _request_rejoin(members, command.member_id, now)
        return SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS)
    members.cancel(TimerKind.SYNC, command.member_id)
    members.heard_of(command.member_id, now)
    assignment = write_assignment(holding.assigned, classic.protocols, members.context.topics)
    return SyncResponse(protocol_type=CONSUMERS, protocol_name=protocol.name, assignment=assignment)


def heartbeat(members: GroupMembership, command: Heartbeat, now: Now, effects: GroupEffects) -> EmptyResponse:
    """Restarts the member's session timeout, and asks the member to join again if it can take its next step."""
    _, holding = _check(members, command)
    members.heard_of(command.member_id, now)
    members.refresh(now, effects)
    members.assign(now, effects)
    if (
        holding.epoch < members.state.target_epoch
        or holding.state is MemberState.UNREVOKED
        or (holding.state is MemberState.UNRELEASED and _can_get_more(members, command.member_id, holding))
    ):
        _request_rejoin(members, command.member_id, now)
        return EmptyResponse(ErrorCode.REBALANCE_IN_PROGRESS)
    return EmptyResponse()


def _check(members: GroupMembership, command: SyncGroup | Heartbeat) -> tuple[ClassicTerms, MemberAssignment]:
    members.check_instance(command.member_id, command.instance_id)
    classic = members.subscription(command.member_id).classic
    if classic is None:
        raise MillstreamError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {command.member_id} does not use the classic protocol."
        )
    holding = members.holding(command.member_id)
    if command.generation != holding.epoch:
        raise MillstreamError(ErrorCode.ILLEGAL_GENERATION)
    return classic, holding


def _can_get_more(members: GroupMembership, member_id: str, holding: MemberAssignment) -> bool:
    state = members.state
    return any(
        partition not in holding.assigned.get(topic_id, ()) and state.is_free(topic_id, partition, member_id)
        for topic_id, partitions in state.targets.get(member_id, {}).items()
        for partition in partitions
    )


def _request_rejoin(members: GroupMembership, member_id: str, now: Now) -> None:
    timeout_ms = members.state.subscriptions[member_id].rebalance_timeout_ms
    members.begin_timer(TimerKind.JOIN, member_id, timeout_ms, now)


def leaving(members: GroupMembership, command: LeaveGroup) -> tuple[list[str], tuple[LeftMember, ...]]:
    """Returns the ids of the members that a LeaveGroup removes, and the answer for each. Changes nothing."""
    gone: dict[str, None] = {}
    answers = []
    for each in command.members:
        error = ErrorCode.NONE
        try:
            gone[_leaver(members, each)] = None
        except MillstreamError as refusal:
            error = refusal.code
        answers.append(LeftMember(each.member_id, each.instance_id, error))
    return list(gone), tuple(answers)


def _leaver(members: GroupMembership, leaver: LeavingMember) -> str:
    """Returns the id of the leaving member. An operator may name only an instance id, which removes its current
    owner."""
    if leaver.instance_id is not None and not leaver.member_id:
        holder = members.state.static_ids.get(leaver.instance_id, "")
        members.subscription(holder)
        return holder
    members.check_instance(leaver.member_id, leaver.instance_id)
    return leaver.member_id
