"""All groups of one partition of `__consumer_offsets`: who is in them, and what they have committed.

Pure: it is told the time and the commands, and returns what is to be appended and answered. State changes and the
records that say so are made together, so replaying every record that was ever returned, in order, gives the same
durable state. If an append fails, the machine is thrown away and another one replays the log.
"""

from collections.abc import Callable, Collection, Iterator

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
)
from millstream.groups.committed_offsets import committed, forget, record_of, store, stored
from millstream.groups.consumer.group import ConsumerGroup, consumer_heartbeat, replay_consumer
from millstream.groups.effects import Effects, GroupLogRecord, Now, Token
from millstream.groups.failures import failed
from millstream.groups.group import Group, MemberCommand
from millstream.groups.iterators import iterator_requests
from millstream.groups.iterators.issue import sweep
from millstream.groups.iterators.records import ITERATOR_KEY
from millstream.groups.machine_context import LOOK_EVERY_MS, MachineContext
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
from millstream.groups.runtime.deleted_topics import OrphanedOffsets
from millstream.groups.settings import GroupSettings
from millstream.groups.timers import Timer, TimerKind
from millstream.groups.topic_image import TopicImage
from millstream.model.errors import ErrorCode
from millstream.seams.entropy import Entropy

TIMERS_PER_TICK = 100
"""So that many groups that are due at once do not hold up everybody else; the rest is due at once, in the next tick."""

WORK_PER_TICK = 1_000
"""Offsets that a tick looks at before it leaves the rest to the next one."""

FORGOTTEN_AT_ONCE = 25
"""Offsets of topics that are gone are forgotten so many at a time."""

LOADED_AT_ONCE = 100
"""Groups that begin to live after a replay, before others get their turn."""

_GONE = Timer(TimerKind.GONE, "")


class GroupMachine:
    def __init__(self, settings: GroupSettings, topics: TopicImage, entropy: Entropy) -> None:
        self._context = MachineContext(settings, topics, entropy)
        self._groups = self._context.groups
        self._offsets = self._context.offsets
        self._deadlines = self._context.deadlines
        self._gone = self._context.gone
        self._outlived = OrphanedOffsets(topics)

    # The log.

    def replay(self, record: GroupLogRecord) -> None:
        """Take in one record of the log; records must come in order, all before `loaded`. Keys of other kinds are
        passed over; MalformedMessageError for one that is not laid out as it says."""
        version = key_version(record.key)
        if version in OFFSET_KEYS:
            key = read_offset_key(record.key)
            if record.value is None:
                self._offsets.remove(key)
                self._outlived.forget(key)
            else:
                row, topic_id = read_offset(record.value)
                self._offsets.put(key, row)
                self._outlived.note(key, topic_id)
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

    def loaded(self, now: Now) -> Effects:
        """Replay is over: groups go on where they were, and members get a whole session to be heard of."""
        effects = Effects()
        for _ in self.loading(lambda: now, effects):
            pass
        return effects

    def loading(self, now: Callable[[], Now], effects: Effects) -> Iterator[None]:
        """As `loaded`, in steps; nothing else may be asked of the machine before the last. Groups are looked at one
        after another for what has expired meanwhile; offsets that have outlived their topics are forgotten."""
        for at, key in enumerate(self._outlived.take()):
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
            wait_ms = at % LOOK_EVERY_MS if group.group_id in self._offsets else LOOK_EVERY_MS
            self._context.look_at(group.group_id, now().monotonic_ms + wait_ms)
            if at % LOADED_AT_ONCE == LOADED_AT_ONCE - 1:
                yield

    def dump(self) -> Iterator[GroupLogRecord]:
        """The durable state as records: a machine that replays them has the same."""
        for group in self._groups.values():
            yield from group.dump()
        for group_id in self._offsets.group_ids():
            for key, each in self._offsets.of_group(group_id):
                yield record_of(self._context, key, each)
        yield from self._context.issued.dump()

    def group_ids(self) -> Collection[str]:
        return self._groups.keys()

    @property
    def member_count(self) -> int:
        """Members of all groups together."""
        return sum(group.member_count for group in self._groups.values())

    # Commands.

    def handle(self, command: Command, token: Token, now: Now) -> Effects:
        """Do what is asked. The answer comes with this token in these effects, or in later ones."""
        effects = Effects()
        match command:
            case JoinGroup() | SyncGroup() | Heartbeat() | LeaveGroup() | ConsumerHeartbeat():
                self._member(command, token, now, effects)
            case _:
                effects.reply(token, self._answer(command, now, effects))
        return effects

    def _answer(self, command: Command, now: Now, effects: Effects) -> Answer:
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
        raise TypeError(f"not a command that is answered at once: {command}")

    def _member(self, command: MemberCommand, token: Token, now: Now, effects: Effects) -> None:
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

    def _commit(self, command: CommitOffsets, now: Now, effects: Effects) -> PartitionErrors:
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
        metadata_bytes_max = self._context.settings.offset_metadata_bytes_max
        for topic, partition, offset, leader_epoch, metadata in command.offsets:
            if len(metadata) > metadata_bytes_max:
                errors[topic, partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            key = OffsetKey(command.group_id, topic, partition)
            store(self._context, key, CommittedOffset(offset, leader_epoch, metadata, now.wall_ms), effects)
        stored(self._context, command.group_id, now)
        return PartitionErrors(errors=errors)

    def _fetch(self, command: FetchOffsets) -> OffsetsResponse:
        group = self._groups.get(command.group_id)
        if group is None:
            return OffsetsResponse()
        error = group.check_fetch(command)
        if error is not ErrorCode.NONE:
            return OffsetsResponse(error)
        offsets = self._offsets
        if command.partitions is None:
            found = {(key.topic, key.partition): each for key, each in offsets.of_group(command.group_id)}
        else:
            wanted = ((place, offsets.get(OffsetKey(command.group_id, *place))) for place in command.partitions)
            found = {place: each for place, each in wanted if each is not None}
        if self._gone:
            found = {place: each for place, each in found.items() if not self._gone.has(command.group_id, place[0])}
        return OffsetsResponse(offsets=found)

    def committed(self, key: OffsetKey) -> CommittedOffset | None:
        """What a group has committed; None when it has not, or in a topic that is gone."""
        return committed(self._context, key)

    def _delete_offsets(self, command: DeleteOffsets, effects: Effects) -> PartitionErrors:
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

    def topics_gone(self) -> list[str]:
        """Topics that groups have offsets in and that are not there: they went while nobody could take note."""
        return [name for name in self._offsets.topics() if self._context.topics.get(name) is None]

    def topics_deleted(self, names: Collection[str], now: Now) -> Effects:
        """Topics are gone: so are the offsets that groups have in them. Nobody is told of these from now on; the log
        may hear of it in later effects."""
        effects = Effects()
        for name in sorted(names):
            self._gone.add(name)
        self._forget_gone(now, effects)
        return effects

    def _forget_gone(self, now: Now, effects: Effects) -> None:
        for key in self._gone.take(FORGOTTEN_AT_ONCE):
            forget(self._context, key, effects)
        if self._gone:
            self._deadlines.set(_GONE, now.monotonic_ms + 1)

    # Groups as a whole.

    def _delete_group(self, command: DeleteGroup, effects: Effects) -> EmptyResponse:
        group = self._groups.get(command.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
        if group is None or error is not ErrorCode.NONE:
            return EmptyResponse(error)
        for key, _ in list(self._offsets.of_group(command.group_id)):
            forget(self._context, key, effects)
        self._remove(group, effects)
        return EmptyResponse()

    def _remove(self, group: Group, effects: Effects) -> None:
        group.remove(effects)
        del self._groups[group.group_id]
        self._deadlines.cancel(Timer(TimerKind.EXPIRY, group.group_id))

    def _describe(self, group_id: str) -> GroupDescription:
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.describe()
        detail = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        return GroupDescription(ErrorCode.GROUP_ID_NOT_FOUND, detail, group_id)

    def _describe_consumer(self, group_id: str) -> ConsumerGroupDescription:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.describe()
        detail = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        return ConsumerGroupDescription(ErrorCode.GROUP_ID_NOT_FOUND, detail, group_id)

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

    # Time.

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` is next needed (monotonic clock); None as long as nothing waits."""
        return self._deadlines.next_ms

    def may_be_due_before(self, at_ms: int) -> bool:
        """Whether `tick` may be needed earlier than that; cheaper to ask than when exactly."""
        return self._deadlines.may_be_before(at_ms)

    def tick(self, now: Now) -> Effects:
        """Do what is due. What is left over when that is much is due at once, in the next tick."""
        effects = Effects()
        work = 0
        for timer in self._deadlines.due(now.monotonic_ms, TIMERS_PER_TICK):
            if timer == _GONE:
                self._forget_gone(now, effects)
                continue
            group = self._groups.get(timer.group_id)
            if group is None:
                continue
            if timer.kind is TimerKind.EXPIRY:
                work += self._expire(group, now, effects)
            else:
                group.timer_due(timer, now, effects)
            if work >= WORK_PER_TICK:
                break
        return effects

    def _expire(self, group: Group, now: Now, effects: Effects) -> int:
        """Forget offsets that nobody has needed for the retention time, and an empty group with its last offset.

        Returns how many offsets were looked at.
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


def _refused(command: MemberCommand, error: ErrorCode) -> Answer:
    """Of a group that nobody knows, each of those who leave is told that it is no member."""
    if isinstance(command, LeaveGroup) and error is ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveResponse(
            members=tuple(LeftMember(each.member_id, each.instance_id, error) for each in command.members)
        )
    return failed(command, error)
