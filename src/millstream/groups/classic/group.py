"""Implements one classic group: executes the commands of its members, and checks commits and expiry."""

from collections.abc import Iterator, Mapping

from millstream.coordination.effects import LogRecord, Now, Token
from millstream.groups.classic.joining import check_member, join
from millstream.groups.classic.members import ClassicMember, ClassicMembers
from millstream.groups.classic.rebalance import ClassicState, Rebalance
from millstream.groups.commands import (
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from millstream.groups.effects import GroupEffects
from millstream.groups.events import LEFT, SESSION_OVER
from millstream.groups.group import MemberCommand
from millstream.groups.machine_context import MachineContext
from millstream.groups.records import CONSUMERS, group_key, subscribed_topics
from millstream.groups.responses import (
    CommittedOffset,
    DescribedMember,
    EmptyResponse,
    GroupDescription,
    LeaveResponse,
    LeftMember,
    ListedGroup,
    SyncResponse,
)
from millstream.groups.size_limits import ASSIGNED_BYTES_MAX
from millstream.groups.timers import Timer, TimerKind
from millstream.model.errors import ErrorCode


class ClassicGroup:
    """A group whose members speak the classic protocol. It may have no members, only offsets committed by
    non-members."""

    __slots__ = ("_context", "_subscribed", "_subscribed_as_of", "group_id", "rebalance")

    def __init__(self, group_id: str, context: MachineContext) -> None:
        self.group_id = group_id
        self.rebalance = Rebalance(group_id, context)
        self._context = context
        self._subscribed: frozenset[str] | None = None
        self._subscribed_as_of: tuple[int, str | None] | None = None

    @property
    def members(self) -> ClassicMembers:
        return self.rebalance.members

    @property
    def state(self) -> ClassicState:
        return self.rebalance.state

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def member_bytes(self) -> int:
        """The members' data, the assignments and the stored record, which contains the assignments."""
        return self.members.told_bytes + 2 * len(self.rebalance.stored or b"")

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY and not self.members.expected

    @property
    def _speaks_for_consumers(self) -> bool:
        return self.rebalance.protocol_type == CONSUMERS

    # Commands from members.

    def handle(self, command: MemberCommand, token: Token, now: Now, effects: GroupEffects) -> None:
        match command:
            case JoinGroup():
                join(self.rebalance, self._context, command, token, now, effects)
            case SyncGroup():
                self._sync(command, token, now, effects)
            case Heartbeat():
                effects.reply(token, EmptyResponse(self._heartbeat(command, now)))
            case LeaveGroup():
                self._leave(command, token, now, effects)
            case _:
                raise TypeError(f"a classic group cannot handle {type(command).__name__}")

    def _sync(self, command: SyncGroup, token: Token, now: Now, effects: GroupEffects) -> None:
        error = self._check_sync(command)
        member = self.members.get(command.member_id)
        if member is None or error is not ErrorCode.NONE:
            effects.reply(token, SyncResponse(error))
            return
        self.rebalance.synced(member)
        if self.state is ClassicState.STABLE:
            self.rebalance.heard_of(member, now)
            effects.reply(token, self.rebalance.assigned(member))
            return
        self.members.answer_sync(member, SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS), effects)
        member.sync_token = token
        if self.members.leader == member.member_id:
            self._assign(member, dict(command.assignments), now, effects)

    def _assign(self, leader: ClassicMember, assignments: Mapping[str, bytes], now: Now, effects: GroupEffects) -> None:
        """Distributes the leader's assignments. If they are too large for the group's record or for the memory of the
        broker, the leader gets an error and the group rebalances again."""
        size_bytes = sum(len(assignment) for assignment in assignments.values())
        error = ErrorCode.NONE
        if size_bytes > ASSIGNED_BYTES_MAX:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        elif not self._context.has_member_room(2 * size_bytes - 2 * len(self.rebalance.stored or b""), is_member=True):
            error = ErrorCode.GROUP_MAX_SIZE_REACHED
        if error is ErrorCode.NONE:
            self.rebalance.assign(assignments, now, effects)
            return
        self.members.answer_sync(leader, SyncResponse(error), effects)
        self.rebalance.reason.add("assignment too large")
        self.rebalance.prepare(now, effects)

    def _check_sync(self, command: SyncGroup) -> ErrorCode:
        error = self._check_generation(command.member_id, command.instance_id, command.generation)
        if error is not ErrorCode.NONE:
            return error
        rebalance = self.rebalance
        if _differ(command.protocol_type, rebalance.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if _differ(command.protocol_name, rebalance.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is ClassicState.PREPARING else ErrorCode.NONE

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error = check_member(self.rebalance, member_id, instance_id)
        if error is ErrorCode.NONE and generation != self.rebalance.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _heartbeat(self, command: Heartbeat, now: Now) -> ErrorCode:
        error = self._check_generation(command.member_id, command.instance_id, command.generation)
        member = self.members.get(command.member_id)
        if member is None or error is not ErrorCode.NONE:
            return error
        self.rebalance.heard_of(member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is ClassicState.PREPARING else ErrorCode.NONE

    def _leave(self, command: LeaveGroup, token: Token, now: Now, effects: GroupEffects) -> None:
        members_before = len(self.members)
        left = tuple(
            LeftMember(each.member_id, each.instance_id, self._drop(each, effects)) for each in command.members
        )
        effects.reply(token, LeaveResponse(members=left))
        if len(self.members) < members_before or self.state is ClassicState.PREPARING:
            self.rebalance.gather(now, effects)

    def _drop(self, leaving: LeavingMember, effects: GroupEffects) -> ErrorCode:
        if leaving.member_id and self.rebalance.drop_expected(leaving.member_id):
            return ErrorCode.NONE
        member_id = leaving.member_id or self.members.static_id(leaving.instance_id) or ""
        error = check_member(self.rebalance, member_id, leaving.instance_id)
        member = self.members.get(member_id)
        if member is not None and error is ErrorCode.NONE:
            self.rebalance.drop(member, effects, LEFT)
        return error

    # Timers and loading.

    def timer_due(self, timer: Timer, now: Now, effects: GroupEffects) -> None:
        match timer.kind:
            case TimerKind.JOIN:
                self.rebalance.join_time_over(now, effects)
            case TimerKind.SYNC:
                self.rebalance.sync_time_over(now, effects)
            case TimerKind.SESSION:
                self._session_over(timer.member_id, now, effects)
            case TimerKind.PENDING:
                if self.rebalance.drop_expected(timer.member_id) and self.state is ClassicState.PREPARING:
                    self.rebalance.gather(now, effects)

    def _session_over(self, member_id: str, now: Now, effects: GroupEffects) -> None:
        """Removes a member whose session timeout has passed. A member that waits for an answer cannot send heartbeats,
        so it is kept, unless it is new: the timer of a new member limits how long its join may wait."""
        member = self.members.get(member_id)
        if member is None or (not member.is_new and (member.join_token, member.sync_token) != (None, None)):
            return
        self.rebalance.drop(member, effects, SESSION_OVER)
        self.rebalance.gather(now, effects)

    def loaded(self, now: Now, effects: GroupEffects) -> None:
        for member in self.members:
            self.rebalance.heard_of(member, now)
        if len(self.members) > self._context.settings.members_max:
            self.rebalance.reason.add("too many members")
            self.rebalance.prepare(now, effects)

    # Offsets.

    def check_commit(self, command: CommitOffsets, now: Now) -> ErrorCode:
        if command.generation < 0 and self.state is ClassicState.EMPTY:
            return ErrorCode.NONE
        if command.generation < 0 and not command.member_id and command.instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._check_generation(command.member_id, command.instance_id, command.generation)
        if error is not ErrorCode.NONE:
            return error
        if self.state is ClassicState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = self.members.get(command.member_id)
        if member is not None:
            self.rebalance.heard_of(member, now)
        return ErrorCode.NONE

    def check_fetch(self, command: FetchOffsets) -> ErrorCode:
        return ErrorCode.NONE

    def check_delete_offsets(self) -> ErrorCode:
        known = self.state is ClassicState.EMPTY or self._speaks_for_consumers
        return ErrorCode.NONE if known else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed(self, topic: str) -> bool:
        """True if a consumer in the group reads the topic. If a subscription cannot be decoded, the group counts as
        subscribed to every topic."""
        if self.state is ClassicState.EMPTY or not self._speaks_for_consumers:
            return False
        as_of = (self.members.changes, self.rebalance.protocol_name)
        if self._subscribed_as_of != as_of:
            self._subscribed = self._read_subscriptions()
            self._subscribed_as_of = as_of
        return self._subscribed is None or topic in self._subscribed

    def _read_subscriptions(self) -> frozenset[str] | None:
        protocol_name = self.rebalance.protocol_name
        if protocol_name is None:
            return None
        told = [member.metadata(protocol_name) for member in self.members]
        read = [subscribed_topics(metadata) for metadata in told if metadata]
        return None if None in read else frozenset(topic for topics in read for topic in topics or ())

    def kept_since_ms(self, committed: CommittedOffset) -> int | None:
        rebalance = self.rebalance
        if rebalance.protocol_type is None:
            return committed.committed_ms
        if self.state is ClassicState.EMPTY:
            return committed.committed_ms if rebalance.since_ms < 0 else rebalance.since_ms
        return committed.committed_ms if self.state is ClassicState.STABLE and self._speaks_for_consumers else None

    # The group as a whole.

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.state is ClassicState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def remove(self, effects: GroupEffects) -> None:
        """Appends a tombstone for the group's record, and cancels all timers of the group and of its members."""
        if self.rebalance.stored is not None:
            effects.records.append(LogRecord(group_key(self.group_id), None))
        for member_id in list(self.members.expected):
            self.rebalance.drop_expected(member_id)
        deadlines = self._context.deadlines
        for member in self.members:
            deadlines.cancel(Timer(TimerKind.SESSION, self.group_id, member.member_id))
        deadlines.cancel(Timer(TimerKind.JOIN, self.group_id))
        deadlines.cancel(Timer(TimerKind.SYNC, self.group_id))

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.rebalance.protocol_type or "", self.state.value, "classic")

    def describe(self) -> GroupDescription:
        """Describes the group. Metadata and assignments of members are included only while the group is stable."""
        rebalance = self.rebalance
        protocol = rebalance.protocol_name if self.state is ClassicState.STABLE else None
        members = tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                b"" if protocol is None else member.metadata(protocol),
                b"" if protocol is None else member.assignment,
            )
            for member in self.members
        )
        return GroupDescription(
            group_id=self.group_id,
            state=self.state.value,
            protocol_type=rebalance.protocol_type or "",
            protocol=protocol or "",
            generation=rebalance.generation,
            members=members,
        )

    def dump(self) -> Iterator[LogRecord]:
        if self.rebalance.stored is not None:
            yield LogRecord(group_key(self.group_id), self.rebalance.stored)


def _differ(asked: str | None, known: str | None) -> bool:
    """True if a request has a value that differs from the group's value.

    Requests of older protocol versions omit the value and do not differ.
    """
    return asked is not None and known is not None and asked != known
