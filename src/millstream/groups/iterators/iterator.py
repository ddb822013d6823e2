"""Defines iterators, and the notices about them from the coordinator to the servers of partitions."""

from typing import NamedTuple

from msgspec import Struct

from millstream.model.ids import Offset, TopicIdBytes

BEGINNING, END = -2, -1
"""Placeholder offsets. The partition's server replaces them by numbers, which only it knows."""

MESSAGES_MAX = 100_000
"""Maximum number of messages of one iterator, whatever its client requests."""

NAME_BYTES_MAX = 255
"""Maximum length of the names of groups and clients that use iterators; every iterator contains both."""

MEMBER_PREFIX = "iterators/"
"""Prefix of the member ids of iterator clients, so that they cannot collide with other members by accident."""

CLOCK_TOLERANCE_MS = 5_000
"""Tolerated difference between the wall clocks of two brokers. A larger one makes iterators expire too early or too
late."""


def member_id(client_id: str) -> str:
    return MEMBER_PREFIX + client_id


class Iterator(Struct, frozen=True):
    """The right of one client to read up to `messages_max` messages of a partition for its group, starting at
    `offset`."""

    group_id: str
    client_id: str
    topic: str
    topic_id: TopicIdBytes
    """The 16 bytes of the UUID."""
    partition: int
    offset: Offset
    """An offset, or BEGINNING or END."""
    messages_max: int
    generation: int
    """The group's generation when the iterator was issued."""
    life: int
    """Random number, drawn for the first iterator of the partition in this group. It distinguishes the group from an
    earlier group of the same name."""
    issue: int
    """Number of this iterator among those of the partition with the same `life`."""
    expires_ms: int
    """Expiry time by the wall clock of the issuing broker."""


class IteratorNotice(NamedTuple):
    """A one-way message from the coordinator to the server of a partition. The server ignores notices that are older
    than what it already knows."""

    group_id: str
    life: int
    topic_id: TopicIdBytes
    partition: int
    generation: int
    """The group's latest generation."""
    issue: int = 0
    """Number of the iterator that was issued in this generation; 0 for none."""
    left_ms: int = 0
    """Remaining time in flight."""


def told_of(iterator: Iterator, left_ms: int) -> IteratorNotice:
    """Returns the notice that reports an issued iterator."""
    return IteratorNotice(
        iterator.group_id,
        iterator.life,
        iterator.topic_id,
        iterator.partition,
        iterator.generation,
        iterator.issue,
        left_ms,
    )
