"""Tests the tables of groups on every catalog: writing, writing twice, and clearing."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from millstream.catalog.projection import GroupRow, GroupTables, MemberRow, OffsetPlace, OffsetRow, ShardRows
from millstream.catalog.projection_memory import MemoryGroupTables
from millstream.catalog.sqlite import SqliteCatalog
from millstream.model.ids import LeaderEpoch, Offset, TopicId
from millstream.model.names import PartitionKey
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy
from millstream.seams.workers import ThreadWorkers

KEY = PartitionKey(TopicId(UUID(int=9)), 3)
MEMBER = MemberRow("member-1", None, "client", "/host", {"events": (0, 1)})
GROUP = GroupRow("classic", "Stable", "consumer", "range", 7, (MEMBER,))
PLACE = OffsetPlace("readers", "events", 0)
OFFSET = OffsetRow(Offset(42), LeaderEpoch(3), "note", 1_700_000_000_000)

TableStory = Callable[[GroupTables, Callable[[], "Content"]], Awaitable[None]]
Content = tuple[dict[str, tuple[object, ...]], dict[tuple[str, str, int], int]]
"""Groups with the number of their members, and offsets."""


def in_memory(story: TableStory, _: Path) -> None:
    tables = MemoryGroupTables()

    def content() -> Content:
        groups: dict[str, tuple[object, ...]] = {
            name: (*row[:5], len(row.members)) for name, row in tables.groups.items()
        }
        return groups, {(*place,): row.offset for place, row in tables.offsets.items()}

    async def run() -> None:
        await story(tables, content)

    asyncio.run(run())


def in_sqlite(story: TableStory, directory: Path) -> None:
    path = directory / "catalog.db"

    def content() -> Content:
        reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            groups = {row[0]: row[1:] for row in reader.execute("SELECT * FROM consumer_groups")}
            members = reader.execute("SELECT group_id, count(*) FROM group_members GROUP BY group_id").fetchall()
            assert dict(members) == {name: row[-1] for name, row in groups.items() if row[-1]}
            offsets = reader.execute("SELECT group_id, topic, partition, committed_offset FROM offset_commits")
            return groups, {row[:3]: row[3] for row in offsets}
        finally:
            reader.close()

    async def run() -> None:
        workers = ThreadWorkers(2, "catalog")
        catalog = SqliteCatalog(path, workers=workers, clock=SystemClock(), entropy=SystemEntropy())
        try:
            await catalog.open()
            await story(catalog.group_tables, content)
        finally:
            await catalog.close()
            workers.close()

    asyncio.run(run())


BOTH = pytest.mark.parametrize("tell", [in_memory, in_sqlite])


@BOTH
def test_changes_and_the_projected_offset_are_stored(tell: Callable[[TableStory, Path], None], tmp_path: Path) -> None:
    async def story(tables: GroupTables, content: Callable[[], Content]) -> None:
        assert await tables.projected() == {}
        rows = ShardRows(KEY, Offset(17), {"readers": GROUP}, {PLACE: OFFSET})
        for _ in range(2):
            await tables.project([rows])
            assert content() == (
                {"readers": ("classic", "Stable", "consumer", "range", 7, 1)},
                {("readers", "events", 0): 42},
            )
        assert await tables.projected() == {KEY: 17}

    tell(story, tmp_path)


@BOTH
def test_rows_of_removed_groups_and_offsets_are_deleted(
    tell: Callable[[TableStory, Path], None], tmp_path: Path
) -> None:
    async def story(tables: GroupTables, content: Callable[[], Content]) -> None:
        await tables.project([ShardRows(KEY, Offset(17), {"readers": GROUP}, {PLACE: OFFSET})])
        await tables.project([ShardRows(KEY, Offset(18), {"readers": GROUP._replace(members=(), state="Empty")})])
        assert content()[0] == {"readers": ("classic", "Empty", "consumer", "range", 7, 0)}
        await tables.project(
            [ShardRows(KEY, Offset(19), {"readers": None}, {PLACE: None, OffsetPlace("no", "such", 1): None})]
        )
        assert content() == ({}, {})
        assert await tables.projected() == {KEY: 19}

    tell(story, tmp_path)


@BOTH
def test_clear_removes_all_rows_and_projected_offsets(tell: Callable[[TableStory, Path], None], tmp_path: Path) -> None:
    async def story(tables: GroupTables, content: Callable[[], Content]) -> None:
        await tables.project([ShardRows(KEY, Offset(17), {"readers": GROUP}, {PLACE: OFFSET})])
        await tables.clear()
        assert content() == ({}, {})
        assert await tables.projected() == {}

    tell(story, tmp_path)


def test_the_rows_in_sqlite_are_human_readable(tmp_path: Path) -> None:
    async def story(tables: GroupTables, _: Callable[[], Content]) -> None:
        unknown = MemberRow("member-2", "node-2", "client", "/host", None)
        group = GROUP._replace(members=(MEMBER, unknown))
        await tables.project([ShardRows(KEY, Offset(17), {"readers": group}, {PLACE: OFFSET})])
        reader = sqlite3.connect(f"file:{tmp_path / 'catalog.db'}?mode=ro", uri=True)
        try:
            members = reader.execute("SELECT instance_id, assignment FROM group_members ORDER BY member_id").fetchall()
            assert members == [(None, json.dumps({"events": [0, 1]})), ("node-2", None)]
            offset = reader.execute("SELECT leader_epoch, metadata, committed FROM offset_commits").fetchall()
            assert offset == [(3, "note", "2023-11-14 22:13:20.000Z")]
        finally:
            reader.close()

    in_sqlite(story, tmp_path)
