"""Handles JoinGroup for a classic group, depending on the member and on the state of the group."""

from millstream.coordination.effects import Now, Token
from millstream.groups.classic.members import ClassicMember
from millstream.groups.classic.rebalance import ClassicState, Rebalance
from millstream.groups.commands import JoinGroup
from millstream.groups.effects import GroupEffects
from millstream.groups.events import CHANGED, JOINED, REFUSED
from millstream.groups.machine_context import MachineContext
from millstream.groups.responses import JoinResponse
from millstream.groups.size_limits import TOLD_BYTES_MAX, protocols_bytes, text_bytes
from millstream.model.errors import ErrorCode
from millstream.seams.entropy import random_uuid


def join(
    group: Rebalance, context: MachineContext, command: JoinGroup, token: Token, now: Now, effects: GroupEffects
) -> None:
    """Accepts the member or answers with an error. Most joins are answered later, when all members have joined."""
    error = _refusal(group, context, command)
    member = group.members.get(command.member_id)
    if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
        effects.reply(token, JoinResponse(error))
        _drop_refused(group, command.member_id, now, effects)
    elif error is not ErrorCode.NONE:
        effects.reply(token, JoinResponse(error, member_id=command.member_id))
    elif member is not None:
        _join_again(group, member, command, token, now, effects)
    elif command.member_id:
        _add(group, command.member_id, command, token, now, effects)
    else:
        _join_first(group, context, command, token, now, effects)


def _refusal(group: Rebalance, context: MachineContext, command: JoinGroup) -> ErrorCode:
    if not _has_room(group, context.settings.members_max, command) or not _fits_size_limit(group, context, command):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not _fits_protocol(group, command):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not command.member_id or (command.member_id in group.members.expected and command.instance_id is None):
        return ErrorCode.NONE
    return check_member(group, command.member_id, command.instance_id)


def _has_room(group: Rebalance, members_max: int, command: JoinGroup) -> bool:
    """True if the group may accept this join. During a rebalance, members that have already joined are counted. If the
    limit is now smaller than the group, the members that join last are refused."""
    member = group.members.get(command.member_id or group.members.static_id(command.instance_id) or "")
    if group.state is ClassicState.EMPTY:
        return True
    if group.state is ClassicState.PREPARING:
        return (member is not None and member.join_token is not None) or group.members.awaiting_join < members_max
    return member is not None or len(group.members) < members_max


def _fits_size_limit(group: Rebalance, context: MachineContext, command: JoinGroup) -> bool:
    """True if the members' data would still fit into the group's record, and into the memory of the broker. A member
    that sends no more than before is always accepted."""
    names = (command.member_id, command.instance_id, command.client_id, command.client_host)
    more = text_bytes(*names) + protocols_bytes(command.protocols)
    member = group.members.get(command.member_id or group.members.static_id(command.instance_id) or "")
    if member is not None:
        more -= member.told_bytes
    if more > 0 and group.members.told_bytes + more > TOLD_BYTES_MAX:
        return False
    return context.has_member_room(more, is_member=member is not None)


def _drop_refused(group: Rebalance, member_id: str, now: Now, effects: GroupEffects) -> None:
    member = group.members.get(member_id)
    if member is not None:
        group.drop(member, effects, REFUSED)
        group.gather(now, effects)
    elif group.drop_expected(member_id) and group.state is ClassicState.PREPARING:
        group.gather(now, effects)


def _fits_protocol(group: Rebalance, command: JoinGroup) -> bool:
    if group.state is ClassicState.EMPTY:
        return bool(command.protocol_type and command.protocols)
    return command.protocol_type == group.protocol_type and group.members.support(command.protocols)


def check_member(group: Rebalance, member_id: str, instance_id: str | None) -> ErrorCode:
    """Returns an error unless this is a member of the group and, if it has an instance id, the current owner of that
    id."""
    if instance_id is None:
        return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID
    holder = group.members.static_id(instance_id)
    if holder is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if holder == member_id else ErrorCode.FENCED_INSTANCE_ID


def _join_first(
    group: Rebalance, context: MachineContext, command: JoinGroup, token: Token, now: Now, effects: GroupEffects
) -> None:
    """Handles a join without a member id: generates the id."""
    new_id = f"{command.instance_id or command.client_id}-{random_uuid(context.entropy)}"
    known = group.members.get(group.members.static_id(command.instance_id) or "")
    if known is not None:
        _rejoin_static(group, known, new_id, command, token, now, effects)
    elif command.instance_id is None and command.knows_member_id_required:
        group.expect(new_id, command.session_timeout_ms, now)
        effects.reply(token, JoinResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id))
    else:
        _add(group, new_id, command, token, now, effects)


def _add(group: Rebalance, member_id: str, command: JoinGroup, token: Token, now: Now, effects: GroupEffects) -> None:
    member = ClassicMember(
        member_id=member_id,
        instance_id=command.instance_id,
        client_id=command.client_id,
        client_host=command.client_host,
        session_timeout_ms=command.session_timeout_ms,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        protocols=command.protocols,
        join_token=token,
        is_new=True,
    )
    group.add(member, command.protocol_type, now, effects)


def _join_again(
    group: Rebalance, member: ClassicMember, command: JoinGroup, token: Token, now: Now, effects: GroupEffects
) -> None:
    """Handles the join of a known member. Outside of a rebalance, a member with unchanged protocols gets the current
    generation again, because it may have missed that answer. Other joins start a rebalance or take part in the running
    one; so does the join of a leader in a stable group."""
    leads = group.members.leader == member.member_id
    says_something_new = member.protocols != command.protocols
    if group.state is ClassicState.PREPARING or says_something_new or (leads and group.state is ClassicState.STABLE):
        group.members.update(member, command, token, effects)
        group.reason.add(CHANGED if says_something_new else "leader rejoined")
        group.gather(now, effects)
    else:
        effects.reply(token, group.present(member))


def _rejoin_static(
    group: Rebalance,
    member: ClassicMember,
    new_id: str,
    command: JoinGroup,
    token: Token,
    now: Now,
    effects: GroupEffects,
) -> None:
    """Handles the join of a returning static member.

    The member gets a new member id, which replaces the old one. If the group is stable and its chosen protocol does not
    change, the other members do not have to rejoin.
    """
    leader_before = group.members.leader or ""
    group.replace(member, new_id, now, effects)
    group.members.update(member, command, token, effects)
    if group.state is not ClassicState.STABLE or group.members.choose_protocol() != group.protocol_name:
        group.reason.add(JOINED)
        group.gather(now, effects)
        return
    group.store(effects)
    group.members.answer_join(
        member, _unchanged_generation(group, member, leader_before, command.can_skip_assignment), effects
    )


def _unchanged_generation(
    group: Rebalance, member: ClassicMember, leader_before: str, can_skip_assignment: bool
) -> JoinResponse:
    """Builds the answer to a static member that returns to a group without a rebalance. If the member leads and its
    version does not know SkipAssignment, the answer names the leader's old id. The member then does not consider itself
    the leader, and computes no assignment."""
    present = group.present(member)
    leads = present.leader == member.member_id
    return JoinResponse(
        generation=present.generation,
        protocol_type=present.protocol_type,
        protocol_name=present.protocol_name,
        leader=present.leader if can_skip_assignment else leader_before,
        skip_assignment=leads and can_skip_assignment,
        member_id=member.member_id,
        members=present.members if can_skip_assignment else (),
    )
