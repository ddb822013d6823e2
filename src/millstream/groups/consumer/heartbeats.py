"""Handles ConsumerGroupHeartbeat of members that join or stay."""

from msgspec.structs import replace

from millstream.coordination.effects import Now
from millstream.groups.commands import ConsumerHeartbeat
from millstream.groups.consumer.assignors import Assignment, is_within
from millstream.groups.consumer.checks import JOIN_EPOCH
from millstream.groups.consumer.members import AWAY_EPOCH, NEW_SUBSCRIPTION, MemberSubscription
from millstream.groups.consumer.membership import GroupMembership
from millstream.groups.effects import GroupEffects
from millstream.groups.responses import AssignedTopic, ConsumerHeartbeatResponse
from millstream.groups.topic_image import TopicImage
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.entropy import random_uuid


def heartbeat(
    members: GroupMembership, command: ConsumerHeartbeat, now: Now, effects: GroupEffects
) -> ConsumerHeartbeatResponse:
    """Applies the heartbeat of a member that joins or stays. An error is raised before anything has changed."""
    member_id = command.member_id or str(random_uuid(members.context.entropy))
    members.check_room(member_id)
    replaced_id = _find(members, member_id, command)
    place = replaced_id if replaced_id is not None else member_id
    updated = _updated(members.state.subscriptions.get(place, NEW_SUBSCRIPTION), command)
    members.check_told(place, updated)

    if replaced_id is not None:
        members.replace(replaced_id, member_id, effects)
    before = members.holding(member_id)
    members.subscribe(member_id, updated, now, effects)
    members.assign(now, effects)
    after = members.reconcile(member_id, command.owned, now, effects)
    members.heard_of(member_id, now)

    knows_assignment = (
        not _is_full(command)
        and command.member_epoch == before.epoch
        and (after is before or after.assigned == before.assigned)
    )
    return ConsumerHeartbeatResponse(
        member_id=member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=members.context.configs.heartbeat_interval_ms(members.state.group_id),
        assignment=None if knows_assignment else assigned_topics(after.assigned, members.context.topics),
    )


def assigned_topics(assignment: Assignment, topics: TopicImage) -> tuple[AssignedTopic, ...]:
    """Returns the topics of an assignment in the order of their ids. A topic that was deleted meanwhile has an empty
    name."""
    found = ((topic_id, topics.by_id(topic_id), numbers) for topic_id, numbers in sorted(assignment.items()))
    return tuple(
        AssignedTopic(topic_id, topic.name if topic else "", tuple(sorted(numbers)))
        for topic_id, topic, numbers in found
    )


def _find(members: GroupMembership, member_id: str, command: ConsumerHeartbeat) -> str | None:
    """Returns the member id that a returning static member replaces; None if it replaces no other id."""
    state = members.state
    holder = state.static_ids.get(command.instance_id) if command.instance_id is not None else None
    if command.member_epoch != JOIN_EPOCH:
        members.check_instance(member_id, command.instance_id)
        _check_epoch(members, member_id, command)
        return None
    if holder is None or holder == member_id:
        return None
    if state.subscriptions[holder].classic is None and members.holding(holder).epoch != AWAY_EPOCH:
        raise MillstreamError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Member {member_id} cannot join: instance id {command.instance_id} is owned by member {holder}.",
        )
    return holder


def _check_epoch(members: GroupMembership, member_id: str, command: ConsumerHeartbeat) -> None:
    """Checks the member epoch. The previous epoch is accepted if the member owns nothing beyond its assignment, because
    it may have missed an answer."""
    holding = members.holding(member_id)
    if command.member_epoch == holding.epoch:
        return
    if command.member_epoch > holding.epoch:
        relation = "greater"
    elif (
        command.member_epoch == holding.previous_epoch
        and command.owned is not None
        and is_within(command.owned, holding.assigned)
    ):
        return
    else:
        relation = "smaller"
    raise MillstreamError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member has a {relation} epoch ({command.member_epoch}) than the one known by the group "
        f"({holding.epoch}). It must abandon all its partitions and join again.",
    )


def _updated(known: MemberSubscription, command: ConsumerHeartbeat) -> MemberSubscription:
    """Returns the subscription after this request; fields that the request omits are unchanged."""
    return replace(
        known,
        instance_id=command.instance_id if command.instance_id is not None else known.instance_id,
        rack_id=command.rack_id if command.rack_id is not None else known.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=known.topics if command.subscribed_topics is None else tuple(sorted(set(command.subscribed_topics))),
        regex=known.regex if command.subscribed_regex is None else command.subscribed_regex,
        rebalance_timeout_ms=(
            known.rebalance_timeout_ms if command.rebalance_timeout_ms == -1 else command.rebalance_timeout_ms
        ),
        assignor=command.server_assignor if command.server_assignor is not None else known.assignor,
        classic=None,
    )


def _is_full(command: ConsumerHeartbeat) -> bool:
    """True if the request contains all fields of the member. A member sends all of them after it has missed an
    answer."""
    says_topics = command.subscribed_topics is not None or command.subscribed_regex is not None
    return command.rebalance_timeout_ms != -1 and says_topics and command.owned is not None
