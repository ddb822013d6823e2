"""Defines the state of a member of the consumer protocol: its subscription and its assignment, each one record of the
log."""

from enum import IntEnum

from msgspec import Struct, field

from millstream.groups.commands import OfferedProtocol
from millstream.groups.consumer.assignors import Assignment
from millstream.groups.size_limits import protocols_bytes, text_bytes

AWAY_EPOCH = -2
"""The epoch of a static member that left temporarily. Its partitions stay reserved until it returns."""


class MemberState(IntEnum):
    """Kafka's numbers for the states, which records contain."""

    STABLE = 0
    """The member has its full target assignment."""
    UNREVOKED = 1
    """The member must revoke partitions before it can advance to the next epoch."""
    UNRELEASED = 2
    """The member waits for partitions that other members still have to revoke."""


class ClassicTerms(Struct, frozen=True):
    """The session timeout and the protocols with which a classic member joined."""

    session_timeout_ms: int
    protocols: tuple[OfferedProtocol, ...]


class MemberSubscription(Struct, frozen=True):
    """The data that a member sent about itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """Sorted, without duplicates."""
    regex: str = ""
    """Empty: no expression."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicTerms | None = None
    """Set only if the member uses the classic protocol."""

    @property
    def told_bytes(self) -> int:
        """Size of this data, without the member's id."""
        names = text_bytes(self.instance_id, self.rack_id, self.client_id, self.client_host, self.regex, self.assignor)
        return names + text_bytes(*self.topics) + (protocols_bytes(self.classic.protocols) if self.classic else 0)


class MemberAssignment(Struct, frozen=True):
    """The partitions of a member at an epoch. A partition is `assigned` to or `revoking` from at most one member."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)
    """Partitions that the member was asked to revoke and has not confirmed yet."""

    @property
    def held(self) -> Assignment:
        """All partitions that no other member may have."""
        numbers = {
            topic_id: self.assigned.get(topic_id, frozenset()) | each for topic_id, each in self.revoking.items()
        }
        return {**self.assigned, **numbers}


NEW_SUBSCRIPTION = MemberSubscription()
NO_HOLDING = MemberAssignment()
