"""Describes a consumer's current activity and the reason why it waits, for people and for monitoring."""

from dataclasses import dataclass
from enum import Enum

from millstream.model.names import TopicPartition


class ConsumerActivity(Enum):
    """The current activity of a consumer. If several apply, the one that best explains a wait is reported."""

    STARTING = "not started yet"
    JOINING = "joining the group"
    WAITING_FOR_PARTITIONS = "waiting for the group to give it partitions"
    UNREACHABLE = "waiting for a broker that cannot be reached, or refuses"
    IDLE = "waiting for the caller to ask"
    IN_HANDLER = "waiting for the caller, who has messages"
    IN_CALLBACK = "waiting for the caller, who is being told of a change"
    PAUSED = "all its partitions are paused"
    FETCHING = "fetching messages"
    NO_DATA = "waiting for messages: all messages have been delivered"
    FINISHED = "all messages up to the stop position have been delivered"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Health:
    """A snapshot of a consumer's state."""

    doing: ConsumerActivity
    since_s: float
    """Duration of the current activity in seconds."""
    reason: str = ""
    """The error that causes the wait, or the names of missing topics; empty if there is none."""
    assignment: tuple[TopicPartition, ...] = ()
    """The partitions that the consumer reads."""
    buffered_bytes: int = 0
    """Bytes fetched and not delivered to the caller yet."""
    heartbeat_age_s: float | None = None
    """Seconds since the group's coordinator last answered a heartbeat; None without a group."""
    is_given_up: bool = False
    """True if the consumer left its group because the caller or a callback exceeded its timeout."""

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"{self.doing.value}, for {self.since_s:.1f} s{why}"
