"""Encodes and decodes the embedded consumer protocol, which classic members exchange in JoinGroup and SyncGroup."""

from msgspec import Struct

from millstream.groups.commands import OfferedProtocol, OwnedPartitions
from millstream.groups.consumer.assignors import Assignment
from millstream.groups.topic_image import TopicImage
from millstream.wire.messages import read_versioned, write_versioned

_VERSION_MAX = 3


class EmbeddedSubscription(Struct, frozen=True):
    topics: tuple[str, ...]
    """Sorted, without duplicates."""
    owned: tuple[OwnedPartitions, ...]
    """Empty for a member that revokes all its partitions before it joins."""
    rack_id: str | None


def read_subscription(protocols: tuple[OfferedProtocol, ...], topics: TopicImage) -> EmbeddedSubscription:
    """Decodes the subscription of a member, which is the same for all its assignors. Raises MalformedMessageError."""
    fields = read_versioned("ConsumerProtocolSubscription", protocols[0].metadata)
    owned = ((topics.get(each["topic"]), each["partitions"]) for each in fields["owned_partitions"])
    return EmbeddedSubscription(
        topics=tuple(sorted(set(fields["topics"]))),
        owned=tuple(OwnedPartitions(topic.topic_id, tuple(numbers)) for topic, numbers in owned if topic is not None),
        rack_id=fields["rack_id"],
    )


def read_assignment(data: bytes, topics: TopicImage) -> Assignment:
    """Decodes an assignment; partitions that do not exist are left out. Raises MalformedMessageError."""
    if not data:
        return {}
    rows = read_versioned("ConsumerProtocolAssignment", data)["assigned_partitions"]
    found = ((topics.get(row["topic"]), row["partitions"]) for row in rows)
    existing = (
        (topic.topic_id, frozenset(range(topic.partitions)).intersection(numbers))
        for topic, numbers in found
        if topic is not None
    )
    return {topic_id: numbers for topic_id, numbers in existing if numbers}


def write_assignment(assigned: Assignment, protocols: tuple[OfferedProtocol, ...], topics: TopicImage) -> bytes:
    """Encodes an assignment in the version of the member's subscription."""
    version = max(0, min(int.from_bytes(protocols[0].metadata[:2], signed=True), _VERSION_MAX))
    named = ((topics.by_id(topic_id), sorted(numbers)) for topic_id, numbers in assigned.items())
    rows = [{"topic": topic.name, "partitions": numbers} for topic, numbers in named if topic is not None]
    rows.sort(key=lambda row: str(row["topic"]))
    return write_versioned("ConsumerProtocolAssignment", version, {"assigned_partitions": rows, "user_data": None})
