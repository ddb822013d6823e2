"""What a consumer is doing, and why it waits: for people and for the programs that watch programs."""

from dataclasses import dataclass
from enum import Enum

from millstream.model.names import TopicPartition


class ConsumerActivity(Enum):
    """One thing at a time, the one that explains most."""

    STARTING = "not started yet"
    JOINING = "joining the group"
    WAITING_FOR_PARTITIONS = "waiting for the group to give it partitions"
    UNREACHABLE = "waiting for a broker that cannot be reached, or refuses"
    IDLE = "waiting for the caller to ask"
    IN_HANDLER = "waiting for the caller, who has messages"
    IN_CALLBACK = "waiting for the caller, who is being told of a change"
    PAUSED = "all its partitions are paused"
    FETCHING = "fetching messages"
    NO_DATA = "waiting for messages: everything there is has been handed out"
    FINISHED = "everything up to its end has been handed out"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Health:
    """A consumer at this moment."""

    doing: ConsumerActivity
    since_s: float
    """For how long it has been doing that, in seconds."""
    reason: str = ""
    """The error behind it, or the topics that are not there, where there are such."""
    assignment: tuple[TopicPartition, ...] = ()
    """The partitions it reads."""
    buffered_bytes: int = 0
    """Fetched, and not handed out yet."""
    heartbeat_age_s: float | None = None
    """How long ago the group's coordinator was last heard of; None without a group."""
    is_given_up: bool = False
    """Whether the group has gone on without it, because the caller gave no sign of life for too long."""

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"{self.doing.value}, for {self.since_s:.1f} s{why}"
