"""Moves a classic group from one generation to the next.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^            |     ^                |                 |
      +------------+     +----------------+-----------------+

- PreparingRebalance waits for joins, until all members have joined or the rebalance timeout has passed.
- CompletingRebalance waits for the assignment from the leader.
- Stable: every member has an assignment, and the group is written to the log.
- Empty: the group has no members.

A member that joins, leaves or changes its protocols starts the next PreparingRebalance.

`stored` is the value of the group's last record. A crash loses later changes. The members repeat these changes when
they rejoin.
"""

from collections.abc import Collection, Mapping
from enum import Enum

from millstream.coordination.effects import LogRecord, Now
from millstream.groups.classic.members import ClassicMember, ClassicMembers
from millstream.groups.commands import OfferedProtocol
from millstream.groups.effects import GroupEffects
from millstream.groups.events import (
    JOINED,
    NOT_REJOINED,
    NOT_SYNCED,
    Departure,
    RebalanceReason,
    departed,
    joined,
    rebalanced,
)
from millstream.groups.machine_context import LOOK_EVERY_MS, MachineContext
from millstream.groups.records import StoredGroup, StoredMember, group_key, group_value
from millstream.groups.responses import JoinResponse, SyncResponse
from millstream.groups.timers import Timer, TimerKind
from millstream.model.errors import ErrorCode

NEW_MEMBER_TIMEOUT_MS = 300_000
"""Maximum wait of a new member's join. The member has no id yet, so it cannot send heartbeats meanwhile."""


class ClassicState(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


_NEXT_STATES: Mapping[ClassicState, Collection[ClassicState]] = {
    ClassicState.EMPTY: (ClassicState.PREPARING,),
    ClassicState.PREPARING: (ClassicState.COMPLETING, ClassicState.EMPTY),
    ClassicState.COMPLETING: (ClassicState.STABLE, ClassicState.PREPARING),
    ClassicState.STABLE: (ClassicState.PREPARING,),
}
"""The transitions in the diagram above."""


class Rebalance:
    """The state, generation and members of a group, and its state transitions."""

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
        "reason",
        "since_ms",
        "state",
        "stored",
    )

    def __init__(self, group_id: str, context: MachineContext) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.since_ms = -1
        """Wall-clock time at which the group entered its state; -1 if unknown."""
        self.generation = 0
        self.protocol_type: str | None = None
        """None until the first member joins."""
        self.protocol_name: str | None = None
        self.members = ClassicMembers()
        self.stored: bytes | None = None
        self.reason = RebalanceReason()
        self._context = context
        self._was_empty = False
        self._has_newcomer = False
        self._first_wait_left_ms = 0

    # Changes of members.

    def add(self, member: ClassicMember, protocol_type: str, now: Now, effects: GroupEffects) -> None:
        """Adds a new member, whose join waits for an answer."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.state is ClassicState.PREPARING and self._was_empty:
            self._has_newcomer = True
        self._context.deadlines.cancel(Timer(TimerKind.PENDING, self.group_id, member.member_id))
        self.members.add(member)
        self.reason.add(JOINED)
        effects.notices.append(joined(self.group_id, member.member_id, member))
        self._wait_for(member, NEW_MEMBER_TIMEOUT_MS, now)
        self.gather(now, effects)

    def expect(self, member_id: str, timeout_ms: int, now: Now) -> None:
        """Starts to wait for a client that got a member id and must join again with it."""
        self.members.expect(member_id)
        timer = Timer(TimerKind.PENDING, self.group_id, member_id)
        self._context.deadlines.set(timer, now.monotonic_ms + timeout_ms)

    def heard_of(self, member: ClassicMember, now: Now) -> None:
        """Restarts the session timeout of a member."""
        self._wait_for(member, member.session_timeout_ms, now)

    def drop_expected(self, member_id: str) -> bool:
        """Stops waiting for a client that got a member id. Returns True if the id was expected."""
        if not self.members.expect_no_longer(member_id):
            return False
        self._context.deadlines.cancel(Timer(TimerKind.PENDING, self.group_id, member_id))
        return True

    def drop(
        self,
        member: ClassicMember,
        effects: GroupEffects,
        why: Departure,
        error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID,
    ) -> None:
        """Removes a member. The caller decides what follows for the other members, usually with `gather`."""
        self.members.answer_join(member, JoinResponse(error, member_id=member.member_id), effects)
        self.members.answer_sync(member, SyncResponse(error), effects)
        self._context.deadlines.cancel(Timer(TimerKind.SESSION, self.group_id, member.member_id))
        self.members.remove(member)
        self.reason.add(why.event)
        effects.notices.append(departed(self.group_id, member.member_id, member, why))

    def replace(self, member: ClassicMember, new_id: str, now: Now, effects: GroupEffects) -> None:
        """Gives a returning static member a new id. Requests that still wait under the old id get
        FENCED_INSTANCE_ID."""
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.members.answer_join(member, JoinResponse(fenced, member_id=member.member_id), effects)
        self.members.answer_sync(member, SyncResponse(fenced), effects)
        self._context.deadlines.cancel(Timer(TimerKind.SESSION, self.group_id, member.member_id))
        self.members.rename(member, new_id)
        effects.notices.append(joined(self.group_id, new_id, member))
        member.is_new = False
        self.heard_of(member, now)
        self._stop_waiting_for_syncs()

    def _wait_for(self, member: ClassicMember, timeout_ms: int, now: Now) -> None:
        timer = Timer(TimerKind.SESSION, self.group_id, member.member_id)
        self._context.deadlines.set(timer, now.monotonic_ms + timeout_ms)

    # Waiting for joins.

    def gather(self, now: Now, effects: GroupEffects) -> None:
        """Starts a rebalance after members have joined, left or changed; or completes the running one if all members
        have joined."""
        if self.state is not ClassicState.PREPARING:
            self.prepare(now, effects)
        elif not self._was_empty:
            self._complete_if_all_joined(now, effects)

    def prepare(self, now: Now, effects: GroupEffects) -> None:
        """Starts a rebalance. A group that was empty waits briefly, so that its first members join the same
        generation."""
        if self.state is ClassicState.COMPLETING:
            self._fail_pending_syncs(now, effects)
        self._context.deadlines.cancel(Timer(TimerKind.SYNC, self.group_id))
        self._was_empty = self.state is ClassicState.EMPTY
        self._enter(ClassicState.PREPARING, now)
        if not self._was_empty:
            self._complete_if_all_joined(now, effects)
            return
        self._has_newcomer = False
        self._first_wait_left_ms = self.members.rebalance_timeout_ms
        if not self._wait_for_first_members(now):
            self._complete_join(now, effects)

    def _wait_for_first_members(self, now: Now) -> bool:
        """Waits for one more delay, within the rebalance timeout. Returns False if no time is left."""
        delay_ms = min(self._context.settings.initial_rebalance_delay_ms, self._first_wait_left_ms)
        self._first_wait_left_ms -= delay_ms
        if delay_ms:
            self._set_join_timer(delay_ms, now)
        return delay_ms > 0

    def _complete_if_all_joined(self, now: Now, effects: GroupEffects) -> None:
        if self.members.all_joined or not self.members:
            self._complete_join(now, effects)
        elif self._context.deadlines.at_ms(Timer(TimerKind.JOIN, self.group_id)) is None:
            self._set_join_timer(self.members.rebalance_timeout_ms, now)

    def _set_join_timer(self, timeout_ms: int, now: Now) -> None:
        self._context.deadlines.set(Timer(TimerKind.JOIN, self.group_id), now.monotonic_ms + timeout_ms)

    def join_time_over(self, now: Now, effects: GroupEffects) -> None:
        """Completes the joins after their timeout. A group that was empty waits again if another member has joined
        meanwhile."""
        if self.state is not ClassicState.PREPARING:
            return
        newcomer, self._has_newcomer = self._has_newcomer, False
        if not (self._was_empty and newcomer and self._wait_for_first_members(now)):
            self._complete_join(now, effects)

    def _complete_join(self, now: Now, effects: GroupEffects) -> None:
        """Starts the next generation with the members that have joined.

        Static members that have not joined are kept until their session ends. If no member has joined, no member can be
        the leader, and the group waits again.
        """
        self._context.deadlines.cancel(Timer(TimerKind.JOIN, self.group_id))
        for member in [each for each in self.members if each.join_token is None and each.instance_id is None]:
            self.drop(member, effects, NOT_REJOINED)
        if not self.members.elect() and self.members:
            self._set_join_timer(self.members.rebalance_timeout_ms, now)
            return
        self.generation += 1
        reason, members = self.reason.take(), len(self.members)
        effects.notices.append(rebalanced(self.group_id, generation=self.generation, members=members, reason=reason))
        self.members.to_sync.clear()
        if self.members:
            self._begin_to_assign(now, effects)
        else:
            self.protocol_name = None
            self._enter(ClassicState.EMPTY, now)
            self._context.look_at(self.group_id, now.monotonic_ms + LOOK_EVERY_MS)
            self.store(effects)

    def _begin_to_assign(self, now: Now, effects: GroupEffects) -> None:
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
        """Describes the current generation to this member."""
        leads = self.members.leader == member.member_id
        return JoinResponse(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.members.leader or "",
            member_id=member.member_id,
            members=tuple(each.joined(self.protocol_name) for each in self.members) if leads else (),
        )

    # Assignments.

    def synced(self, member: ClassicMember) -> None:
        """Records that a member of this generation has requested its assignment."""
        self.members.to_sync.pop(member.member_id, None)
        self._stop_waiting_for_syncs()

    def _stop_waiting_for_syncs(self) -> None:
        if not self.members.to_sync:
            self._context.deadlines.cancel(Timer(TimerKind.SYNC, self.group_id))

    def assign(self, assignments: Mapping[str, bytes], now: Now, effects: GroupEffects) -> None:
        """Distributes the leader's assignment. Members that it does not name get an empty one."""
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

    def _fail_pending_syncs(self, now: Now, effects: GroupEffects) -> None:
        """Tells the members that wait for an assignment to rejoin, because it will not come."""
        for member in self.members:
            member.assignment = b""
            if self.members.answer_sync(member, SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS), effects):
                self.heard_of(member, now)

    def sync_time_over(self, now: Now, effects: GroupEffects) -> None:
        """Removes the members that joined this generation but did not request their assignment in time."""
        missing = [member for member in self.members if member.member_id in self.members.to_sync]
        if self.state not in (ClassicState.COMPLETING, ClassicState.STABLE) or not missing:
            return
        for member in missing:
            self.drop(member, effects, NOT_SYNCED)
        self.prepare(now, effects)

    # The log.

    def _enter(self, state: ClassicState, now: Now) -> None:
        assert state in _NEXT_STATES[self.state], f"no transition leads from {self.state.value} to {state.value}"
        self.state = state
        self.since_ms = now.wall_ms

    def store(self, effects: GroupEffects) -> None:
        """Writes the current state of the group."""
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
        effects.records.append(LogRecord(group_key(self.group_id), self.stored))

    def restore(self, stored: StoredGroup, value: bytes) -> None:
        """Restores the group from its record. `loaded` then starts the session timeouts of its members."""
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
            self.members.lead(stored.leader)
