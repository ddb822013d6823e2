"""Names the timers of groups."""

from enum import Enum, auto

from msgspec import Struct


class TimerKind(Enum):
    """The purpose of a timer; each group protocol uses its own subset."""

    EXPIRY = auto()
    """Check a group for expired offsets, and remove the group if it is empty."""
    SESSION = auto()
    """The session timeout of a member has passed."""
    PENDING = auto()
    """A member got its id but did not join with it in time."""
    JOIN = auto()
    """The time for members to join has passed."""
    SYNC = auto()
    """The time for members to fetch their assignment has passed."""
    REGEX = auto()
    """Continue a long search for the topics that match an expression."""
    REBALANCE = auto()
    """A member of the consumer protocol did not revoke its partitions in time."""
    ASSIGN = auto()
    """A group of the consumer protocol may compute its next assignment."""
    GONE = auto()
    """Offsets of deleted topics remain to be removed. Belongs to no group."""


class Timer(Struct, frozen=True):
    kind: TimerKind
    group_id: str
    member_id: str = ""
