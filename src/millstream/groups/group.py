"""Defines the interface of a group that the state machine uses, for both group protocols."""

from collections.abc import Iterator
from typing import Protocol

from millstream.coordination.effects import LogRecord, Now, Token
from millstream.groups.commands import (
    CommitOffsets,
    ConsumerHeartbeat,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from millstream.groups.effects import GroupEffects
from millstream.groups.responses import CommittedOffset, ListedGroup
from millstream.groups.timers import Timer
from millstream.model.errors import ErrorCode

MemberCommand = JoinGroup | SyncGroup | Heartbeat | LeaveGroup | ConsumerHeartbeat
"""Commands from members; the group answers them immediately or later."""


class Group(Protocol):
    """One group. Each change of its state appends the records that describe it in the same step. The group sets its
    timers in the machine's deadlines."""

    @property
    def group_id(self) -> str: ...

    def handle(self, command: MemberCommand, token: Token, now: Now, effects: GroupEffects) -> None:
        """Executes a member's command.

        The answer to `token` is added exactly once: to `effects`, or to the effects of a later call.
        """
        ...

    def timer_due(self, timer: Timer, now: Now, effects: GroupEffects) -> None:
        """Handles a timer of the group that has fired (any kind except EXPIRY). The timer is no longer set."""
        ...

    def loaded(self, now: Now, effects: GroupEffects) -> None:
        """Sets the timers that the members need, after the replay."""
        ...

    def check_commit(self, command: CommitOffsets, now: Now) -> ErrorCode:
        """Returns an error if this commit is not allowed. In a classic group, an allowed commit of a member also
        restarts the member's session timeout."""
        ...

    def check_fetch(self, command: FetchOffsets) -> ErrorCode:
        """Returns an error if the requesting member may not read the offsets."""
        ...

    def check_delete(self) -> ErrorCode:
        """Returns an error if the group cannot be deleted."""
        ...

    def check_delete_offsets(self) -> ErrorCode:
        """Returns an error if no single offsets can be deleted. Offsets of subscribed topics are checked separately."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """True if a member is subscribed to the topic, as far as the group can determine."""
        ...

    def kept_since_ms(self, committed: CommittedOffset) -> int | None:
        """Returns the wall-clock time at which the retention of this offset starts; None if the offset cannot expire
        now. Applies to topics without a subscribed member."""
        ...

    @property
    def member_count(self) -> int: ...

    @property
    def member_bytes(self) -> int:
        """An upper bound for the memory of the members' metadata and assignments. Cheap."""
        ...

    @property
    def is_empty(self) -> bool:
        """True if the group has no members and expects none, so that it can be removed together with its last
        offset."""
        ...

    def remove(self, effects: GroupEffects) -> None:
        """Removes the group: appends tombstones for its records and cancels its timers. The machine removes the group's
        offsets and its entry."""
        ...

    def listed(self) -> ListedGroup: ...

    def dump(self) -> Iterator[LogRecord]:
        """Yields the records from which a replay restores the durable state of this group, without offsets."""
        ...
