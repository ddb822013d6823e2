"""Implements one group of the consumer protocol: executes its members' commands, and checks commits and expiry."""

from collections.abc import Collection, Iterator, Mapping

from millstream.coordination.effects import LogRecord, Now, Token
from millstream.groups.classic.group import ClassicGroup
from millstream.groups.commands import (
    CommitOffsets,
    ConsumerHeartbeat,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from millstream.groups.consumer import classic_members
from millstream.groups.consumer.assignors import NOTHING
from millstream.groups.consumer.checks import LEAVE_EPOCH, check_heartbeat
from millstream.groups.consumer.heartbeats import assigned_topics, heartbeat
from millstream.groups.consumer.members import AWAY_EPOCH, MemberState
from millstream.groups.consumer.membership import GroupMembership
from millstream.groups.consumer.migration import to_classic, to_consumer
from millstream.groups.consumer.records import KEYS, read_key
from millstream.groups.consumer.state import GroupState
from millstream.groups.consumer.target_assignment import preferred_assignor
from millstream.groups.effects import GroupEffects
from millstream.groups.events import LEFT, NOT_REJOINED, NOT_SYNCED, REPLACED, SESSION_OVER, Departure
from millstream.groups.failures import failed
from millstream.groups.group import MemberCommand
from millstream.groups.machine_context import LOOK_EVERY_MS, MachineContext
from millstream.groups.member_memory import OWNED_PARTITION_BYTES
from millstream.groups.records import CONSUMERS, key_version
from millstream.groups.responses import (
    Answer,
    CommittedOffset,
    ConsumerGroupDescription,
    ConsumerHeartbeatResponse,
    DescribedConsumer,
    EmptyResponse,
    LeaveResponse,
    ListedGroup,
)
from millstream.groups.timers import Timer, TimerKind
from millstream.model.errors import ErrorCode, MillstreamError

_TIMEOUTS: Mapping[TimerKind, Departure] = {
    TimerKind.SESSION: SESSION_OVER,
    TimerKind.REBALANCE: NOT_REJOINED,
    TimerKind.JOIN: NOT_REJOINED,
    TimerKind.SYNC: NOT_SYNCED,
}
"""The timers of members that remove a member when they are due."""


def consumer_heartbeat(
    context: MachineContext, command: ConsumerHeartbeat, token: Token, now: Now, effects: GroupEffects
) -> None:
    """Passes a heartbeat to its group. A group that does not exist is created if the member joins, and a classic group
    of consumers is converted to the consumer protocol."""
    try:
        check_heartbeat(command)
        if command.subscribed_regex:
            context.regexes.check(command.subscribed_regex)
        group = consumer_group_for(context, command.group_id, command.member_epoch, now, effects)
    except MillstreamError as error:
        effects.reply(token, ConsumerHeartbeatResponse(error.code, error.detail))
        return
    group.handle(command, token, now, effects)


def consumer_group_for(
    context: MachineContext, group_id: str, member_epoch: int, now: Now, effects: GroupEffects
) -> "ConsumerGroup":
    """Returns the group that a heartbeat with this member epoch addresses. If the member joins, a missing group is
    created, and a classic one is converted. Raises GROUP_ID_NOT_FOUND and the errors of `to_consumer`."""
    group = context.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if member_epoch != 0:
        detail = "not found" if group is None else "not a consumer group"
        raise MillstreamError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is {detail}.")
    if isinstance(group, ClassicGroup) and group.member_count:
        state = to_consumer(group, context, now, effects)
    else:
        if group is not None:
            group.remove(effects)
        state = GroupState(group_id)
    made = ConsumerGroup(state, context)
    made.loaded(now, effects)
    context.groups[group_id] = made
    context.look_at(group_id, now.monotonic_ms + LOOK_EVERY_MS)
    return made


def replay_consumer(context: MachineContext, record: LogRecord) -> None:
    """Applies a record of the log if it belongs to the consumer protocol; other records are ignored.

    A group uses the consumer protocol as long as the log has a record of it. Raises MalformedMessageError if the record
    does not match the layout of its key.
    """
    version = key_version(record.key)
    if version not in KEYS:
        return
    key = read_key(record.key, version)
    group = context.groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if record.value is None:
            return
        group = ConsumerGroup(GroupState(key.group_id), context)
        context.groups[key.group_id] = group
    group.state.replay(key, record.value)
    if group.state.is_void:
        del context.groups[key.group_id]


class ConsumerGroup:
    """A group whose members speak the consumer protocol; some of them may still use the classic one."""

    __slots__ = ("_context", "group_id", "members", "state")

    def __init__(self, state: GroupState, context: MachineContext) -> None:
        self.group_id = state.group_id
        self.state = state
        self._context = context
        self.members = GroupMembership(state, context)

    # Commands from members.

    def handle(self, command: MemberCommand, token: Token, now: Now, effects: GroupEffects) -> None:
        if isinstance(command, JoinGroup) and self._becomes_classic(command, now, effects):
            self._context.groups[self.group_id].handle(command, token, now, effects)
            return
        try:
            answer = self._answer(command, now, effects)
        except MillstreamError as error:
            answer = failed(command, error.code, error.detail)
        effects.reply(token, answer)

    def _answer(self, command: MemberCommand, now: Now, effects: GroupEffects) -> Answer:
        match command:
            case ConsumerHeartbeat(member_epoch=epoch) if epoch in (LEAVE_EPOCH, AWAY_EPOCH):
                return self._leave(command, now, effects)
            case ConsumerHeartbeat():
                return heartbeat(self.members, command, now, effects)
            case JoinGroup():
                return classic_members.join(self.members, command, now, effects)
            case SyncGroup():
                return classic_members.sync(self.members, command, now, effects)
            case Heartbeat():
                return classic_members.heartbeat(self.members, command, now, effects)
            case LeaveGroup():
                gone, answers = classic_members.leaving(self.members, command)
                self.fence(gone, LEFT, now, effects)
                return LeaveResponse(members=answers)

    def _leave(self, command: ConsumerHeartbeat, now: Now, effects: GroupEffects) -> ConsumerHeartbeatResponse:
        self.members.check_instance(command.member_id, command.instance_id)
        if command.member_epoch == AWAY_EPOCH:
            self.members.step_out(command.member_id, effects)
        else:
            self.fence((command.member_id,), LEFT, now, effects)
        return ConsumerHeartbeatResponse(member_id=command.member_id, member_epoch=command.member_epoch)

    def watch(self, member_id: str, token: Token, now: Now, effects: GroupEffects) -> None:
        """Answers the token when the member should send a heartbeat, or immediately if it is not a member."""
        try:
            self.members.watch(member_id, token, now, effects)
        except MillstreamError as error:
            effects.reply(token, EmptyResponse(error.code, error.detail))

    def fence(self, member_ids: Collection[str], why: Departure, now: Now, effects: GroupEffects) -> None:
        """Removes members. If all remaining members use the classic protocol, the group becomes a classic group."""
        if not member_ids:
            return
        self.members.drop(member_ids, why, now, effects)
        if self.state.subscriptions and len(self.state.subscriptions) == self.state.classic_members:
            self._to_classic(now, effects)
        else:
            self.members.share_out_anew(now, effects)

    def _becomes_classic(self, command: JoinGroup, now: Now, effects: GroupEffects) -> bool:
        """Converts the group into a classic one if this join requires the conversion.

        A join requires it if the group has no members, or if a classic member replaces the last member that uses the
        consumer protocol. Returns True if the group was converted.
        """
        if not self.state.subscriptions:
            self.remove(effects)
            self._context.groups[self.group_id] = ClassicGroup(self.group_id, self._context)
            return True
        place = command.member_id or self.state.static_ids.get(command.instance_id or "", "")
        replaced = self.state.subscriptions.get(place)
        if replaced is None or replaced.classic is not None or replaced.instance_id != command.instance_id:
            return False
        if len(self.state.subscriptions) - self.state.classic_members > 1:
            return False
        try:
            classic_members.check_join(self.members, command)
        except MillstreamError:
            return False
        self.fence((place,), REPLACED, now, effects)
        has_moved = self._context.groups[self.group_id] is not self
        return has_moved or self._becomes_classic(command, now, effects)

    def _to_classic(self, now: Now, effects: GroupEffects) -> None:
        self.members.close(effects)
        self._context.issued.drop_group(self.group_id, effects)
        self._context.groups[self.group_id] = to_classic(self.state, self._context, now, effects)

    # Timers and loading.

    def timer_due(self, timer: Timer, now: Now, effects: GroupEffects) -> None:
        if timer.kind is TimerKind.REGEX:
            self.members.refresh(now, effects)
        elif timer.kind is TimerKind.ASSIGN:
            self.members.refresh(now, effects)
            self.members.assign(now, effects)
        elif timer.member_id in self.state.subscriptions:
            self.fence((timer.member_id,), _TIMEOUTS[timer.kind], now, effects)

    def loaded(self, now: Now, effects: GroupEffects) -> None:
        self.members.loaded(now)
        self._context.issued.loaded(self.group_id, now)

    # Offsets.

    def check_commit(self, command: CommitOffsets, now: Now) -> ErrorCode:
        if command.generation < 0 and not self.state.subscriptions:
            return ErrorCode.NONE
        subscription = self.state.subscriptions.get(command.member_id)
        if subscription is not None and subscription.classic is None and not command.knows_stale_epoch:
            return ErrorCode.UNSUPPORTED_VERSION
        return self._check_epoch(command.member_id, command.generation)

    def check_fetch(self, command: FetchOffsets) -> ErrorCode:
        if not command.member_id and command.member_epoch < 0:
            return ErrorCode.NONE
        return self._check_epoch(command.member_id or "", command.member_epoch)

    def _check_epoch(self, member_id: str, epoch: int) -> ErrorCode:
        subscription = self.state.subscriptions.get(member_id)
        if subscription is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == self.members.holding(member_id).epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if subscription.classic is None else ErrorCode.ILLEGAL_GENERATION

    def check_delete_offsets(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        return self.state.is_subscribed(topic)

    def kept_since_ms(self, committed: CommittedOffset) -> int | None:
        """Returns the time of the commit, as in Kafka, or the time at which the group became empty, if that was
        later."""
        return max(committed.committed_ms, self.members.empty_since_ms or 0)

    # The group as a whole.

    @property
    def is_empty(self) -> bool:
        return not self.state.subscriptions

    @property
    def member_count(self) -> int:
        return len(self.state.subscriptions)

    @property
    def member_bytes(self) -> int:
        return self.state.told_bytes + self.state.owned_partitions * OWNED_PARTITION_BYTES

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.state.subscriptions else ErrorCode.NONE

    def remove(self, effects: GroupEffects) -> None:
        self.members.close(effects)
        self._context.issued.drop_group(self.group_id, effects)
        effects.records += self.state.drop_all()

    @property
    def state_name(self) -> str:
        """The group's state: one of Empty, Assigning, Reconciling, Stable."""
        state = self.state
        if not state.subscriptions:
            return "Empty"
        if state.epoch > state.target_epoch:
            return "Assigning"
        holdings = (self.members.holding(member_id) for member_id in state.subscriptions)
        if all(each.state is MemberState.STABLE and each.epoch == state.target_epoch for each in holdings):
            return "Stable"
        return "Reconciling"

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, CONSUMERS, self.state_name, "consumer")

    def describe(self) -> ConsumerGroupDescription:
        state = self.state
        return ConsumerGroupDescription(
            group_id=self.group_id,
            state=self.state_name,
            group_epoch=state.epoch,
            assignment_epoch=state.target_epoch,
            assignor=preferred_assignor(state.subscriptions.values()),
            members=tuple(self._describe(member_id) for member_id in state.subscriptions),
        )

    def _describe(self, member_id: str) -> DescribedConsumer:
        subscription, holding = self.state.subscriptions[member_id], self.members.holding(member_id)
        topics = self._context.topics
        return DescribedConsumer(
            member_id=member_id,
            instance_id=subscription.instance_id,
            rack_id=subscription.rack_id,
            member_epoch=holding.epoch,
            client_id=subscription.client_id,
            client_host=subscription.client_host,
            subscribed_topics=subscription.topics,
            subscribed_regex=subscription.regex,
            assignment=assigned_topics(holding.held, topics),
            target=assigned_topics(self.state.targets.get(member_id, NOTHING), topics),
            is_classic=subscription.classic is not None,
        )

    def dump(self) -> Iterator[LogRecord]:
        return self.state.dump()
