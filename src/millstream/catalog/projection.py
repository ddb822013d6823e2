"""The tables of groups and committed offsets: a copy of what the internal topic says, for people and programs to query.

Never the authority: the broker writes them a moment after the log and reads back only how far they are. Each write is
one transaction and names, for every part of the log that it tells of, the offset before which the tables have
everything; so after a crash only what lies behind it must be written again, and writing it twice does no harm.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from millstream.model.names import PartitionKey


class MemberRow(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: Mapping[str, Sequence[int]] | None
    """Partitions by topic; None where only the members themselves can read it."""


class GroupRow(NamedTuple):
    type: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int
    """Generation of a classic group, epoch of one of the new protocol."""
    members: tuple[MemberRow, ...]


class OffsetRow(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int


class OffsetPlace(NamedTuple):
    """What an offset is committed for."""

    group_id: str
    topic: str
    partition: int


class ShardRows(Struct):
    """What has changed in one partition of the internal topic; None instead of a row: it is gone."""

    key: PartitionKey
    offset: int
    """The tables then have everything before this offset."""
    groups: dict[str, GroupRow | None] = field(default_factory=dict)
    offsets: dict[OffsetPlace, OffsetRow | None] = field(default_factory=dict)


class GroupTables(Protocol):
    """Every call may raise KAFKA_STORAGE_ERROR; then nothing was changed."""

    async def projected(self) -> dict[PartitionKey, int]:
        """How far the tables are, for each partition of the internal topic that they know."""
        ...

    async def clear(self) -> None:
        """Forget everything: the tables tell of another log than the one that is there."""
        ...

    async def project(self, rows: Sequence[ShardRows]) -> None:
        """Write these changes, all or none."""
        ...
