"""What an iterator is, and what the coordinator tells the server that it is read from."""

from typing import NamedTuple

from msgspec import Struct

BEGINNING, END = -2, -1
"""Offsets that the partition's server puts in figures, because only it knows them."""

MESSAGES_MAX = 100_000
"""Messages that one iterator may stand for, whatever its client would take."""

NAME_BYTES_MAX = 255
"""Of groups and clients that use iterators: both stand in every iterator."""

MEMBER_PREFIX = "iterators/"
"""What the member id of a client begins with, so that it is nobody else's by accident."""

CLOCK_TOLERANCE_MS = 5_000
"""How far the wall clocks of two brokers may be apart before an iterator's time ends too early, or too late."""


def member_id(client_id: str) -> str:
    return MEMBER_PREFIX + client_id


class Iterator(Struct, frozen=True):
    """The right of one client to read up to `messages_max` messages of a partition for its group, from `offset` on."""

    group_id: str
    client_id: str
    topic: str
    topic_id: bytes
    """16 bytes."""
    partition: int
    offset: int
    """Or BEGINNING or END."""
    messages_max: int
    generation: int
    """Of the group, when it was issued."""
    life: int
    """Drawn when the partition was first issued to the group: tells a group from an earlier one of the same name."""
    issue: int
    """Counts what was issued of the partition in this life."""
    expires_ms: int
    """When it is no longer in flight, on the wall clock of whoever issued it."""


class IteratorNotice(NamedTuple):
    """What a coordinator tells the server of a partition, and expects no answer to. It is only ever told forward."""

    group_id: str
    life: int
    topic_id: bytes
    partition: int
    generation: int
    """The group has come so far."""
    issue: int = 0
    """This was issued in that generation; 0 when nothing was."""
    left_ms: int = 0
    """So long it is still in flight."""


def told_of(iterator: Iterator, left_ms: int) -> IteratorNotice:
    """That this was issued."""
    return IteratorNotice(
        iterator.group_id,
        iterator.life,
        iterator.topic_id,
        iterator.partition,
        iterator.generation,
        iterator.issue,
        left_ms,
    )
