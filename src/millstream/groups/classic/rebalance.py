"""How a classic group gets from one generation to the next.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^            |     ^                |                 |
      +------------+     +----------------+-----------------+

PreparingRebalance gathers: joins wait until all members have come, or the time is over. CompletingRebalance waits for
the leader to say who gets what; then the group is Stable and in the log. Whoever comes, goes or says something new
makes it gather again. A group without members is Empty.

Invariant: the group's last record is `stored`; what has happened since is lost in a crash, and the members bring it
again.
"""

from collections.abc import Mapping
from enum import Enum

from millstream.groups.classic.members import ClassicMember, ClassicMembers
from millstream.groups.commands import OfferedProtocol
from millstream.groups.effects import Effects, GroupLogRecord, Now
from millstream.groups.machine_context import LOOK_EVERY_MS, MachineContext
from millstream.groups.records import StoredGroup, StoredMember, group_key, group_value
from millstream.groups.responses import JoinResponse, SyncResponse
from millstream.groups.timers import Timer, TimerKind
from millstream.model.errors import ErrorCode

NEW_MEMBER_TIMEOUT_MS = 300_000
"""How long a join of a new member waits: it has no id yet, so it cannot be heard of in another way."""


class ClassicState(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Rebalance:
    """The group's state, generation and members, and the ways from one state to the next."""

    __slots__ = (
        "_context",
        "_first_wait_left_ms",
        "_has_newcomer",
        "_was_empty",
        "generation",
        "group_id",
        "members",
        "protocol_name",
        "protocol_type",
        "since_ms",
        "state",
        "stored",
    )

    def __init__(self, group_id: str, context: MachineContext) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.since_ms = -1
        """Since when the group has been in this state, by the wall clock; -1 if nobody knows."""
        self.generation = 0
        self.protocol_type: str | None = None
        """None: nobody has ever joined."""
        self.protocol_name: str | None = None
        self.members = ClassicMembers()
        self.stored: bytes | None = None
        self._context = context
        self._was_empty = False
        self._has_newcomer = False
        self._first_wait_left_ms = 0

    # What members do.

    def add(self, member: ClassicMember, protocol_type: str, now: Now, effects: Effects) -> None:
        """Take in a new member, whose join waits."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.state is ClassicState.PREPARING and self._was_empty:
            self._has_newcomer = True
        self._context.deadlines.cancel(Timer(TimerKind.PENDING, self.group_id, member.member_id))
        self.members.add(member)
        self._wait_for(member, NEW_MEMBER_TIMEOUT_MS, now)
        self.gather(now, effects)

    def expect(self, member_id: str, timeout_ms: int, now: Now) -> None:
        """Wait for a member that was told its id and has to come again with it."""
        self.members.expect(member_id)
        timer = Timer(TimerKind.PENDING, self.group_id, member_id)
        self._context.deadlines.set(timer, now.monotonic_ms + timeout_ms)

    def heard_of(self, member: ClassicMember, now: Now) -> None:
        """The member is alive."""
        self._wait_for(member, member.session_timeout_ms, now)

    def drop_expected(self, member_id: str) -> bool:
        """Do not wait any longer for a member that was told its id; whether it was waited for."""
        if not self.members.expect_no_longer(member_id):
            return False
        self._context.deadlines.cancel(Timer(TimerKind.PENDING, self.group_id, member_id))
        return True

    def drop(self, member: ClassicMember, effects: Effects, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """The member is no longer one; the caller sees to what that means for the others (`gather`)."""
        self.members.answer_join(member, JoinResponse(error, member_id=member.member_id), effects)
        self.members.answer_sync(member, SyncResponse(error), effects)
        self._context.deadlines.cancel(Timer(TimerKind.SESSION, self.group_id, member.member_id))
        self.members.remove(member)

    def replace(self, member: ClassicMember, new_id: str, now: Now, effects: Effects) -> None:
        """A static member has come back: it gets another id, and whoever still uses the old one is told so."""
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.members.answer_join(member, JoinResponse(fenced, member_id=member.member_id), effects)
        self.members.answer_sync(member, SyncResponse(fenced), effects)
        self._context.deadlines.cancel(Timer(TimerKind.SESSION, self.group_id, member.member_id))
        self.members.rename(member, new_id)
        member.is_new = False
        self.heard_of(member, now)
        self._stop_waiting_for_syncs()

    def _wait_for(self, member: ClassicMember, timeout_ms: int, now: Now) -> None:
        timer = Timer(TimerKind.SESSION, self.group_id, member.member_id)
        self._context.deadlines.set(timer, now.monotonic_ms + timeout_ms)

    # Gathering.

    def gather(self, now: Now, effects: Effects) -> None:
        """Members have come, gone or changed: begin a rebalance, or see whether the one under way can go on."""
        if self.state is not ClassicState.PREPARING:
            self.prepare(now, effects)
        elif not self._was_empty:
            self._go_on_if_all_joined(now, effects)

    def prepare(self, now: Now, effects: Effects) -> None:
        """Begin to gather. A group that was empty waits a little, so that its first members start together."""
        if self.state is ClassicState.COMPLETING:
            self._send_back(now, effects)
        self._context.deadlines.cancel(Timer(TimerKind.SYNC, self.group_id))
        self._was_empty = self.state is ClassicState.EMPTY
        self._enter(ClassicState.PREPARING, now)
        if not self._was_empty:
            self._go_on_if_all_joined(now, effects)
            return
        self._has_newcomer = False
        self._first_wait_left_ms = self.members.rebalance_timeout_ms
        if not self._wait_for_first_members(now):
            self._complete_join(now, effects)

    def _wait_for_first_members(self, now: Now) -> bool:
        """Wait for one more delay, as far as the rebalance timeout allows; whether there is anything to wait."""
        delay_ms = min(self._context.settings.initial_rebalance_delay_ms, self._first_wait_left_ms)
        self._first_wait_left_ms -= delay_ms
        if delay_ms:
            self._set_join_timer(delay_ms, now)
        return delay_ms > 0

    def _go_on_if_all_joined(self, now: Now, effects: Effects) -> None:
        if self.members.all_joined or not self.members:
            self._complete_join(now, effects)
        elif self._context.deadlines.at_ms(Timer(TimerKind.JOIN, self.group_id)) is None:
            self._set_join_timer(self.members.rebalance_timeout_ms, now)

    def _set_join_timer(self, timeout_ms: int, now: Now) -> None:
        self._context.deadlines.set(Timer(TimerKind.JOIN, self.group_id), now.monotonic_ms + timeout_ms)

    def join_time_over(self, now: Now, effects: Effects) -> None:
        """The time to gather is over. While first members come, a group that was empty goes on waiting for more."""
        if self.state is not ClassicState.PREPARING:
            return
        newcomer, self._has_newcomer = self._has_newcomer, False
        if not (self._was_empty and newcomer and self._wait_for_first_members(now)):
            self._complete_join(now, effects)

    def _complete_join(self, now: Now, effects: Effects) -> None:
        """Go on with those who have come. Static members may stay away until their session is over; if nobody but
        such has been here, there is no one to lead, and the group goes on gathering."""
        self._context.deadlines.cancel(Timer(TimerKind.JOIN, self.group_id))
        for member in [each for each in self.members if each.join_token is None and each.instance_id is None]:
            self.drop(member, effects)
        if not self.members.elect() and self.members:
            self._set_join_timer(self.members.rebalance_timeout_ms, now)
            return
        self.generation += 1
        self.members.to_sync.clear()
        if self.members:
            self._begin_to_assign(now, effects)
        else:
            self.protocol_name = None
            self._enter(ClassicState.EMPTY, now)
            self._context.look_at(self.group_id, now.monotonic_ms + LOOK_EVERY_MS)
            self.store(effects)

    def _begin_to_assign(self, now: Now, effects: Effects) -> None:
        self.protocol_name = self.members.choose_protocol()
        self._enter(ClassicState.COMPLETING, now)
        for member in self.members:
            self.members.answer_join(member, self.present(member), effects)
            self.heard_of(member, now)
            member.is_new = False
            self.members.to_sync[member.member_id] = None
        timer = Timer(TimerKind.SYNC, self.group_id)
        self._context.deadlines.set(timer, now.monotonic_ms + self.members.rebalance_timeout_ms)

    def present(self, member: ClassicMember) -> JoinResponse:
        """The present generation, as this member is told of it."""
        leads = self.members.leader == member.member_id
        return JoinResponse(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.members.leader or "",
            member_id=member.member_id,
            members=tuple(each.joined(self.protocol_name) for each in self.members) if leads else (),
        )

    # Sharing out.

    def synced(self, member: ClassicMember) -> None:
        """A member of this generation asks for its assignment."""
        self.members.to_sync.pop(member.member_id, None)
        self._stop_waiting_for_syncs()

    def _stop_waiting_for_syncs(self) -> None:
        if not self.members.to_sync:
            self._context.deadlines.cancel(Timer(TimerKind.SYNC, self.group_id))

    def assign(self, assignments: Mapping[str, bytes], now: Now, effects: Effects) -> None:
        """The leader has said who gets what; who is not named gets nothing."""
        self._enter(ClassicState.STABLE, now)
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
            if self.members.answer_sync(member, self.assigned(member), effects):
                self.heard_of(member, now)
        self.store(effects)

    def assigned(self, member: ClassicMember) -> SyncResponse:
        return SyncResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    def _send_back(self, now: Now, effects: Effects) -> None:
        """Those who wait for an assignment that will not come are to join again."""
        for member in self.members:
            member.assignment = b""
            if self.members.answer_sync(member, SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS), effects):
                self.heard_of(member, now)

    def sync_time_over(self, now: Now, effects: Effects) -> None:
        """Members that were told of the generation and never asked for their part of it are gone."""
        missing = [member for member in self.members if member.member_id in self.members.to_sync]
        if self.state not in (ClassicState.COMPLETING, ClassicState.STABLE) or not missing:
            return
        for member in missing:
            self.drop(member, effects)
        self.prepare(now, effects)

    # The log.

    def _enter(self, state: ClassicState, now: Now) -> None:
        self.state = state
        self.since_ms = now.wall_ms

    def store(self, effects: Effects) -> None:
        """Write the group as it is now."""
        members = tuple(
            StoredMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                metadata=member.metadata(self.protocol_name),
                assignment=member.assignment,
            )
            for member in self.members
        )
        self.stored = group_value(
            StoredGroup(
                protocol_type=self.protocol_type or "",
                generation=self.generation,
                protocol_name=self.protocol_name,
                leader=self.members.leader,
                since_ms=self.since_ms,
                members=members,
            )
        )
        effects.records.append(GroupLogRecord(group_key(self.group_id), self.stored))

    def restore(self, stored: StoredGroup, value: bytes) -> None:
        """Be the group that the log has; members are to be heard of before their session is over (`loaded`)."""
        self.stored = value
        self.state = ClassicState.STABLE if stored.members else ClassicState.EMPTY
        self.since_ms = stored.since_ms
        self.generation = stored.generation
        self.protocol_type = stored.protocol_type or None
        self.protocol_name = stored.protocol_name
        for each in stored.members:
            protocols = (OfferedProtocol(stored.protocol_name or "", each.metadata),)
            member = ClassicMember(
                member_id=each.member_id,
                instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                session_timeout_ms=each.session_timeout_ms,
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                protocols=protocols,
                assignment=each.assignment,
            )
            self.members.add(member)
        if stored.leader is not None and stored.leader in self.members:
            self.members.leader = stored.leader
