"""Connects a shard to groups: failure answers, counters, iterator notices, and changes for the catalog's tables."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from millstream.coordination.effects import LogRecord
from millstream.coordination.shard import Shard
from millstream.groups.commands import Command, CommitOffsets
from millstream.groups.consumer.records import GROUP
from millstream.groups.failures import failed, not_written
from millstream.groups.iterators.iterator import IteratorNotice
from millstream.groups.machine import GroupMachine
from millstream.groups.records import GROUP_KEY, key_version
from millstream.groups.responses import OK, Answer, PartitionErrors
from millstream.groups.runtime.changed_groups import Changes
from millstream.model.errors import ErrorCode
from millstream.model.ids import Offset

HandDown = Callable[[IteratorNotice], None]
"""Sends a notice about an issued iterator or a new generation to the server of a partition; there is no answer."""

_GENERATION_KEYS = frozenset({GROUP_KEY, GROUP})
"""Key versions of the records that start a new generation or epoch of a group."""


class GroupHooks:
    """Implements `ShardHooks` for groups. Counters start at 0 when the broker starts."""

    def __init__(self, make_machine: Callable[[], GroupMachine], notify: HandDown, projected_offset: Offset) -> None:
        self.changes = Changes(projected_offset)
        """The changes since the catalog's tables were last written."""
        self.offsets_committed = 0
        self.rebalances = 0
        self.notify = notify
        self._make_machine = make_machine

    def new_machine(self) -> GroupMachine:
        self.changes.reload()
        return self._make_machine()

    def failed(self, command: Command, error: ErrorCode, detail: str = "") -> Answer:
        return failed(command, error, detail)

    def not_written(self, command: Command, error: ErrorCode) -> Answer:
        return not_written(command, error)

    def replayed(self, record: LogRecord, offset: int) -> None:
        self.changes.note(record, offset)

    def appended(self, records: Sequence[LogRecord], base_offset: Offset) -> None:
        for offset, record in enumerate(records, base_offset):
            self.rebalances += record.value is not None and key_version(record.key) in _GENERATION_KEYS
            self.changes.note(record, offset)

    def answered(self, command: Command, answer: Answer) -> None:
        if isinstance(command, CommitOffsets) and isinstance(answer, PartitionErrors) and answer.error is OK:
            self.offsets_committed += len(command.offsets) - len(answer.errors)


class GroupShard(NamedTuple):
    """The shard of one partition of `__consumer_offsets`, and its hooks."""

    shard: Shard[Command, Answer, IteratorNotice]
    hooks: GroupHooks

    @property
    def machine(self) -> GroupMachine | None:
        """The state, for reading only; None while it is loading."""
        machine = self.shard.machine
        assert machine is None or isinstance(machine, GroupMachine), "the hooks create no other machine"
        return machine
