"""Defines the request and response bodies of POST /events."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from millstream.gateway.http.resources.common_parameters import ClusterName, Partition, TopicName

ABSENT = Raw(b"")
"""Marks a key or a value that is missing from the body, unlike one that is null."""


def _absent() -> Raw:
    return ABSENT


Hash = Annotated[
    int, Meta(ge=-(2**63), le=2**63 - 1, description="Selects the partition: hash modulo partition count.")
]
MessageId = Annotated[
    str, Meta(min_length=1, max_length=255, description="Message id. A retry with the same id is stored once.")
]
Timestamp = Annotated[int, Meta(ge=0, le=2**53, description="Milliseconds since 1970. Default: the time of arrival.")]


HeaderTexts = dict[str, str | list[str | None] | None]
"""Header values by name; a list if a name occurs several times."""


class Event(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An event. Key and value are text, other JSON (stored as its text), or bytes as base64."""

    value: Annotated[Raw, Meta(description="The value: text, other JSON, or null for a tombstone.")] = msgspec.field(
        default_factory=_absent
    )
    value_base64: Annotated[str, Meta(description="The value as base64, instead of `value`.")] | None = None
    key: Annotated[Raw, Meta(description="Selects the partition and identifies the event in compaction.")] = (
        msgspec.field(default_factory=_absent)
    )
    key_base64: Annotated[str, Meta(description="The key as base64, instead of `key`.")] | None = None
    headers: Annotated[HeaderTexts, Meta(description="Header texts by name.")] | None = None
    headers_base64: Annotated[HeaderTexts, Meta(description="Header values as base64, by name.")] | None = None
    partition: Partition | None = None
    hash: Hash | None = None
    message_id: MessageId | None = None
    timestamp: Timestamp | None = None
    topic: TopicName | None = None


class NewEvents(Event, kw_only=True):
    """One event, or many in `events`. `topic` is the default topic of all events."""

    events: list[Event] | None = None
    cluster: ClusterName | None = None


class WriteParameters(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Query parameters of a write.

    For a JSON body only `topic`, `cluster` and `timeout` are allowed, and a topic or cluster in the body takes
    precedence. The other parameters describe an event whose value is the raw body.
    """

    topic: TopicName | None = None
    cluster: ClusterName | None = None
    key: str | None = None
    partition: Partition | None = None
    hash: Hash | None = None
    message_id: MessageId | None = None
    timestamp: Timestamp | None = None
    timeout: Annotated[float, Meta(gt=0, le=60, description="Seconds to wait for the acknowledgement.")] | None = None


class StoredEvent(msgspec.Struct, kw_only=True):
    """The partition and offset of a stored event. The offset is -1 if a late retry found it stored at an offset that
    the broker no longer knows.
    """

    topic: str
    partition: int
    offset: int
    message_id: str
    duplicate: bool
    """True if an event with this id was stored before. Nothing was stored; the offset is that of the first copy."""


class StoredRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The outcome of one of many events: partition and offset, or an error. `topic` is set if the events have several
    topics.
    """

    partition: int = -1
    offset: int = -1
    message_id: str = ""
    duplicate: bool
    """True if an event with this id was stored before."""
    topic: str | UnsetType = UNSET
    error: Any | UnsetType = UNSET


class StoredEvents(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The outcome of each event, in the order of the request."""

    events: list[StoredRow]
    topic: str | UnsetType = UNSET
    """The topic, if all events have the same."""
