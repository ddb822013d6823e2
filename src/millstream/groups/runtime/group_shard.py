"""Connects a shard to groups: failure answers, counters, notices, log lines, and changes for the catalog's tables."""

import logging
from collections.abc import Callable, Sequence

from msgspec import Struct

from millstream.coordination.effects import LogRecord
from millstream.coordination.shard import Shard
from millstream.groups.commands import Command, CommitOffsets
from millstream.groups.consumer.records import GROUP
from millstream.groups.effects import GroupNotice
from millstream.groups.events import GroupEvent
from millstream.groups.failures import failed, not_written
from millstream.groups.iterators.iterator import IteratorNotice
from millstream.groups.machine import GroupMachine
from millstream.groups.records import GROUP_KEY, key_version
from millstream.groups.responses import OK, Answer, PartitionErrors
from millstream.groups.runtime.changed_groups import Changes
from millstream.model.errors import ErrorCode
from millstream.model.ids import Offset
from millstream.process.client_events import log_limited

_log = logging.getLogger(__name__)

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
        self._hand_down = notify
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

    def notify(self, notice: GroupNotice) -> None:
        if isinstance(notice, GroupEvent):
            log_limited(_log, notice.event, notice.fields)
        else:
            self._hand_down(notice)

    def answered(self, command: Command, answer: Answer) -> None:
        if isinstance(command, CommitOffsets) and isinstance(answer, PartitionErrors) and answer.error is OK:
            self.offsets_committed += len(command.offsets) - len(answer.errors)


class GroupShard(Struct, frozen=True):
    """The shard of one partition of `__consumer_offsets`, and its hooks."""

    shard: Shard[Command, Answer, GroupNotice]
    hooks: GroupHooks

    @property
    def machine(self) -> GroupMachine | None:
        """The state, for reading only; None while it is loading."""
        machine = self.shard.machine
        assert machine is None or isinstance(machine, GroupMachine), "the hooks create no other machine"
        return machine
