"""Defines the answers of groups, independent of protocol versions."""

from typing import NamedTuple

from msgspec import Struct, field

from millstream.groups.iterators.iterator import Iterator
from millstream.model.errors import ErrorCode
from millstream.model.ids import LeaderEpoch, Offset, TopicIdBytes

OK = ErrorCode.NONE


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResponse(Struct, frozen=True):
    """The answer to JoinGroup. Only the leader, which assigns the partitions, gets `members`."""

    error: ErrorCode = OK
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()


class SyncResponse(Struct, frozen=True):
    error: ErrorCode = OK
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class EmptyResponse(Struct, frozen=True):
    """Success or an error: the answer to heartbeats, to the deletion of a group, and to commands without an answer of
    their own."""

    error: ErrorCode = OK
    detail: str = ""


class LeftMember(NamedTuple):
    member_id: str
    instance_id: str | None
    error: ErrorCode


class LeaveResponse(Struct, frozen=True):
    error: ErrorCode = OK
    members: tuple[LeftMember, ...] = ()


class PartitionErrors(Struct, frozen=True):
    """The answer to commits and to the deletion of offsets: one error for all partitions, or errors of single
    partitions. Partitions that are not listed succeeded."""

    error: ErrorCode = OK
    errors: dict[tuple[str, int], ErrorCode] = field(default_factory=dict)
    moved_back: int = 0
    """Number of committed offsets that a client outside of the group has set to an earlier one."""


class CommittedOffset(NamedTuple):
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    committed_ms: int


class OffsetsResponse(Struct, frozen=True):
    """The answer to FetchOffsets. Partitions without an offset are not listed."""

    error: ErrorCode = OK
    offsets: dict[tuple[str, int], CommittedOffset] = field(default_factory=dict)


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(Struct, frozen=True):
    """Description of a classic group. The state is one of Empty, PreparingRebalance, CompletingRebalance, Stable,
    Dead."""

    error: ErrorCode = OK
    detail: str = ""
    group_id: str = ""
    state: str = "Dead"
    protocol_type: str = ""
    protocol: str = ""
    generation: int = -1
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str
    """`classic` or `consumer`."""


class GroupList(Struct, frozen=True):
    groups: tuple[ListedGroup, ...] = ()
    error: ErrorCode = OK


class AssignedTopic(NamedTuple):
    topic_id: TopicIdBytes
    topic: str
    partitions: tuple[int, ...]


class ConsumerHeartbeatResponse(Struct, frozen=True):
    """The answer to a heartbeat of the consumer protocol. `assignment` is None if the member already knows it."""

    error: ErrorCode = OK
    detail: str = ""
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[AssignedTopic, ...] | None = None


class DescribedConsumer(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...]
    subscribed_regex: str | None
    assignment: tuple[AssignedTopic, ...]
    target: tuple[AssignedTopic, ...]
    is_classic: bool


class ConsumerGroupDescription(Struct, frozen=True):
    """Description of a group of the consumer protocol. States: Empty, Assigning, Reconciling, Stable, Dead."""

    error: ErrorCode = OK
    detail: str = ""
    group_id: str = ""
    state: str = "Dead"
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


class IteratorClientResponse(Struct, frozen=True):
    """The answer to an iterator client that joins, sends a heartbeat or leaves."""

    error: ErrorCode = OK
    detail: str = ""
    generation: int = -1
    is_settled: bool = False
    """True if the client has its full assignment; if False, it should send the next heartbeat soon."""
    heartbeat_interval_ms: int = 0
    session_timeout_ms: int = 0
    assignment: tuple[AssignedTopic, ...] = ()
    """Partitions of which the client may get iterators."""


class GivenIterator(NamedTuple):
    """An issued iterator, as a client gets it."""

    iterator: Iterator
    left_ms: int
    """Remaining time in flight."""
    delivered: int = 0
    """Number of its messages that are recorded as delivered."""


class IteratorResponse(Struct, frozen=True):
    """The answer to GetIterator, to DeliverIterator, and to a commit. After a commit there may be no next iterator."""

    error: ErrorCode = OK
    detail: str = ""
    given: GivenIterator | None = None
    position: Offset = Offset(-1)
    """The group's new position, after a commit that stored one."""


class IteratorList(Struct, frozen=True):
    error: ErrorCode = OK
    detail: str = ""
    given: tuple[GivenIterator, ...] = ()


Answer = (
    JoinResponse
    | SyncResponse
    | EmptyResponse
    | LeaveResponse
    | PartitionErrors
    | OffsetsResponse
    | GroupDescription
    | GroupList
    | ConsumerHeartbeatResponse
    | ConsumerGroupDescription
    | IteratorClientResponse
    | IteratorResponse
    | IteratorList
)
