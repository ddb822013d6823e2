"""Builds the error answer to a command."""

from collections.abc import Callable

from millstream.groups import commands
from millstream.groups.commands import Command
from millstream.groups.responses import (
    Answer,
    ConsumerGroupDescription,
    ConsumerHeartbeatResponse,
    EmptyResponse,
    GroupDescription,
    GroupList,
    IteratorClientResponse,
    IteratorList,
    IteratorResponse,
    JoinResponse,
    LeaveResponse,
    OffsetsResponse,
    PartitionErrors,
    SyncResponse,
)
from millstream.model.errors import ErrorCode

_MAKERS: dict[type[Command], Callable[[ErrorCode, str], Answer]] = {
    commands.SyncGroup: lambda error, _: SyncResponse(error),
    commands.Heartbeat: EmptyResponse,
    commands.LeaveGroup: lambda error, _: LeaveResponse(error),
    commands.CommitOffsets: lambda error, _: PartitionErrors(error),
    commands.FetchOffsets: lambda error, _: OffsetsResponse(error),
    commands.DeleteOffsets: lambda error, _: PartitionErrors(error),
    commands.DeleteGroup: EmptyResponse,
    commands.ListGroups: lambda error, _: GroupList(error=error),
    commands.ConsumerHeartbeat: ConsumerHeartbeatResponse,
    commands.WatchMember: EmptyResponse,
    commands.IteratorJoin: IteratorClientResponse,
    commands.IteratorHeartbeat: IteratorClientResponse,
    commands.IteratorLeave: IteratorClientResponse,
    commands.GetIterator: IteratorResponse,
    commands.CommitIterator: IteratorResponse,
    commands.DeliverIterator: IteratorResponse,
    commands.ListIterators: IteratorList,
}

_OF_MEMBERS = (
    commands.JoinGroup,
    commands.SyncGroup,
    commands.Heartbeat,
    commands.LeaveGroup,
    commands.ConsumerHeartbeat,
    commands.IteratorJoin,
    commands.IteratorHeartbeat,
)
_DISK_FAILED = "the broker's disk is full or failing, so the state of the group could not be written; see /health"
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def failed(command: Command, error: ErrorCode, detail: str = "") -> Answer:
    """Returns an answer to `command` that contains only `error` and `detail`."""
    match command:
        case commands.JoinGroup():
            return JoinResponse(error, member_id=command.member_id)
        case commands.DescribeGroup():
            return GroupDescription(error, detail, command.group_id)
        case commands.DescribeConsumerGroup():
            return ConsumerGroupDescription(error, detail, command.group_id)
    return _MAKERS[type(command)](error, detail)


def not_written(command: Command, error: ErrorCode) -> Answer:
    """Returns the answer to `command` after the log failed to store records with `error`. The client may retry, unless
    the records are too large for any attempt.

    After a disk error, members get COORDINATOR_NOT_AVAILABLE, so that clients stay in the group and retry. All other
    commands get the disk error itself."""
    if error is ErrorCode.KAFKA_STORAGE_ERROR and not isinstance(command, _OF_MEMBERS):
        return failed(command, error, _DISK_FAILED)
    if error not in _TOO_LARGE:
        is_disk = error is ErrorCode.KAFKA_STORAGE_ERROR
        why = _DISK_FAILED if is_disk else "the group's state could not be written; retry"
        return failed(command, ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
    if isinstance(command, commands.CommitOffsets):
        return failed(command, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    return failed(
        command, ErrorCode.UNKNOWN_SERVER_ERROR, "a record of the group's state is too large for the internal topic"
    )
