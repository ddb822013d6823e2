"""Who decides what a consumer reads: it does itself (`standalone`), or its group does (`membership`)."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from millstream.model.names import TopicPartition


class ChangeKind(Enum):
    """What happened to partitions."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Change(NamedTuple):
    """Partitions that came or go. Those that are revoked are still the consumer's until it has been told."""

    kind: ChangeKind
    places: tuple[TopicPartition, ...]


class PartitionSource(Protocol):
    async def start(self, timeout_s: float) -> None:
        """Begin; what is refused is raised."""
        ...

    @property
    def is_changed(self) -> bool:
        """Whether there is something to follow."""
        ...

    async def follow(self) -> Change | None:
        """Read what is to be read, and no more; a change that somebody wants to be told of. Called again until None."""
        ...

    def settle(self) -> None:
        """Begin, in the background, what is due: to commit what is finished, for example. What failed of it before, and
        will not pass, is raised."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be read, nor will be."""
        ...

    @property
    def due_in_s(self) -> float | None:
        """When `follow` and `settle` have something to do without being woken; None for never."""
        ...

    @property
    def calls_in_s(self) -> float | None:
        """When the caller should come by, though it has messages left; None for no need."""
        ...

    def caller_is_busy(self, told: Change | None) -> None:
        """The caller has something to do, or is being told of a change, and will come back."""
        ...

    def caller_is_back(self) -> None: ...

    def finish(self, offsets: Mapping[TopicPartition, int]) -> None:
        """All before these offsets is finished."""
        ...

    async def close(self) -> None: ...
