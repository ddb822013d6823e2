"""What the machine asks of a group, whichever protocol its members speak."""

from collections.abc import Iterator
from typing import Protocol

from millstream.groups.commands import (
    CommitOffsets,
    ConsumerHeartbeat,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from millstream.groups.effects import Effects, GroupLogRecord, Now, Token
from millstream.groups.responses import CommittedOffset, ListedGroup
from millstream.groups.timers import Timer
from millstream.model.errors import ErrorCode

MemberCommand = JoinGroup | SyncGroup | Heartbeat | LeaveGroup | ConsumerHeartbeat
"""What members say; the group answers it now or later."""


class Group(Protocol):
    """One group. It changes its state and says so in records at once; its timers are set in the machine's deadlines."""

    @property
    def group_id(self) -> str: ...

    def handle(self, command: MemberCommand, token: Token, now: Now, effects: Effects) -> None:
        """Do what a member says. Every token is answered exactly once, here or in later effects."""
        ...

    def timer_due(self, timer: Timer, now: Now, effects: Effects) -> None:
        """One of the group's own timers (all kinds but EXPIRY) has come; it is no longer set."""
        ...

    def loaded(self, now: Now, effects: Effects) -> None:
        """Replay is over: set the timers that the members need."""
        ...

    def check_commit(self, command: CommitOffsets, now: Now) -> ErrorCode:
        """Whether this commit may be made; of a member of a classic group it is a sign of life then."""
        ...

    def check_fetch(self, command: FetchOffsets) -> ErrorCode:
        """Whether the member that asks may know the offsets."""
        ...

    def check_delete(self) -> ErrorCode:
        """Whether the group may be deleted."""
        ...

    def check_delete_offsets(self) -> ErrorCode:
        """Whether single offsets may be deleted, apart from those of topics that are subscribed to."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic, as far as the group can know."""
        ...

    def kept_since_ms(self, committed: CommittedOffset) -> int | None:
        """From when (wall clock) the time runs after which this offset of a topic that nobody is subscribed to is
        forgotten; None while it does not run."""
        ...

    @property
    def member_count(self) -> int: ...

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in the group nor about to be, so that it can go with its last offset."""
        ...

    def remove(self, effects: Effects) -> None:
        """The group goes: take back its records and timers. The machine sees to its offsets and to its place."""
        ...

    def listed(self) -> ListedGroup: ...

    def dump(self) -> Iterator[GroupLogRecord]:
        """What a log must hold for this group to come back as it is on the disk, offsets aside."""
        ...
