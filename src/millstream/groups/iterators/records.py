"""The record of what was last issued of a partition to a group, in a layout of our own.

Its key has version 1000, out of the way of Kafka's, whose tools pass over versions they do not know.
"""

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from millstream.groups.effects import GroupLogRecord
from millstream.wire.messages import read_versioned, write_versioned

ITERATOR_KEY = 1_000
_VALUE_VERSION = 0


class IssuedKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class IssuedIterator(Struct, frozen=True):
    """The last iterator of a partition that a group was given. It is replaced by the next, and so are its numbers."""

    client_id: str
    topic_id: bytes
    generation: int
    life: int
    issue: int
    after: int
    """The issue whose commit this one followed; 0 if none."""
    offset: int
    messages_max: int
    in_flight_ms: int
    expires_ms: int
    """Wall clock."""
    handed: int = 0
    """So many messages, from `offset` on, were handed on by its client."""
    is_over: bool = False
    """It was committed, and its client was given no next one: `offset` is where the group goes on. Or its client is
    gone: then nothing was issued under this number."""


def issued_record(key: IssuedKey, issued: IssuedIterator) -> GroupLogRecord:
    return GroupLogRecord(_key(key), write_versioned("IssuedIteratorValue", _VALUE_VERSION, asdict(issued)))


def issued_tombstone(key: IssuedKey) -> GroupLogRecord:
    return GroupLogRecord(_key(key), None)


def _key(key: IssuedKey) -> bytes:
    return write_versioned("IssuedIteratorKey", ITERATOR_KEY, key._asdict())


def read_issued_key(key: bytes) -> IssuedKey:
    """MalformedMessageError if it is not laid out as a key of this kind."""
    fields = read_versioned("IssuedIteratorKey", key)
    return IssuedKey(fields["group_id"], fields["topic"], fields["partition"])


def read_issued(value: bytes) -> IssuedIterator:
    """MalformedMessageError if it is not laid out so."""
    fields = read_versioned("IssuedIteratorValue", value)
    return IssuedIterator(**(fields | {"topic_id": bytes(fields["topic_id"])}))
