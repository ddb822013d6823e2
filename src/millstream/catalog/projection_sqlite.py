"""Implements the tables of groups in the SQLite catalog."""

import json
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from millstream.catalog.catalog import readable_time
from millstream.catalog.projection import GroupRow, ShardRows
from millstream.model.ids import Offset, TopicId
from millstream.model.names import PartitionKey

T = TypeVar("T")


class InTransaction(Protocol):
    """Runs work on the catalog's connection, in a worker and as one transaction."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]: ...


class SqliteGroupTables:
    def __init__(self, in_transaction: InTransaction) -> None:
        self._in_transaction = in_transaction

    async def projected(self) -> dict[PartitionKey, Offset]:
        return await self._in_transaction(_projected)

    async def clear(self) -> None:
        await self._in_transaction(_clear)

    async def project(self, rows: Sequence[ShardRows]) -> None:
        def work(sql: sqlite3.Connection) -> None:
            for shard in rows:
                _write(sql, shard)

        await self._in_transaction(work)


def _projected(sql: sqlite3.Connection) -> dict[PartitionKey, Offset]:
    rows = sql.execute("SELECT topic_id, partition, log_offset FROM group_projection")
    return {PartitionKey(TopicId(UUID(topic_id)), partition): offset for topic_id, partition, offset in rows}


def _clear(sql: sqlite3.Connection) -> None:
    for table in ("consumer_groups", "group_members", "offset_commits", "group_projection"):
        sql.execute(f"DELETE FROM {table}")


def _write(sql: sqlite3.Connection, shard: ShardRows) -> None:
    _write_groups(sql, shard)
    sql.executemany(
        "DELETE FROM offset_commits WHERE group_id = ? AND topic = ? AND partition = ?",
        [place for place, row in shard.offsets.items() if row is None],
    )
    sql.executemany(
        "INSERT OR REPLACE INTO offset_commits "
        "(group_id, topic, partition, committed_offset, leader_epoch, metadata, committed) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (*place, row.offset, row.leader_epoch, row.metadata, readable_time(row.committed_ms))
            for place, row in shard.offsets.items()
            if row is not None
        ],
    )
    sql.execute(
        "INSERT OR REPLACE INTO group_projection (topic_id, partition, log_offset) VALUES (?, ?, ?)",
        (str(shard.key.topic_id), shard.key.partition, shard.offset),
    )


def _write_groups(sql: sqlite3.Connection, shard: ShardRows) -> None:
    for table in ("consumer_groups", "group_members"):
        sql.executemany(f"DELETE FROM {table} WHERE group_id = ?", [(group_id,) for group_id in shard.groups])
    there = [(group_id, row) for group_id, row in shard.groups.items() if row is not None]
    sql.executemany(
        "INSERT INTO consumer_groups (group_id, type, state, protocol_type, assignor, epoch, members) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(group_id, *row[:5], len(row.members)) for group_id, row in there],
    )
    sql.executemany(
        "INSERT INTO group_members (group_id, member_id, instance_id, client_id, client_host, assignment) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        [member for group_id, row in there for member in _members(group_id, row)],
    )


def _members(group_id: str, row: GroupRow) -> list[tuple[str, str, str | None, str, str, str | None]]:
    return [
        (
            group_id,
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            None
            if member.assignment is None
            else json.dumps({topic: list(numbers) for topic, numbers in member.assignment.items()}),
        )
        for member in row.members
    ]
