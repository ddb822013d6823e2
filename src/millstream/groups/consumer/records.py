"""Encodes and decodes the records of the consumer protocol, in Kafka's layouts for `__consumer_offsets`: key versions 3
to 8 and 16.

Key version 4, the partitions of subscribed topics, is obsolete: Kafka no longer writes it, and Millstream never does. A
hash in version 3 replaces it. Lists in values are sorted, so equal state gives equal bytes.
"""

from collections.abc import Callable
from uuid import UUID

from msgspec import Struct

from millstream.coordination.effects import LogRecord
from millstream.groups.commands import OfferedProtocol
from millstream.groups.consumer.assignors import Assignment
from millstream.groups.consumer.members import ClassicTerms, MemberAssignment, MemberState, MemberSubscription
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import read_versioned, write_versioned
from millstream.wire.schema_readers import Fields

GROUP, MEMBER, TARGET_EPOCH, TARGET, HOLDING, REGEX = 3, 5, 6, 7, 8, 16
_NAMES = {
    GROUP: "ConsumerGroupMetadata",
    MEMBER: "ConsumerGroupMemberMetadata",
    TARGET_EPOCH: "ConsumerGroupTargetAssignmentMetadata",
    TARGET: "ConsumerGroupTargetAssignmentMember",
    HOLDING: "ConsumerGroupCurrentMemberAssignment",
    REGEX: "ConsumerGroupRegularExpression",
}
KEYS = frozenset(_NAMES)

_STATES = frozenset(MemberState)


class Key(Struct, frozen=True):
    version: int
    group_id: str
    name: str = ""
    """The member's id or the regular expression; empty in keys of the group as a whole."""


class GroupEpoch(Struct, frozen=True):
    epoch: int
    metadata_hash: int


class TargetEpoch(Struct, frozen=True):
    epoch: int
    computed_ms: int


class ResolvedRegex(Struct, frozen=True):
    topics: tuple[str, ...]
    version: int
    resolved_ms: int


Value = GroupEpoch | MemberSubscription | TargetEpoch | Assignment | MemberAssignment | ResolvedRegex


def write_key(key: Key) -> bytes:
    fields: Fields = {"group_id": key.group_id}
    if key.version == REGEX:
        fields["regular_expression"] = key.name
    elif key.version not in (GROUP, TARGET_EPOCH):
        fields["member_id"] = key.name
    return write_versioned(f"{_NAMES[key.version]}Key", key.version, fields)


def read_key(key: bytes, version: int) -> Key:
    """Decodes a key of this version. Raises MalformedMessageError."""
    fields = read_versioned(f"{_NAMES[version]}Key", key)
    name = fields.get("regular_expression") or fields.get("member_id") or ""
    return Key(version, fields["group_id"], name)


def tombstone(version: int, group_id: str, name: str = "") -> LogRecord:
    return LogRecord(write_key(Key(version, group_id, name)), None)


def _record(version: int, group_id: str, name: str, fields: Fields) -> LogRecord:
    return LogRecord(write_key(Key(version, group_id, name)), write_versioned(f"{_NAMES[version]}Value", 0, fields))


def group_record(group_id: str, value: GroupEpoch) -> LogRecord:
    return _record(GROUP, group_id, "", {"epoch": value.epoch, "metadata_hash": value.metadata_hash})


def target_epoch_record(group_id: str, value: TargetEpoch) -> LogRecord:
    fields = {"assignment_epoch": value.epoch, "assignment_timestamp": value.computed_ms}
    return _record(TARGET_EPOCH, group_id, "", fields)


def target_record(group_id: str, member_id: str, target: Assignment) -> LogRecord:
    return _record(TARGET, group_id, member_id, {"topic_partitions": _partition_fields(target)})


def regex_record(group_id: str, expression: str, value: ResolvedRegex) -> LogRecord:
    fields = {"topics": list(value.topics), "version": value.version, "timestamp": value.resolved_ms}
    return _record(REGEX, group_id, expression, fields)


def holding_record(group_id: str, member_id: str, holding: MemberAssignment) -> LogRecord:
    fields = {
        "member_epoch": holding.epoch,
        "previous_member_epoch": holding.previous_epoch,
        "state": int(holding.state),
        "assigned_partitions": _partition_fields(holding.assigned),
        "partitions_pending_revocation": _partition_fields(holding.revoking),
    }
    return _record(HOLDING, group_id, member_id, fields)


def member_record(group_id: str, member_id: str, subscription: MemberSubscription) -> LogRecord:
    classic = subscription.classic
    fields = {
        "instance_id": subscription.instance_id,
        "rack_id": subscription.rack_id,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": list(subscription.topics),
        "subscribed_topic_regex": subscription.regex,
        "rebalance_timeout_ms": subscription.rebalance_timeout_ms,
        "server_assignor": subscription.assignor,
        "classic_member_metadata": classic
        and {
            "session_timeout_ms": classic.session_timeout_ms,
            "supported_protocols": [each._asdict() for each in classic.protocols],
        },
    }
    return _record(MEMBER, group_id, member_id, fields)


def read_value(version: int, value: bytes) -> Value:
    """Decodes the value of a record with this key version. Raises MalformedMessageError."""
    fields = read_versioned(f"{_NAMES[version]}Value", value)
    return _READERS[version](fields)


def _subscription(fields: Fields) -> MemberSubscription:
    classic = fields["classic_member_metadata"]
    return MemberSubscription(
        instance_id=fields["instance_id"],
        rack_id=fields["rack_id"],
        client_id=fields["client_id"],
        client_host=fields["client_host"],
        topics=tuple(sorted(set(fields["subscribed_topic_names"]))),
        regex=fields["subscribed_topic_regex"] or "",
        rebalance_timeout_ms=fields["rebalance_timeout_ms"],
        assignor=fields["server_assignor"],
        classic=classic
        and ClassicTerms(
            classic["session_timeout_ms"],
            tuple(OfferedProtocol(each["name"], bytes(each["metadata"])) for each in classic["supported_protocols"]),
        ),
    )


def _holding(fields: Fields) -> MemberAssignment:
    if fields["state"] not in _STATES:
        raise MalformedMessageError(f"unknown member state {fields['state']}")
    return MemberAssignment(
        epoch=fields["member_epoch"],
        previous_epoch=fields["previous_member_epoch"],
        state=MemberState(fields["state"]),
        assigned=_assignment(fields["assigned_partitions"]),
        revoking=_assignment(fields["partitions_pending_revocation"]),
    )


def _partition_fields(assignment: Assignment) -> list[Fields]:
    return [
        {"topic_id": UUID(bytes=topic_id), "partitions": sorted(partitions)}
        for topic_id, partitions in sorted(assignment.items())
    ]


def _assignment(rows: list[Fields]) -> Assignment:
    return {row["topic_id"].bytes: frozenset(row["partitions"]) for row in rows if row["partitions"]}


_READERS: dict[int, Callable[[Fields], Value]] = {
    GROUP: lambda fields: GroupEpoch(fields["epoch"], fields["metadata_hash"]),
    MEMBER: _subscription,
    TARGET_EPOCH: lambda fields: TargetEpoch(fields["assignment_epoch"], fields["assignment_timestamp"]),
    TARGET: lambda fields: _assignment(fields["topic_partitions"]),
    HOLDING: _holding,
    REGEX: lambda fields: ResolvedRegex(tuple(fields["topics"]), fields["version"], fields["timestamp"]),
}
