"""Defines groups, members and committed offsets as plain values."""

import re
from typing import NamedTuple

from millstream.model.ids import TopicId
from millstream.model.names import TopicPartition

_GENERATED = re.compile(r"(.*-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[\w-]{22}")
"""A member id with a random UUID: as text, possibly after the client id, or in Kafka's base64."""

CLASSIC = "classic"
CONSUMER = "consumer"


class GroupListing(NamedTuple):
    """A group in a listing. `kind` is "classic", "consumer" or another. State and kind are empty for old brokers."""

    group_id: str
    kind: str
    protocol_type: str
    state: str


class GroupMember(NamedTuple):
    """A member of a group. In a classic group `epoch` is -1 and `topics` are the topics of its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    epoch: int
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]

    @property
    def label(self) -> str:
        """The instance id, or else the client id and the member id. A generated member id is cut to its end."""
        end = self.member_id[-8:] if _GENERATED.fullmatch(self.member_id) else self.member_id
        return self.instance_id or f"{self.client_id or 'unnamed'} {end}".strip()

    @property
    def host(self) -> str:
        """The host of the member's client, without the leading slash of Kafka's format."""
        return self.client_host.removeprefix("/")


class GroupDescription(NamedTuple):
    """A group of either kind. `epoch` is -1 for a classic group, whose generation is not reported."""

    group_id: str
    kind: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int
    members: tuple[GroupMember, ...]


class CommittedOffset(NamedTuple):
    """The offset at which a group continues in a partition: one after the last finished message."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupLag(NamedTuple):
    """A group's progress in one partition. `committed` is None if the group has committed nothing in it.

    `beginning` is the log start offset and `end` the log end offset. They and `lag` are None if the partition was
    deleted or, with `is_damaged`, if its data is damaged. `lag` is the number of offsets that the group has not
    finished; a partition without a committed offset counts from its beginning, where a group starts by default. A
    consumer with another start position commits that position when it starts to read. With `auto_commit=None` it does
    not.
    """

    committed: CommittedOffset | None
    beginning: int | None
    end: int | None
    lag: int | None
    is_damaged: bool = False


class HeartbeatRequest(NamedTuple):
    """A heartbeat of the consumer protocol. None and -1 mean unchanged.

    Epoch 0 joins the group, -1 leaves it, and -2 leaves it temporarily (static members).
    """

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    assignor: str | None = None
    owned: tuple[tuple[TopicId, int], ...] | None = None
    topic_regex: str | None = None


class HeartbeatResponse(NamedTuple):
    """The coordinator's response to a heartbeat. `assigned` is None if the assignment is unchanged."""

    epoch: int
    interval_ms: int
    assigned: frozenset[tuple[TopicId, int]] | None


class MemberRef(NamedTuple):
    """The member for which offsets are fetched or committed; NOBODY is a client that is not a member."""

    member_id: str = ""
    epoch: int = -1
    instance_id: str | None = None


NOBODY = MemberRef()
