"""How each question is answered when the answer is that something went wrong."""

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
    commands.IteratorJoin: IteratorClientResponse,
    commands.IteratorHeartbeat: IteratorClientResponse,
    commands.IteratorLeave: IteratorClientResponse,
    commands.GetIterator: IteratorResponse,
    commands.CommitIterator: IteratorResponse,
    commands.DeliverIterator: IteratorResponse,
    commands.ListIterators: IteratorList,
}

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def failed(command: Command, error: ErrorCode, detail: str = "") -> Answer:
    """The answer to `command` that says `error` and nothing else."""
    match command:
        case commands.JoinGroup():
            return JoinResponse(error, member_id=command.member_id)
        case commands.DescribeGroup():
            return GroupDescription(error, detail, command.group_id)
        case commands.DescribeConsumerGroup():
            return ConsumerGroupDescription(error, detail, command.group_id)
    return _MAKERS[type(command)](error, detail)


def not_available(command: Command) -> Answer:
    """What everybody is told who waits for a state that turned out not to be the log's: to come again."""
    return failed(command, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group's state could not be written")


def refused_by_log(command: Command, error: ErrorCode) -> Answer:
    """What a caller is told whose own records the log did not take: to come again, unless that cannot help."""
    if error not in _TOO_LARGE:
        return not_available(command)
    if isinstance(command, commands.CommitOffsets):
        return failed(command, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    return failed(command, ErrorCode.UNKNOWN_SERVER_ERROR, "the group's state is too large for one message")
