"""Encodes and decodes the record of the last issued iterator of a partition in a group, in a layout of Millstream's
own.

Its key has version 1000, far from the versions of Kafka, whose tools ignore versions that they do not know.
"""

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from millstream.coordination.effects import LogRecord
from millstream.model.ids import Offset, TopicIdBytes
from millstream.wire.messages import read_versioned, write_versioned

ITERATOR_KEY = 1_000
_VALUE_VERSION = 0


class IssuedKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class IssuedIterator(Struct, frozen=True):
    """The last iterator of a partition that was issued to a group. The next one replaces it."""

    client_id: str
    topic_id: TopicIdBytes
    generation: int
    life: int
    issue: int
    after: int
    """Number of the previous iterator, if its commit issued this one; otherwise 0."""
    offset: Offset
    messages_max: int
    in_flight_ms: int
    expires_ms: int
    """Wall-clock time."""
    delivered: int = 0
    """Number of messages, starting at `offset`, that the client has delivered."""
    is_over: bool = False
    """True if the iterator has ended. If it ended by a commit that issued no next iterator, `offset` is the group's
    position. If its client was removed, no iterator was issued under this number."""


def issued_record(key: IssuedKey, issued: IssuedIterator) -> LogRecord:
    return LogRecord(_key(key), write_versioned("IssuedIteratorValue", _VALUE_VERSION, asdict(issued)))


def issued_tombstone(key: IssuedKey) -> LogRecord:
    return LogRecord(_key(key), None)


def _key(key: IssuedKey) -> bytes:
    return write_versioned("IssuedIteratorKey", ITERATOR_KEY, key._asdict())


def read_issued_key(key: bytes) -> IssuedKey:
    """Decodes the key of an issued iterator. Raises MalformedMessageError."""
    fields = read_versioned("IssuedIteratorKey", key)
    return IssuedKey(fields["group_id"], fields["topic"], fields["partition"])


def read_issued(value: bytes) -> IssuedIterator:
    """Decodes the value of an issued iterator. Raises MalformedMessageError."""
    fields = read_versioned("IssuedIteratorValue", value)
    return IssuedIterator(**(fields | {"topic_id": bytes(fields["topic_id"])}))
