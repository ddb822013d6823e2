"""Implements the tables of groups in memory, for tests and simulation."""

import asyncio
from collections.abc import Sequence

from millstream.catalog.projection import GroupRow, OffsetPlace, OffsetRow, ShardRows
from millstream.model.ids import Offset
from millstream.model.names import PartitionKey


class MemoryGroupTables:
    def __init__(self) -> None:
        self.groups: dict[str, GroupRow] = {}
        self.offsets: dict[OffsetPlace, OffsetRow] = {}
        self._projected: dict[PartitionKey, Offset] = {}

    async def projected(self) -> dict[PartitionKey, Offset]:
        await asyncio.sleep(0)
        return dict(self._projected)

    async def clear(self) -> None:
        self.groups.clear()
        self.offsets.clear()
        self._projected.clear()
        await asyncio.sleep(0)

    async def project(self, rows: Sequence[ShardRows]) -> None:
        for shard in rows:
            for group_id, group in shard.groups.items():
                if group is None:
                    self.groups.pop(group_id, None)
                else:
                    self.groups[group_id] = group
            for place, offset in shard.offsets.items():
                if offset is None:
                    self.offsets.pop(place, None)
                else:
                    self.offsets[place] = offset
            self._projected[shard.key] = shard.offset
        await asyncio.sleep(0)
