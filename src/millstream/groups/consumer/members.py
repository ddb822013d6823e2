"""What a group knows of a member: what it told of itself, and what it has. Each is one record of the log."""

from enum import IntEnum

from msgspec import Struct, field

from millstream.groups.commands import OfferedProtocol
from millstream.groups.consumer.assignors import Assignment
from millstream.groups.size_limits import protocols_bytes, text_bytes

AWAY_EPOCH = -2
"""The epoch of a static member that has left for a while: what it holds waits for its return."""


class MemberState(IntEnum):
    """Kafka's numbers, as they are in the records."""

    STABLE = 0
    """It has what it is to have."""
    UNREVOKED = 1
    """It has to give something back before it may go on to the next epoch."""
    UNRELEASED = 2
    """It waits for something that others have to give back."""


class ClassicTerms(Struct, frozen=True):
    """How a member that speaks the classic protocol joined."""

    session_timeout_ms: int
    protocols: tuple[OfferedProtocol, ...]


class MemberSubscription(Struct, frozen=True):
    """What a member told of itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """Sorted, each once."""
    regex: str = ""
    """Empty: none."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicTerms | None = None
    """Only where the member speaks the classic protocol."""

    @property
    def told_bytes(self) -> int:
        """What it takes, the member's id aside."""
        names = text_bytes(self.instance_id, self.rack_id, self.client_id, self.client_host, self.regex, self.assignor)
        return names + text_bytes(*self.topics) + (protocols_bytes(self.classic.protocols) if self.classic else 0)


class MemberAssignment(Struct, frozen=True):
    """What a member has, at which epoch. No partition is `assigned` to or `revoking` from two members at once."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)
    """What it has been told to give back, and has not yet said to have given back."""

    @property
    def held(self) -> Assignment:
        """All that nobody else may have."""
        numbers = {
            topic_id: self.assigned.get(topic_id, frozenset()) | each for topic_id, each in self.revoking.items()
        }
        return {**self.assigned, **numbers}


NEW_SUBSCRIPTION = MemberSubscription()
NO_HOLDING = MemberAssignment()
