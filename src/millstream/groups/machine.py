"""Keeps the state of all groups of one partition of `__consumer_offsets`: members, assignments and committed offsets.

The machine is pure: it takes commands and the time, and returns the records to append and the answers to send. Each
state change and its records are made in the same step. So replaying all returned records in order restores the durable
state. If an append fails, the machine is discarded and a new one replays the log.
"""

from collections.abc import Callable, Collection, Iterator

from millstream.coordination.effects import LogRecord, Now, Token
from millstream.groups.classic.group import ClassicGroup
from millstream.groups.commands import (
    Command,
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    IteratorCommand,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
    TopicsDeleted,
    WatchMember,
)
from millstream.groups.consumer.group import ConsumerGroup, consumer_heartbeat, replay_consumer
from millstream.groups.effects import GroupEffects
from millstream.groups.failures import failed
from millstream.groups.group import Group, MemberCommand
from millstream.groups.iterators import iterator_requests
from millstream.groups.iterators.issue import sweep
from millstream.groups.iterators.records import ITERATOR_KEY
from millstream.groups.machine_context import LOOK_EVERY_MS, MachineContext
from millstream.groups.offsets.committed_offsets import committed, forget, record_of, store, stored
from millstream.groups.offsets.deleted_topics import OrphanedOffsets
from millstream.groups.records import (
    GROUP_KEY,
    OFFSET_KEYS,
    OffsetKey,
    key_version,
    read_group,
    read_group_key,
    read_offset,
    read_offset_key,
)
from millstream.groups.responses import (
    Answer,
    CommittedOffset,
    ConsumerGroupDescription,
    EmptyResponse,
    GroupDescription,
    GroupList,
    LeaveResponse,
    LeftMember,
    OffsetsResponse,
    PartitionErrors,
)
from millstream.groups.timers import Timer, TimerKind
from millstream.model.errors import ErrorCode

TIMERS_PER_TICK = 100
"""Maximum number of timers per tick, so that many due groups do not delay other work. The next tick follows
immediately."""

WORK_PER_TICK = 1_000
"""Number of offsets that a tick checks for expiry before it leaves the rest to the next tick."""

FORGOTTEN_AT_ONCE = 25
"""Number of offsets of deleted topics that one step removes."""

LOADED_AT_ONCE = 100
"""Number of groups that are resumed after a replay before other work runs."""

_DELETED_TOPICS_TIMER = Timer(TimerKind.GONE, "")


class GroupMachine:
    """The state machine of one shard; dispatches each command to its group."""

    def __init__(self, context: MachineContext) -> None:
        """The context belongs to this machine only."""
        self._context = context
        self._groups = self._context.groups
        self.offsets = self._offsets = self._context.offsets
        """The committed offsets, for reading only."""
        self._deadlines = self._context.deadlines
        self._deleted_topics = self._context.gone
        self._orphaned_offsets = OrphanedOffsets(context.topics)

    # The log.

    def replay(self, record: LogRecord) -> None:
        """Applies one record of the log. Records come in log order, all before `loading`. Keys of other kinds are
        ignored. Raises MalformedMessageError if the record does not match the layout of its key."""
        version = key_version(record.key)
        if version in OFFSET_KEYS:
            key = read_offset_key(record.key)
            if record.value is None:
                self._offsets.remove(key)
                self._orphaned_offsets.forget(key)
            else:
                row, topic_id = read_offset(record.value)
                self._offsets.put(key, row)
                self._orphaned_offsets.note(key, topic_id)
        elif version == GROUP_KEY:
            group_id = read_group_key(record.key)
            if record.value is None:
                if isinstance(self._groups.get(group_id), ClassicGroup):
                    del self._groups[group_id]
            else:
                group = ClassicGroup(group_id, self._context)
                group.rebalance.restore(read_group(record.value), record.value)
                self._groups[group_id] = group
        elif version == ITERATOR_KEY:
            self._context.issued.replay(record)
        else:
            replay_consumer(self._context, record)

    def loading(self, now: Callable[[], Now], effects: GroupEffects) -> Iterator[None]:
        """Resumes all groups after the replay, in slices. Every member gets a full session timeout. Offsets of deleted
        topics are removed, and the expiry checks of the groups are spread over time."""
        for at, key in enumerate(self._orphaned_offsets.take()):
            forget(self._context, key, effects)
            if at % LOADED_AT_ONCE == LOADED_AT_ONCE - 1:
                yield
        for at, group_id in enumerate(self._offsets.group_ids()):
            if group_id not in self._groups:
                self._groups[group_id] = ClassicGroup(group_id, self._context)
            if at % LOADED_AT_ONCE == LOADED_AT_ONCE - 1:
                yield
        for at, group in enumerate(list(self._groups.values())):
            group.loaded(now(), effects)
            self._context.measure(group.group_id)
            wait_ms = at % LOOK_EVERY_MS if group.group_id in self._offsets else LOOK_EVERY_MS
            self._context.look_at(group.group_id, now().monotonic_ms + wait_ms)
            if at % LOADED_AT_ONCE == LOADED_AT_ONCE - 1:
                yield
        self._mark_topics_deleted(self._missing_topics(), now(), effects)

    def dump(self) -> Iterator[LogRecord]:
        """Yields the durable state as records. A machine that replays them has the same durable state."""
        for group in self._groups.values():
            yield from group.dump()
        for group_id in self._offsets.group_ids():
            for key, each in self._offsets.of_group(group_id):
                yield record_of(self._context, key, each)
        yield from self._context.issued.dump()

    def group_ids(self) -> Collection[str]:
        return self._groups.keys()

    def has_members(self, group_id: str) -> bool:
        return (group := self._groups.get(group_id)) is not None and group.member_count > 0

    @property
    def member_count(self) -> int:
        """Number of members in all groups."""
        return sum(group.member_count for group in self._groups.values())

    @property
    def member_bytes(self) -> int:
        """An upper bound for the memory of the members of all groups."""
        return self._context.sizes.total_bytes

    # Commands.

    def handle(self, command: Command, token: Token, now: Now, effects: GroupEffects) -> None:
        """Executes a command.

        The answer to `token` is added exactly once: to `effects`, or to the effects of a later call. `TopicsDeleted`
        has no answer.
        """
        match command:
            case Heartbeat():
                effects.replies_at_once = True
                self._member(command, token, now, effects)
            case JoinGroup() | SyncGroup() | LeaveGroup() | ConsumerHeartbeat():
                self._member(command, token, now, effects)
            case WatchMember():
                self._watch(command, token, now, effects)
            case TopicsDeleted():
                self._mark_topics_deleted(command.names, now, effects)
            case _:
                effects.reply(token, self._answer(command, now, effects))
        if not isinstance(command, TopicsDeleted | ListGroups):
            self._context.measure(command.group_id)

    def _answer(self, command: Command, now: Now, effects: GroupEffects) -> Answer:
        match command:
            case CommitOffsets():
                return self._commit(command, now, effects)
            case FetchOffsets():
                return self._fetch(command)
            case DeleteOffsets():
                return self._delete_offsets(command, effects)
            case DeleteGroup():
                return self._delete_group(command, effects)
            case DescribeGroup():
                return self._describe(command.group_id)
            case DescribeConsumerGroup():
                return self._describe_consumer(command.group_id)
            case ListGroups():
                return self._list(command)
        if isinstance(command, IteratorCommand):
            return iterator_requests.answer(self._context, command, now, effects)
        raise TypeError(f"not a command with an immediate answer: {command}")

    def _member(self, command: MemberCommand, token: Token, now: Now, effects: GroupEffects) -> None:
        if isinstance(command, ConsumerHeartbeat):
            consumer_heartbeat(self._context, command, token, now, effects)
            return
        error = self._refusal(command)
        if error is not ErrorCode.NONE:
            effects.reply(token, _refused(command, error))
            return
        group = self._groups.get(command.group_id)
        is_new = group is None
        if group is None:
            group = self._groups[command.group_id] = ClassicGroup(command.group_id, self._context)
            self._context.look_at(command.group_id, now.monotonic_ms + LOOK_EVERY_MS)
        group.handle(command, token, now, effects)
        if is_new and group.is_empty:
            self._remove(group, effects)

    def _watch(self, command: WatchMember, token: Token, now: Now, effects: GroupEffects) -> None:
        group = self._groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            group.watch(command.member_id, token, now, effects)
        else:
            effects.reply(token, EmptyResponse(*_no_consumer_group(command.group_id, group)))

    def _refusal(self, command: MemberCommand) -> ErrorCode:
        if not command.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if isinstance(command, JoinGroup):
            limits = self._context.settings
            if not limits.session_timeout_min_ms <= command.session_timeout_ms <= limits.session_timeout_max_ms:
                return ErrorCode.INVALID_SESSION_TIMEOUT
            if not command.member_id:
                return ErrorCode.NONE
        return ErrorCode.NONE if command.group_id in self._groups else ErrorCode.UNKNOWN_MEMBER_ID

    # Offsets.

    def _commit(self, command: CommitOffsets, now: Now, effects: GroupEffects) -> PartitionErrors:
        group = self._groups.get(command.group_id)
        if group is not None:
            error = group.check_commit(command, now)
        elif command.generation < 0:
            error = ErrorCode.NONE
        else:
            error = ErrorCode.GROUP_ID_NOT_FOUND if command.knows_stale_epoch else ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE:
            return PartitionErrors(error)
        if group is None:
            self._groups[command.group_id] = ClassicGroup(command.group_id, self._context)
        errors: dict[tuple[str, int], ErrorCode] = {}
        moved_back = 0
        for topic, partition, offset, leader_epoch, metadata in command.offsets:
            if len(metadata) > self._context.settings.offset_metadata_bytes_max:
                errors[topic, partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            key = OffsetKey(command.group_id, topic, partition)
            before = self.committed(key) if command.is_from_outside else None
            moved_back += before is not None and offset < before.offset
            store(self._context, key, CommittedOffset(offset, leader_epoch, metadata, now.wall_ms), effects)
        stored(self._context, command.group_id, now)
        return PartitionErrors(errors=errors, moved_back=moved_back)

    def _fetch(self, command: FetchOffsets) -> OffsetsResponse:
        group = self._groups.get(command.group_id)
        if group is None:
            return OffsetsResponse()
        error = group.check_fetch(command)
        if error is not ErrorCode.NONE:
            return OffsetsResponse(error)
        if command.partitions is None:
            found = {(key.topic, key.partition): each for key, each in self._offsets.of_group(command.group_id)}
        else:
            wanted = ((place, self._offsets.get(OffsetKey(command.group_id, *place))) for place in command.partitions)
            found = {place: each for place, each in wanted if each is not None}
        if self._deleted_topics:
            found = {
                place: each for place, each in found.items() if not self._deleted_topics.has(command.group_id, place[0])
            }
        return OffsetsResponse(offsets=found)

    def committed(self, key: OffsetKey) -> CommittedOffset | None:
        """Returns the committed offset of a group; None if there is none or the topic was deleted."""
        return committed(self._context, key)

    def _delete_offsets(self, command: DeleteOffsets, effects: GroupEffects) -> PartitionErrors:
        if not command.group_id:
            return PartitionErrors(ErrorCode.INVALID_GROUP_ID)
        group = self._groups.get(command.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete_offsets()
        if group is None or error is not ErrorCode.NONE:
            return PartitionErrors(error)
        errors: dict[tuple[str, int], ErrorCode] = {}
        for topic, partition in command.partitions:
            if group.is_subscribed(topic):
                errors[topic, partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                forget(self._context, OffsetKey(command.group_id, topic, partition), effects)
        return PartitionErrors(errors=errors)

    def _missing_topics(self) -> list[str]:
        """Returns the topics that have committed offsets but do not exist: they were deleted while no machine was
        loaded."""
        return [name for name in self._offsets.topics() if self._context.topics.get(name) is None]

    def _mark_topics_deleted(self, names: Collection[str], now: Now, effects: GroupEffects) -> None:
        """Marks the committed offsets of deleted topics as removed. Requests no longer see them from now on; their
        tombstones may follow in later effects."""
        for name in sorted(names):
            self._deleted_topics.add(name)
        self._remove_deleted_offsets(now, effects)

    def _remove_deleted_offsets(self, now: Now, effects: GroupEffects) -> None:
        for key in self._deleted_topics.take(FORGOTTEN_AT_ONCE):
            forget(self._context, key, effects)
        if self._deleted_topics:
            self._deadlines.set(_DELETED_TOPICS_TIMER, now.monotonic_ms + 1)

    # Groups as a whole.

    def _delete_group(self, command: DeleteGroup, effects: GroupEffects) -> EmptyResponse:
        group = self._groups.get(command.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
        if group is None or error is not ErrorCode.NONE:
            return EmptyResponse(error)
        for key, _ in list(self._offsets.of_group(command.group_id)):
            forget(self._context, key, effects)
        self._remove(group, effects)
        return EmptyResponse()

    def _remove(self, group: Group, effects: GroupEffects) -> None:
        group.remove(effects)
        del self._groups[group.group_id]
        self._deadlines.cancel(Timer(TimerKind.EXPIRY, group.group_id))

    def _describe(self, group_id: str) -> GroupDescription:
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.describe()
        detail = f"group {group_id!r} {'does not exist' if group is None else 'is not a classic group'}"
        return GroupDescription(ErrorCode.GROUP_ID_NOT_FOUND, detail, group_id)

    def _describe_consumer(self, group_id: str) -> ConsumerGroupDescription:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.describe()
        return ConsumerGroupDescription(*_no_consumer_group(group_id, group), group_id)

    def _list(self, command: ListGroups) -> GroupList:
        states = {state.lower() for state in command.states}
        types = {kind.lower() for kind in command.types}
        listed = (group.listed() for group in self._groups.values())
        return GroupList(
            tuple(
                each
                for each in listed
                if (not states or each.state.lower() in states) and (not types or each.type.lower() in types)
            )
        )

    # Timers.

    @property
    def next_deadline_ms(self) -> int | None:
        """Time of the next tick (monotonic clock); None if no timer is set."""
        return self._deadlines.next_ms

    def may_be_due_before(self, at_ms: int) -> bool:
        """True if `tick` may be due before `at_ms`.

        Cheaper than `next_deadline_ms`, but the result may be True although no tick is due by then.
        """
        return self._deadlines.may_be_before(at_ms)

    def tick(self, now: Now, effects: GroupEffects) -> None:
        """Runs the timers that are due. Work beyond the limits per tick is left to the next tick, which is due
        immediately."""
        work = 0
        for timer in self._deadlines.due(now.monotonic_ms, most=TIMERS_PER_TICK):
            if timer == _DELETED_TOPICS_TIMER:
                self._remove_deleted_offsets(now, effects)
                continue
            if (group := self._groups.get(timer.group_id)) is None:
                continue
            if timer.kind is TimerKind.EXPIRY:
                work += self._expire(group, now, effects)
            else:
                group.timer_due(timer, now, effects)
            self._context.measure(timer.group_id)
            if work >= WORK_PER_TICK:
                break

    def _expire(self, group: Group, now: Now, effects: GroupEffects) -> int:
        """Removes the offsets whose retention time has passed, and an empty group together with its last offset.

        Returns the number of offsets that were checked.
        """
        retention_ms = self._context.settings.offsets_retention_ms
        wait_ms = LOOK_EVERY_MS
        expired = []
        looked_at = 0
        for key, each in self._offsets.of_group(group.group_id):
            looked_at += 1
            since_ms = None if group.is_subscribed(key.topic) else group.kept_since_ms(each)
            if since_ms is None:
                continue
            left_ms = since_ms + retention_ms - now.wall_ms
            if left_ms <= 0:
                expired.append(key)
            else:
                wait_ms = min(wait_ms, left_ms)
        sweep(self._context, group.group_id, now, effects)
        for key in expired:
            forget(self._context, key, effects)
        if group.group_id in self._offsets:
            self._context.look_at(group.group_id, now.monotonic_ms + wait_ms)
        elif group.is_empty:
            self._remove(group, effects)
        return looked_at


def _no_consumer_group(group_id: str, group: Group | None) -> tuple[ErrorCode, str]:
    detail = f"group {group_id!r} {'does not exist' if group is None else 'is not a consumer group'}"
    return ErrorCode.GROUP_ID_NOT_FOUND, detail


def _refused(command: MemberCommand, error: ErrorCode) -> Answer:
    """Builds the answer to a refused command. For LeaveGroup in an unknown group, the answer has one error per
    member."""
    if isinstance(command, LeaveGroup) and error is ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveResponse(
            members=tuple(LeftMember(each.member_id, each.instance_id, error) for each in command.members)
        )
    return failed(command, error)
