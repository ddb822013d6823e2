"""One classic group."""

from collections.abc import Iterator

from penstock.groups.answers import CommittedOffset, Done, GroupDescription, Joined, Left, ListedGroup, Synced
from penstock.groups.commands import CommitOffsets, FetchOffsets, Heartbeat, Join, Leave, Sync
from penstock.groups.context import Context
from penstock.groups.deadlines import Timer
from penstock.groups.effects import Effects, Now, Record, Token
from penstock.groups.group import MemberCommand
from penstock.groups.records import StoredGroup
from penstock.model.errors import ErrorCode


class ClassicGroup:
    def __init__(self, group_id: str, context: Context) -> None:
        self.group_id = group_id
        self.protocol_type: str | None = None

    def restore(self, stored: StoredGroup, value: bytes) -> None:
        self.protocol_type = stored.protocol_type

    def handle(self, command: MemberCommand, token: Token, now: Now, effects: Effects) -> None:
        away = ErrorCode.COORDINATOR_NOT_AVAILABLE
        match command:
            case Join():
                effects.reply(token, Joined(away))
            case Sync():
                effects.reply(token, Synced(away))
            case Heartbeat():
                effects.reply(token, Done(away))
            case Leave():
                effects.reply(token, Left(away))

    def timer_due(self, timer: Timer, now: Now, effects: Effects) -> None: ...

    def topics_changed(self, now: Now, effects: Effects) -> None: ...

    def loaded(self, now: Now, effects: Effects) -> None: ...

    def check_commit(self, command: CommitOffsets, now: Now) -> ErrorCode:
        return ErrorCode.NONE if command.generation < 0 else ErrorCode.UNKNOWN_MEMBER_ID

    def check_fetch(self, command: FetchOffsets) -> ErrorCode:
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def check_delete_offsets(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        return False

    def kept_since_ms(self, committed: CommittedOffset) -> int | None:
        return committed.committed_ms

    @property
    def is_empty(self) -> bool:
        return True

    def remove(self, effects: Effects) -> None: ...

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.protocol_type or "", "Empty", "classic")

    def describe(self) -> GroupDescription:
        return GroupDescription(group_id=self.group_id, state="Empty")

    def dump(self) -> Iterator[Record]:
        return iter(())
