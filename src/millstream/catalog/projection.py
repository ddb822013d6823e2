"""Defines the tables of groups and committed offsets, a queryable copy of the internal topic.

The log is authoritative, not these tables. The broker writes them shortly after the log, and reads back only how far
they have followed it. Each write is one transaction. It contains, for each affected partition of the internal topic,
the offset before which the tables are complete. So after a crash only the records from this offset on must be written
again, and writing them twice is harmless.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from millstream.model.ids import LeaderEpoch, Offset
from millstream.model.names import PartitionKey


class MemberRow(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: Mapping[str, Sequence[int]] | None
    """Partitions by topic; None if only the members can decode it."""


class GroupRow(NamedTuple):
    type: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int
    """Generation of a classic group, or epoch of a group of the consumer protocol."""
    members: tuple[MemberRow, ...]


class OffsetRow(NamedTuple):
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    committed_ms: int


class OffsetPlace(NamedTuple):
    """The group and the partition of a committed offset."""

    group_id: str
    topic: str
    partition: int


class ShardRows(Struct):
    """The changes of one partition of the internal topic. None in place of a row removes it."""

    key: PartitionKey
    offset: Offset
    """The tables contain everything before this offset once these rows are written."""
    groups: dict[str, GroupRow | None] = field(default_factory=dict)
    offsets: dict[OffsetPlace, OffsetRow | None] = field(default_factory=dict)


class GroupTables(Protocol):
    """The tables of groups. Every call may raise KAFKA_STORAGE_ERROR; then nothing was changed."""

    async def projected(self) -> dict[PartitionKey, Offset]:
        """Returns the offset up to which the tables are complete, for each known partition of the internal topic."""
        ...

    async def clear(self) -> None:
        """Removes all rows, because they belong to another log than the current one."""
        ...

    async def project(self, rows: Sequence[ShardRows]) -> None:
        """Writes these changes in one transaction."""
        ...
