"""Holds the state of one group of the consumer protocol, as its records describe it.

Every change goes through a method that also creates the record, so replaying the records restores the same state. The
order of records of different kinds does not matter in replay, because compaction may leave them in any order.

Invariants:
- A member exists exactly while its subscription exists.
- `target_epoch <= epoch`. The targets are up to date exactly when the two are equal.
- A partition is owned by the one member that has it assigned or still has to revoke it.
"""

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from itertools import chain
from typing import TypeVar, cast

from millstream.coordination.effects import LogRecord
from millstream.groups.consumer import records
from millstream.groups.consumer.assignors import Assignment
from millstream.groups.consumer.members import NEW_SUBSCRIPTION, NO_HOLDING, MemberAssignment, MemberSubscription
from millstream.groups.consumer.records import GroupEpoch, Key, ResolvedRegex, TargetEpoch
from millstream.groups.size_limits import text_bytes
from millstream.groups.topic_image import TopicImage
from millstream.model.ids import TopicIdBytes

_VOID = GroupEpoch(0, 0)
_NO_TARGET = TargetEpoch(0, 0)

_Value = TypeVar("_Value")


class GroupState:
    """The durable state of one group, with indexes that are derived from it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.subscriptions: dict[str, MemberSubscription] = {}
        self.targets: dict[str, Assignment] = {}
        self.holdings: dict[str, MemberAssignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.static_ids: dict[str, str] = {}
        """Member ids by instance id."""
        self.regex_users: Counter[str] = Counter()
        self.classic_members = 0
        """Number of members that use the classic protocol."""
        self.told_bytes = 0
        """Size of the data that all members sent about themselves."""
        self.owned_partitions = 0
        self._group = _VOID
        self._target = _NO_TARGET
        self._readers: Counter[str] = Counter()
        self._owners: dict[TopicIdBytes, dict[int, str]] = {}

    @property
    def epoch(self) -> int:
        return self._group.epoch

    @property
    def target_epoch(self) -> int:
        return self._target.epoch

    @property
    def metadata_hash(self) -> int:
        return self._group.metadata_hash

    @property
    def is_void(self) -> bool:
        """True if the state is empty, so that no record is left."""
        parts = (self.subscriptions, self.targets, self.holdings, self.regexes)
        return self._group == _VOID and self._target == _NO_TARGET and not any(parts)

    def more_told(self, member_id: str, new: MemberSubscription | None) -> int:
        """Returns how many bytes a new subscription of this member would add to the metadata of all members."""
        old = self.subscriptions.get(member_id)
        if old == new:
            return 0
        id_bytes = text_bytes(member_id)
        return (id_bytes + new.told_bytes if new else 0) - (id_bytes + old.told_bytes if old else 0)

    def is_free(self, topic_id: TopicIdBytes, partition: int, for_member: str) -> bool:
        """True if no other member has the partition."""
        return self._owners.get(topic_id, {}).get(partition, for_member) == for_member

    def is_subscribed(self, topic: str) -> bool:
        return topic in self._readers or any(topic in resolved.topics for resolved in self.regexes.values())

    def topics_of(self, subscription: MemberSubscription) -> frozenset[str]:
        """Returns the topics that are subscribed by name and by expression. An expression that is not resolved yet
        matches nothing."""
        resolved = self.regexes.get(subscription.regex)
        return frozenset(chain(subscription.topics, resolved.topics if resolved else ()))

    def hash_of_topics(self, topics: TopicImage) -> int:
        """Returns a hash of the subscribed topics: their names, ids and partition counts."""
        names = sorted(set(chain(self._readers, *(resolved.topics for resolved in self.regexes.values()))))
        digest = blake2b(digest_size=8)
        for name in names:
            topic = topics.get(name)
            if topic is not None:
                digest.update(f"{name}/{topic.topic_id.hex()}/{topic.partitions}\n".encode())
        return int.from_bytes(digest.digest(), signed=True)

    # Changes, each with its record.

    def write_group(self, value: GroupEpoch) -> LogRecord:
        assert value.epoch >= self._target.epoch, "the target epoch does not exceed the group epoch"
        self._group = value
        return records.group_record(self.group_id, value)

    def write_subscription(self, member_id: str, subscription: MemberSubscription) -> LogRecord:
        self._put_subscription(member_id, subscription)
        return records.member_record(self.group_id, member_id, subscription)

    def write_holding(self, member_id: str, holding: MemberAssignment) -> LogRecord:
        assert member_id in self.subscriptions, "only members hold partitions"
        self._put_holding(member_id, holding)
        return records.holding_record(self.group_id, member_id, holding)

    def write_target(self, member_id: str, target: Assignment) -> LogRecord:
        self.targets[member_id] = target
        return records.target_record(self.group_id, member_id, target)

    def write_target_epoch(self, value: TargetEpoch) -> LogRecord:
        assert value.epoch <= self._group.epoch, "the target epoch does not exceed the group epoch"
        self._target = value
        return records.target_epoch_record(self.group_id, value)

    def write_regex(self, expression: str, resolved: ResolvedRegex) -> LogRecord:
        self.regexes[expression] = resolved
        return records.regex_record(self.group_id, expression, resolved)

    def drop_regex(self, expression: str) -> LogRecord:
        self.regexes.pop(expression, None)
        return records.tombstone(records.REGEX, self.group_id, expression)

    def drop_member(self, member_id: str) -> list[LogRecord]:
        self._put_holding(member_id, None)
        self.targets.pop(member_id, None)
        self._put_subscription(member_id, None)
        kinds = (records.HOLDING, records.TARGET, records.MEMBER)
        return [records.tombstone(kind, self.group_id, member_id) for kind in kinds]

    def drop_all(self) -> list[LogRecord]:
        gone = [record for member_id in list(self.subscriptions) for record in self.drop_member(member_id)]
        gone += [self.drop_regex(expression) for expression in list(self.regexes)]
        self._group, self._target = _VOID, _NO_TARGET
        return [
            *gone,
            records.tombstone(records.TARGET_EPOCH, self.group_id),
            records.tombstone(records.GROUP, self.group_id),
        ]

    # Replay.

    def replay(self, key: Key, value: bytes | None) -> None:
        """Applies one record of this group."""
        read = None if value is None else records.read_value(key.version, value)
        match key.version:
            case records.GROUP:
                self._group = cast(GroupEpoch | None, read) or _VOID
            case records.MEMBER:
                self._put_subscription(key.name, cast(MemberSubscription | None, read))
            case records.TARGET_EPOCH:
                self._target = cast(TargetEpoch | None, read) or _NO_TARGET
            case records.TARGET:
                _put(self.targets, key.name, cast(Assignment | None, read))
            case records.HOLDING:
                self._put_holding(key.name, cast(MemberAssignment | None, read))
            case records.REGEX:
                _put(self.regexes, key.name, cast(ResolvedRegex | None, read))

    def dump(self) -> Iterator[LogRecord]:
        """Yields the records that describe this state."""
        for member_id, subscription in self.subscriptions.items():
            yield records.member_record(self.group_id, member_id, subscription)
        for expression, resolved in self.regexes.items():
            yield records.regex_record(self.group_id, expression, resolved)
        if self._group != _VOID:
            yield records.group_record(self.group_id, self._group)
        for member_id, target in self.targets.items():
            yield records.target_record(self.group_id, member_id, target)
        if self._target != _NO_TARGET:
            yield records.target_epoch_record(self.group_id, self._target)
        for member_id, holding in self.holdings.items():
            yield records.holding_record(self.group_id, member_id, holding)

    def _put_subscription(self, member_id: str, new: MemberSubscription | None) -> None:
        self.told_bytes += self.more_told(member_id, new)
        old = self.subscriptions.get(member_id, NEW_SUBSCRIPTION)
        _put(self.subscriptions, member_id, new)
        self.classic_members += (new is not None and new.classic is not None) - (old.classic is not None)
        if old.instance_id is not None and self.static_ids.get(old.instance_id) == member_id:
            del self.static_ids[old.instance_id]
        if new is not None and new.instance_id is not None:
            self.static_ids[new.instance_id] = member_id
        new = new or NEW_SUBSCRIPTION
        if old.topics != new.topics:
            _count(self._readers, old.topics, new.topics)
        if old.regex != new.regex:
            _count(self.regex_users, (old.regex,) if old.regex else (), (new.regex,) if new.regex else ())

    def _put_holding(self, member_id: str, new: MemberAssignment | None) -> None:
        old = self.holdings.get(member_id, NO_HOLDING)
        _put(self.holdings, member_id, new)
        for topic_id, partitions in chain(old.assigned.items(), old.revoking.items()):
            owners = self._owners.get(topic_id, {})
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
                    self.owned_partitions -= 1
            if not owners:
                self._owners.pop(topic_id, None)
        if new is not None:
            for topic_id, partitions in chain(new.assigned.items(), new.revoking.items()):
                owners = self._owners.setdefault(topic_id, {})
                before = len(owners)
                owners.update(dict.fromkeys(partitions, member_id))
                self.owned_partitions += len(owners) - before


def _put(places: dict[str, _Value], name: str, value: _Value | None) -> None:
    if value is None:
        places.pop(name, None)
    else:
        places[name] = value


def _count(counter: Counter[str], old: tuple[str, ...], new: tuple[str, ...]) -> None:
    counter.subtract(old)
    counter.update(new)
    for name in old:
        if not counter[name]:
            del counter[name]
