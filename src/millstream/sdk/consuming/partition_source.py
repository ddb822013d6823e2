"""Defines the source of a consumer's partitions: the consumer itself (`standalone`) or its group (`membership`)."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from millstream.model.names import TopicPartition


class ChangeKind(Enum):
    """The kind of an assignment change."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Change(NamedTuple):
    """Partitions that were assigned, revoked or lost. The consumer owns revoked ones until its callback returns."""

    kind: ChangeKind
    places: tuple[TopicPartition, ...]


class PartitionSource(Protocol):
    async def start(self, timeout_s: float) -> None:
        """Join the group or look up the partitions; raises if the broker refuses."""
        ...

    @property
    def is_changed(self) -> bool:
        """True if an assignment change must be applied with `follow`."""
        ...

    async def follow(self) -> Change | None:
        """Apply the assignment to the fetcher; return a change that has a callback, or None when nothing is left."""
        ...

    def settle(self) -> None:
        """Start due background work, such as committing finished offsets.

        Raises the error of earlier background work if a retry cannot fix it.
        """
        ...

    @property
    def is_over(self) -> bool:
        """True if every partition has been read up to its stop offset."""
        ...

    @property
    def due_in_s(self) -> float | None:
        """Seconds until `follow` or `settle` must run although nothing wakes the poll; None for never."""
        ...

    @property
    def calls_in_s(self) -> float | None:
        """Seconds until the caller must poll again to keep its partitions, even if it still has messages; None without
        such a limit."""
        ...

    def caller_is_busy(self, change: Change | None) -> None:
        """Note that a poll returned: the caller handles messages, or runs the callback for this change."""
        ...

    def caller_is_back(self) -> None:
        """Note that the caller polls again."""
        ...

    def finish(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Mark all messages before these offsets as finished."""
        ...

    async def close(self) -> None: ...
