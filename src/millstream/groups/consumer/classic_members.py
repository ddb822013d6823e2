"""Members that speak the classic protocol in a group of the new one: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The broker shares out the partitions for them too. A join is answered at once, with nobody as leader; the sync after it
brings the assignment, in the embedded protocol. Whenever there is a next step to take, a heartbeat sends the member to
join again: not before the partitions have been shared out, or it would come for nothing. Its generation is its member
epoch.
"""

from millstream.groups.commands import Heartbeat, JoinGroup, LeaveGroup, LeavingMember, SyncGroup
from millstream.groups.consumer.embedded_records import EmbeddedSubscription, read_subscription, write_assignment
from millstream.groups.consumer.members import ClassicTerms, MemberAssignment, MemberState, MemberSubscription
from millstream.groups.consumer.membership import GroupMembership
from millstream.groups.effects import Effects, Now
from millstream.groups.records import CONSUMERS
from millstream.groups.responses import EmptyResponse, JoinResponse, LeftMember, SyncResponse
from millstream.groups.timers import TimerKind
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.entropy import random_uuid


def check_join(members: GroupMembership, command: JoinGroup) -> EmbeddedSubscription:
    """What a join says, if it may be made as far as the request and the group as a whole are concerned."""
    holder = members.state.static_ids.get(command.instance_id) if command.instance_id is not None else None
    members.check_room(command.member_id or holder or "")
    if command.protocol_type != CONSUMERS or not _is_supported(members, command):
        raise MillstreamError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        told = read_subscription(command.protocols, members.context.topics)
    except MillstreamError as error:
        raise MillstreamError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, error.detail) from error
    members.check_told(command.member_id or holder or "", _subscription(command, told))
    return told


def _is_supported(members: GroupMembership, command: JoinGroup) -> bool:
    """Whether all classic members have a protocol in common, so that they could become a classic group."""
    common = {each.name for each in command.protocols}
    for member_id, subscription in members.state.subscriptions.items():
        if subscription.classic is not None and member_id != command.member_id:
            common &= {each.name for each in subscription.classic.protocols}
    return bool(common)


def join(members: GroupMembership, command: JoinGroup, now: Now, effects: Effects) -> JoinResponse:
    """Raises before anything has changed."""
    told = check_join(members, command)
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
    members.subscribe(member_id, _subscription(command, told), now, effects)
    members.assign(now, effects)
    holding = members.reconcile(member_id, told.owned, now, effects)
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


def _subscription(command: JoinGroup, told: EmbeddedSubscription) -> MemberSubscription:
    return MemberSubscription(
        instance_id=command.instance_id,
        rack_id=told.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=told.topics,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        classic=ClassicTerms(command.session_timeout_ms, command.protocols),
    )


def sync(members: GroupMembership, command: SyncGroup, now: Now, effects: Effects) -> SyncResponse:
    """The member's part of what was shared out."""
    classic, holding = _check(members, command)
    protocol = classic.protocols[0]
    if command.protocol_type not in (None, CONSUMERS) or command.protocol_name not in (None, protocol.name):
        raise MillstreamError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    members.assign(now, effects)
    if members.state.target_epoch > holding.epoch and holding.state is not MemberState.UNREVOKED:
        _send_to_join(members, command.member_id, now)
        return SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS)
    members.cancel(TimerKind.SYNC, command.member_id)
    members.heard_of(command.member_id, now)
    assignment = write_assignment(holding.assigned, classic.protocols, members.context.topics)
    return SyncResponse(protocol_type=CONSUMERS, protocol_name=protocol.name, assignment=assignment)


def heartbeat(members: GroupMembership, command: Heartbeat, now: Now, effects: Effects) -> EmptyResponse:
    """Sends the member to join again when there is a step that it can take."""
    _, holding = _check(members, command)
    members.heard_of(command.member_id, now)
    members.refresh(now, effects)
    members.assign(now, effects)
    if (
        holding.epoch < members.state.target_epoch
        or holding.state is MemberState.UNREVOKED
        or (holding.state is MemberState.UNRELEASED and _can_get_more(members, command.member_id, holding))
    ):
        _send_to_join(members, command.member_id, now)
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


def _send_to_join(members: GroupMembership, member_id: str, now: Now) -> None:
    timeout_ms = members.state.subscriptions[member_id].rebalance_timeout_ms
    members.begin_timer(TimerKind.JOIN, member_id, timeout_ms, now)


def leaving(members: GroupMembership, command: LeaveGroup) -> tuple[list[str], tuple[LeftMember, ...]]:
    """The members that a LeaveGroup takes out, and what is answered to it; nothing has changed yet."""
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
    """By a static id alone, an operator takes out whoever has it."""
    if leaver.instance_id is not None and not leaver.member_id:
        holder = members.state.static_ids.get(leaver.instance_id, "")
        members.subscription(holder)
        return holder
    members.check_instance(leaver.member_id, leaver.instance_id)
    return leaver.member_id
