"""Encodes and decodes the records of committed offsets and of classic groups, in Kafka's layouts for
`__consumer_offsets`.

A key begins with its version, which identifies the kind of record: 0 and 1 are offsets, 2 is a classic group, and 3 to
8 and 16 belong to the consumer protocol. Values are written in version 3, which every tool that supports static members
can read. Offsets are written in version 4, which contains the id of their topic, if that id is known.
"""

from typing import NamedTuple
from uuid import UUID

from millstream.coordination.effects import LogRecord
from millstream.groups.responses import CommittedOffset
from millstream.model.ids import TopicIdBytes
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import read_versioned, write_versioned
from millstream.wire.schema_readers import Fields

CONSUMERS = "consumer"
"""The protocol type of consumer groups: the subscriptions of their members can be decoded."""

OFFSET_KEYS = frozenset({0, 1})
GROUP_KEY = 2
NO_TOPIC = TopicIdBytes(bytes(16))
_VALUE_VERSION = 3
_TOPIC_ID_VERSION = 4


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class StoredMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    metadata: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    since_ms: int
    """Time at which the group entered its current state; -1 if unknown."""
    members: tuple[StoredMember, ...]


def key_version(key: bytes) -> int:
    """Returns the version of a key, which identifies the kind of record; -1 if the key is too short to have one."""
    return int.from_bytes(key[:2], signed=True) if len(key) >= 2 else -1


def offset_record(key: OffsetKey, committed: CommittedOffset, topic_id: TopicIdBytes = NO_TOPIC) -> LogRecord:
    fields = {
        "offset": committed.offset,
        "leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "commit_timestamp": committed.committed_ms,
        "topic_id": UUID(bytes=topic_id),
    }
    version = _VALUE_VERSION if topic_id == NO_TOPIC else _TOPIC_ID_VERSION
    return LogRecord(_offset_key(key), write_versioned("OffsetCommitValue", version, fields))


def offset_tombstone(key: OffsetKey) -> LogRecord:
    return LogRecord(_offset_key(key), None)


def _offset_key(key: OffsetKey) -> bytes:
    fields = {"group": key.group_id, "topic": key.topic, "partition": key.partition}
    return write_versioned("OffsetCommitKey", 1, fields)


def read_offset_key(key: bytes) -> OffsetKey:
    fields = read_versioned("OffsetCommitKey", key)
    return OffsetKey(fields["group"], fields["topic"], fields["partition"])


def read_offset(value: bytes) -> tuple[CommittedOffset, TopicIdBytes]:
    """Returns the committed offset and the id of its topic; NO_TOPIC if the record has no topic id."""
    fields = read_versioned("OffsetCommitValue", value)
    row = CommittedOffset(fields["offset"], fields["leader_epoch"], fields["metadata"], fields["commit_timestamp"])
    return row, TopicIdBytes(fields["topic_id"].bytes)


def group_key(group_id: str) -> bytes:
    return write_versioned("GroupMetadataKey", GROUP_KEY, {"group": group_id})


def read_group_key(key: bytes) -> str:
    group_id: str = read_versioned("GroupMetadataKey", key)["group"]
    return group_id


def group_value(group: StoredGroup) -> bytes:
    return write_versioned(
        "GroupMetadataValue",
        _VALUE_VERSION,
        {
            "protocol_type": group.protocol_type,
            "generation": group.generation,
            "protocol": group.protocol_name,
            "leader": group.leader,
            "current_state_timestamp": group.since_ms,
            "members": [_member_fields(member) for member in group.members],
        },
    )


def _member_fields(member: StoredMember) -> Fields:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout": member.rebalance_timeout_ms,
        "session_timeout": member.session_timeout_ms,
        "subscription": member.metadata,
        "assignment": member.assignment,
    }


def read_group(value: bytes) -> StoredGroup:
    fields = read_versioned("GroupMetadataValue", value)
    return StoredGroup(
        protocol_type=fields["protocol_type"],
        generation=fields["generation"],
        protocol_name=fields["protocol"],
        leader=fields["leader"],
        since_ms=fields["current_state_timestamp"],
        members=tuple(_read_member(member) for member in fields["members"]),
    )


def _read_member(fields: Fields) -> StoredMember:
    return StoredMember(
        member_id=fields["member_id"],
        instance_id=fields["group_instance_id"],
        client_id=fields["client_id"],
        client_host=fields["client_host"],
        rebalance_timeout_ms=fields["rebalance_timeout"] or fields["session_timeout"],
        session_timeout_ms=fields["session_timeout"],
        metadata=bytes(fields["subscription"]),
        assignment=bytes(fields["assignment"]),
    )


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Returns the topics in a consumer's subscription; None if the metadata is not a subscription of the consumer
    protocol."""
    try:
        return tuple(read_versioned("ConsumerProtocolSubscription", metadata)["topics"])
    except MalformedMessageError:
        return None
