"""Builds the answers to commands that a shard cannot execute, or whose records were not stored."""

from typing import Generic

from millstream.coordination.effects import Answer, Notice
from millstream.coordination.reply_queue import Command
from millstream.coordination.state_machine import ShardHooks
from millstream.model.errors import ErrorCode, MillstreamError


class FailureAnswers(Generic[Command, Answer, Notice]):
    """The failure answers of one shard. A command whose partition another broker leads gets NOT_COORDINATOR."""

    def __init__(self, hooks: ShardHooks[Command, Answer, Notice]) -> None:
        self._hooks = hooks

    def moved(self, command: Command) -> Answer:
        """Returns the answer to a command that another broker has to execute."""
        return self._hooks.failed(command, ErrorCode.NOT_COORDINATOR)

    def not_written(self, command: Command, code: ErrorCode) -> Answer:
        """Returns the answer to a command whose own records were not appended."""
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return self.moved(command)
        return self._hooks.not_written(command, code)

    def outdated(self, command: Command, error: BaseException | None) -> Answer:
        """Returns the answer to a command that depends on records of other commands, which were not stored. It does not
        reveal the error of another caller's command."""
        if isinstance(error, MillstreamError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return self.moved(command)
        return self._hooks.not_written(command, ErrorCode.KAFKA_STORAGE_ERROR)
