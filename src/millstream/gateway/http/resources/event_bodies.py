"""What can be posted as an event, and what is answered: the bodies of POST /events."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from millstream.gateway.http.resources.common_parameters import ClusterName, Partition, TopicName

ABSENT = Raw(b"")
"""Stands for a key or a value that is not there, as null is."""


def _absent() -> Raw:
    return ABSENT


Hash = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, description="Chooses the partition by its remainder.")]
MessageId = Annotated[
    str, Meta(min_length=1, max_length=255, description="Makes a retry known as one: the event is stored once.")
]
Timestamp = Annotated[int, Meta(ge=0, le=2**53, description="Milliseconds since 1970; the time it came without one.")]


HeaderTexts = dict[str, str | list[str | None] | None]
"""By name; a list where a name is there several times."""


class Event(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An event. Key and value are text, or any other JSON, which is stored as its text; or bytes, as base64."""

    value: Annotated[Raw, Meta(description="What it says: a text, any other JSON, or null for a tombstone.")] = (
        msgspec.field(default_factory=_absent)
    )
    value_base64: Annotated[str, Meta(description="The value's bytes, instead of `value`.")] | None = None
    key: Annotated[Raw, Meta(description="Decides the partition, and what compaction keeps.")] = msgspec.field(
        default_factory=_absent
    )
    key_base64: Annotated[str, Meta(description="The key's bytes, instead of `key`.")] | None = None
    headers: Annotated[HeaderTexts, Meta(description="Names and texts that travel with it.")] | None = None
    headers_base64: Annotated[HeaderTexts, Meta(description="Headers whose values are bytes.")] | None = None
    partition: Partition | None = None
    hash: Hash | None = None
    message_id: MessageId | None = None
    timestamp: Timestamp | None = None
    topic: TopicName | None = None


class NewEvents(Event, kw_only=True):
    """One event, or many in `events`; their topic is this one unless they name another."""

    events: list[Event] | None = None
    cluster: ClusterName | None = None


class WriteParameters(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """For bodies that cannot say it themselves. Of JSON, the topic and the cluster that it names go first, and what is
    said of an event is said there."""

    topic: TopicName | None = None
    cluster: ClusterName | None = None
    key: str | None = None
    partition: Partition | None = None
    hash: Hash | None = None
    message_id: MessageId | None = None
    timestamp: Timestamp | None = None
    timeout: (
        Annotated[float, Meta(gt=0, le=60, description="Seconds after which the answer comes in any case.")] | None
    ) = None


class StoredEvent(msgspec.Struct, kw_only=True):
    """Where an event was stored. The offset is -1 where the broker can no longer say: a retry came very late."""

    topic: str
    partition: int
    offset: int
    message_id: str


class StoredRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where one of many was stored, or why it was not; the topic where they have several."""

    partition: int = -1
    offset: int = -1
    message_id: str = ""
    topic: str | UnsetType = UNSET
    error: Any | UnsetType = UNSET


class StoredEvents(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where events were stored, in the order in which they came."""

    events: list[StoredRow]
    topic: str | UnsetType = UNSET
    """Where it is the same for all of them."""
