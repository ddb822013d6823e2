"""Groups as a coordinator describes them, as plain values."""

from typing import NamedTuple
from uuid import UUID

from millstream.model.names import TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"


class GroupListing(NamedTuple):
    """A group in the list. `kind` is CLASSIC, CONSUMER or another; state and kind are empty where an old broker
    does not tell."""

    group_id: str
    kind: str
    protocol_type: str
    state: str


class GroupMember(NamedTuple):
    """`epoch` and `topics` are the newer protocol's; in a classic group they are -1 and what the assignment shows."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    epoch: int
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group of either kind. `epoch` is -1 for a classic one, which does not tell its generation."""

    group_id: str
    kind: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int
    members: tuple[GroupMember, ...]


class CommittedOffset(NamedTuple):
    """Where a group goes on: the offset after the last message it has finished."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class HeartbeatRequest(NamedTuple):
    """What a member of the newer protocol tells in a heartbeat; None and -1 stand for what has not changed.

    Epoch 0 joins, -1 leaves, -2 leaves for a while (static members).
    """

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    assignor: str | None = None
    owned: tuple[tuple[UUID, int], ...] | None = None


class HeartbeatResponse(NamedTuple):
    """What the coordinator wants: `assigned` is None where that has not changed."""

    epoch: int
    interval_ms: int
    assigned: frozenset[tuple[UUID, int]] | None


class MemberRef(NamedTuple):
    """In whose name offsets are fetched or committed; NOBODY is somebody from outside."""

    member_id: str = ""
    epoch: int = -1
    instance_id: str | None = None


NOBODY = MemberRef()
