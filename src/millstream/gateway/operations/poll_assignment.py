"""Tracks the partitions of a polling consumer and their lag, so that "no partitions" differs from "no messages".

The lag comes from the reads of the poll, which know the log end; it costs no request of its own.
"""

from collections.abc import Collection
from typing import NamedTuple

from millstream.model.names import TopicPartition


class AssignedPartition(NamedTuple):
    """A partition of a consumer. `lag` is the number of offsets from the end of the poll's messages to the log end.

    The lag is None if the poll did not read the partition.
    """

    where: TopicPartition
    lag: int | None


class PollAssignment:
    """The assignment during one poll."""

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = frozenset(topics)
        self._owned: tuple[TopicPartition, ...] = ()
        self._lags: dict[TopicPartition, int] = {}

    def assigned(self, owned: Collection[TopicPartition]) -> None:
        """The coordinator reported these partitions, which replace all earlier ones."""
        self._owned = tuple(sorted(where for where in owned if where.topic in self._topics))

    def read(self, where: TopicPartition, position: int, *, end: int) -> None:
        """The poll read the partition up to `position`, and its log ended at `end`."""
        self._lags[where] = max(0, end - position)

    @property
    def rows(self) -> tuple[AssignedPartition, ...]:
        """The partitions of the polled topics, in order."""
        return tuple(AssignedPartition(where, self._lags.get(where)) for where in self._owned)
