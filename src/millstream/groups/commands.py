"""Defines the commands that groups execute, independent of protocol versions."""

from typing import NamedTuple

from msgspec import Struct

from millstream.groups.iterators.iterator import Iterator
from millstream.model.ids import LeaderEpoch, Offset, TopicIdBytes


class OfferedProtocol(NamedTuple):
    """An assignor that a member supports, and the metadata that the member sends to this assignor."""

    name: str
    metadata: bytes


class JoinGroup(Struct, frozen=True):
    """JoinGroup. The group answers when all members have joined, or with an error."""

    group_id: str
    member_id: str
    """Empty if the member has no id yet: the group then generates one."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[OfferedProtocol, ...]
    knows_member_id_required: bool
    """True if the version knows MEMBER_ID_REQUIRED (from 4): a new dynamic member first gets its id, and joins again
    with it."""
    can_skip_assignment: bool
    """True if the version knows SkipAssignment (from 9): a static leader that returns can be told to keep the
    assignment."""


class AssignedBytes(NamedTuple):
    member_id: str
    assignment: bytes


class SyncGroup(Struct, frozen=True):
    """SyncGroup. The group answers when the leader has sent the assignment."""

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
    """Identifies a member by its member id, or, if that is empty, by its instance id."""

    member_id: str
    instance_id: str | None


class LeaveGroup(Struct, frozen=True):
    group_id: str
    members: tuple[LeavingMember, ...]


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str


class CommitOffsets(Struct, frozen=True):
    group_id: str
    generation: int
    """Generation or member epoch; -1 with an empty member id for a commit by a client that is not a member."""
    member_id: str
    instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    knows_stale_epoch: bool = True
    """True if the version knows STALE_MEMBER_EPOCH (from 9). Members that use the consumer protocol need such a
    version."""

    @property
    def is_from_outside(self) -> bool:
        """True if the client is not a member, as tools that reset offsets."""
        return self.generation < 0 and not self.member_id


class FetchOffsets(Struct, frozen=True):
    group_id: str
    partitions: tuple[tuple[str, int], ...] | None
    """Topic and partition of each requested offset; None requests all committed offsets of the group."""
    member_id: str | None = None
    member_epoch: int = -1
    """Checked only together with `member_id` (versions from 9): the answer is an error unless this is the member's
    epoch."""


class DeleteOffsets(Struct, frozen=True):
    group_id: str
    partitions: tuple[tuple[str, int], ...]


class DeleteGroup(Struct, frozen=True):
    group_id: str


class DescribeGroup(Struct, frozen=True):
    """DescribeGroups, for one classic group."""

    group_id: str


class ListGroups(Struct, frozen=True):
    """Lists all groups of one shard. An empty filter matches every group; filters ignore case."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class TopicsDeleted(Struct, frozen=True):
    """Reports deleted topics, whose committed offsets are to be removed. This command has no answer."""

    names: tuple[str, ...]


class OwnedPartitions(NamedTuple):
    topic_id: TopicIdBytes
    """The 16 bytes that records contain."""
    partitions: tuple[int, ...]


class ConsumerHeartbeat(Struct, frozen=True):
    """ConsumerGroupHeartbeat: joins, stays in the group, changes the subscription, or leaves."""

    group_id: str
    member_id: str
    member_epoch: int
    """0 joins, -1 leaves, -2 leaves temporarily (static members only)."""
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    """-1: unchanged."""
    subscribed_topics: tuple[str, ...] | None
    """None: unchanged."""
    subscribed_regex: str | None
    """None: unchanged; empty: no expression."""
    server_assignor: str | None
    owned: tuple[OwnedPartitions, ...] | None
    """Partitions that the member still owns. None: unchanged."""
    client_id: str
    client_host: str
    makes_member_id: bool = False
    """True if the broker generates the id of a member that joins without one (version 0)."""


class WatchMember(Struct, frozen=True):
    """WatchMember: answered when a heartbeat of the member would change its partitions."""

    group_id: str
    member_id: str


class DescribeConsumerGroup(Struct, frozen=True):
    """ConsumerGroupDescribe, for one group of the consumer protocol."""

    group_id: str


class IteratorJoin(Struct, frozen=True):
    """IteratorJoin: an iterator client joins a group, or confirms its membership."""

    group_id: str
    client_id: str
    software: str
    """The name that the client's program reports."""
    host: str


class IteratorHeartbeat(Struct, frozen=True):
    """IteratorHeartbeat: the client is alive."""

    group_id: str
    client_id: str


class IteratorLeave(Struct, frozen=True):
    """IteratorLeave: the client leaves, and other members may get its partitions."""

    group_id: str
    client_id: str


class GetIterator(Struct, frozen=True):
    """GetIterator. The first request of a client for a topic subscribes the client to that topic and starts a
    rebalance."""

    group_id: str
    client_id: str
    topic: str
    partition: int
    messages_max: int
    in_flight_ms: int
    """-1: the broker's default."""
    start: Offset
    """Start position if the group has no committed offset: BEGINNING or END."""


class ListIterators(Struct, frozen=True):
    """Lists the iterators of one client or of all clients."""

    group_id: str
    client_id: str | None
    """None: iterators of all clients."""


class CommitIterator(Struct, frozen=True):
    """CommitIterator: commits the first `count` messages of the iterator. The iterator's signature has been
    verified."""

    group_id: str
    client_id: str
    iterator: Iterator
    count: int
    """-1 commits the messages that are recorded as delivered."""


class DeliverIterator(Struct, frozen=True):
    """DeliverIterator: the client has delivered the first `count` messages of the iterator. The iterator's signature
    has been verified."""

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
    | TopicsDeleted
    | ConsumerHeartbeat
    | WatchMember
    | DescribeConsumerGroup
    | IteratorCommand
)
