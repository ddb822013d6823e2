"""What groups answer, free of any protocol version."""

from typing import NamedTuple

from msgspec import Struct, field

from millstream.groups.iterators.iterator import Iterator
from millstream.model.errors import ErrorCode

OK = ErrorCode.NONE


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResponse(Struct, frozen=True):
    """`members` are told to the leader only, which is to share out the partitions among them."""

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
    """Done, or why not: the answer to heartbeats, to the deletion of a group, and whatever has no other."""

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
    """The answer to commits and to the deletion of offsets: one error for all, or those of single partitions; a
    partition that is not named went well."""

    error: ErrorCode = OK
    errors: dict[tuple[str, int], ErrorCode] = field(default_factory=dict)


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int


class OffsetsResponse(Struct, frozen=True):
    """Partitions without an offset are not named."""

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
    """State is one of Empty, PreparingRebalance, CompletingRebalance, Stable, Dead."""

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
    topic_id: bytes
    topic: str
    partitions: tuple[int, ...]


class ConsumerHeartbeatResponse(Struct, frozen=True):
    """`assignment` is None when it is the one the member knows."""

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
    """State is one of Empty, Assigning, Reconciling, Stable, Dead."""

    error: ErrorCode = OK
    detail: str = ""
    group_id: str = ""
    state: str = "Dead"
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


class IteratorClientResponse(Struct, frozen=True):
    """What a client of iterators is told when it joins, beats or leaves."""

    error: ErrorCode = OK
    detail: str = ""
    generation: int = -1
    is_settled: bool = False
    """Whether it has what it is to have; otherwise it had better ask again soon."""
    heartbeat_interval_ms: int = 0
    session_timeout_ms: int = 0
    assignment: tuple[AssignedTopic, ...] = ()
    """What it may get iterators of."""


class GivenIterator(NamedTuple):
    iterator: Iterator
    left_ms: int
    """For how long it is in flight."""
    handed: int = 0
    """How many messages of it were handed on."""


class IteratorResponse(Struct, frozen=True):
    """The answer to GetIterator, to DeliverIterator, and to a commit, which may have no next one."""

    error: ErrorCode = OK
    detail: str = ""
    given: GivenIterator | None = None
    position: int = -1
    """Where the group goes on, after a commit that stored that."""


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
