"""What can be asked of groups, free of any protocol version."""

from typing import NamedTuple

from msgspec import Struct

from millstream.groups.iterators.iterator import Iterator


class OfferedProtocol(NamedTuple):
    """An assignor that a member can work with, and what the member tells it."""

    name: str
    metadata: bytes


class JoinGroup(Struct, frozen=True):
    """JoinGroup. The answer comes when the group has gathered, or failed to."""

    group_id: str
    member_id: str
    """Empty: the group is to give one."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[OfferedProtocol, ...]
    knows_member_id_required: bool
    """Whether a new dynamic member is first told its id, and comes again with it (versions from 4)."""
    can_skip_assignment: bool
    """Whether a static leader that returns may be told that the assignment stays as it was (versions from 9)."""


class AssignedBytes(NamedTuple):
    member_id: str
    assignment: bytes


class SyncGroup(Struct, frozen=True):
    """SyncGroup. The answer comes when the leader has said who gets what."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[AssignedBytes, ...]


class Heartbeat(Struct, frozen=True):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class LeavingMember(NamedTuple):
    """By its member id, or with an empty one by its instance id."""

    member_id: str
    instance_id: str | None


class LeaveGroup(Struct, frozen=True):
    group_id: str
    members: tuple[LeavingMember, ...]


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class CommitOffsets(Struct, frozen=True):
    group_id: str
    generation: int
    """Generation or member epoch; -1 with an empty member id: from outside of the group's membership."""
    member_id: str
    instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    knows_stale_epoch: bool = True
    """Whether the version can be told STALE_MEMBER_EPOCH (from 9); members of the new protocol may use no other."""


class FetchOffsets(Struct, frozen=True):
    group_id: str
    partitions: tuple[tuple[str, int], ...] | None
    """Topic and partition; None: all that have an offset."""
    member_id: str | None = None
    member_epoch: int = -1
    """With a member id: answered only if it is this member's epoch (versions from 9)."""


class DeleteOffsets(Struct, frozen=True):
    group_id: str
    partitions: tuple[tuple[str, int], ...]


class DeleteGroup(Struct, frozen=True):
    group_id: str


class DescribeGroup(Struct, frozen=True):
    """DescribeGroups, for one group."""

    group_id: str


class ListGroups(Struct, frozen=True):
    """All groups of this part of the state; empty filters let everything through, and know no case."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class OwnedPartitions(NamedTuple):
    topic_id: bytes
    """16 bytes, as in the records."""
    partitions: tuple[int, ...]


class ConsumerHeartbeat(Struct, frozen=True):
    """ConsumerGroupHeartbeat: join, stay, change the subscription, and leave, all in one."""

    group_id: str
    member_id: str
    member_epoch: int
    """0 joins, -1 leaves, -2 leaves for a while (static members)."""
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    """-1: as before."""
    subscribed_topics: tuple[str, ...] | None
    """None: as before."""
    subscribed_regex: str | None
    """None: as before; empty: none."""
    server_assignor: str | None
    owned: tuple[OwnedPartitions, ...] | None
    """None: as before."""
    client_id: str
    client_host: str
    makes_member_id: bool = False
    """Whether the broker gives the id to a member that joins without one (version 0)."""


class DescribeConsumerGroup(Struct, frozen=True):
    """ConsumerGroupDescribe, for one group."""

    group_id: str


class IteratorJoin(Struct, frozen=True):
    """IteratorJoin: a client of iterators becomes a member of a group, or says that it still is."""

    group_id: str
    client_id: str
    software: str
    """What the client's program calls itself."""
    host: str


class IteratorHeartbeat(Struct, frozen=True):
    """IteratorHeartbeat: the client is alive."""

    group_id: str
    client_id: str


class IteratorLeave(Struct, frozen=True):
    """IteratorLeave: what the client had is for the others."""

    group_id: str
    client_id: str


class GetIterator(Struct, frozen=True):
    """GetIterator. The first one for a topic makes the client a reader of it, which starts a rebalance."""

    group_id: str
    client_id: str
    topic: str
    partition: int
    messages_max: int
    in_flight_ms: int
    """-1: as long as the broker says."""
    start: int
    """Where to begin when the group has committed nothing: BEGINNING or END."""


class ListIterators(Struct, frozen=True):
    """ListIterators."""

    group_id: str
    client_id: str | None
    """None: those of all clients."""


class CommitIterator(Struct, frozen=True):
    """The client has read `count` messages of the iterator, which is known to have been signed by a broker."""

    group_id: str
    client_id: str
    iterator: Iterator
    count: int
    """-1: what was handed on of it."""


class DeliverIterator(Struct, frozen=True):
    """DeliverIterator: the client has handed on `count` messages of the iterator, which a broker is known to have
    signed."""

    group_id: str
    client_id: str
    iterator: Iterator
    count: int


IteratorCommand = (
    IteratorJoin | IteratorHeartbeat | IteratorLeave | GetIterator | ListIterators | CommitIterator | DeliverIterator
)

Command = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | DeleteGroup
    | DescribeGroup
    | ListGroups
    | ConsumerHeartbeat
    | DescribeConsumerGroup
    | IteratorCommand
)
