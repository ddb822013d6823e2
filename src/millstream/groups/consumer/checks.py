"""Checks a ConsumerGroupHeartbeat for errors that are visible in the request alone. Error texts use Kafka's field
names."""

from millstream.groups.commands import ConsumerHeartbeat
from millstream.groups.consumer.assignors import ASSIGNORS
from millstream.groups.consumer.members import AWAY_EPOCH
from millstream.model.errors import ErrorCode, MillstreamError

JOIN_EPOCH, LEAVE_EPOCH = 0, -1


def check_heartbeat(command: ConsumerHeartbeat) -> None:
    """Checks the fields of a heartbeat, in Kafka's order. Raises INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    may_lack_id = command.makes_member_id and command.member_epoch in (JOIN_EPOCH, AWAY_EPOCH)
    if not command.member_id and not may_lack_id:
        raise _invalid("MemberId can't be empty: the member generates it and keeps it until it leaves.")
    for name, value in (
        ("GroupId", command.group_id),
        ("InstanceId", command.instance_id),
        ("RackId", command.rack_id),
    ):
        if value == "":
            raise _invalid(f"{name} can't be empty.")
    if command.member_epoch == JOIN_EPOCH:
        _check_join(command)
    elif command.member_epoch == AWAY_EPOCH and command.instance_id is None:
        raise _invalid("InstanceId can't be null: only a static member can leave temporarily (MemberEpoch -2).")
    elif command.member_epoch < AWAY_EPOCH:
        raise _invalid(f"MemberEpoch {command.member_epoch} is invalid: it must be -2 or greater.")
    if command.server_assignor is not None and command.server_assignor not in ASSIGNORS:
        raise MillstreamError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {command.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )


def _check_join(command: ConsumerHeartbeat) -> None:
    if command.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be given when joining (MemberEpoch 0).")
    if command.owned is None or command.owned:
        raise _invalid("TopicPartitions must be empty when joining (MemberEpoch 0).")
    if command.subscribed_topics is None and command.subscribed_regex is None:
        raise _invalid("SubscribedTopicNames or SubscribedTopicRegex must be given when joining (MemberEpoch 0).")


def _invalid(detail: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_REQUEST, detail)
