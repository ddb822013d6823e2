"""Implements the catalog in one SQLite file, the embedded default.

One process owns the file. A lock file beside it ensures this, because SQLite alone would admit a second broker. Other
programs may read the file at any time without blocking the broker (SQLite's WAL mode); docs/catalog.md shows how. Every
change is one transaction with `synchronous=FULL`: it is on stable storage before the call returns. A crash leaves the
last complete transaction; SQLite replays the WAL at the next open.

Blocking calls run in workers, one at a time. Cancelling a caller does not stop a transaction that has begun.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from millstream.catalog.catalog import (
    SECRET_BYTES,
    BrokerEntry,
    MakeRoom,
    Placement,
    Topic,
    TopicState,
    check_change,
    check_new_topic,
    check_replicas,
    new_cluster_id,
    no_room,
    placements_from,
    readable_time,
    time_ms,
    unknown_topic,
)
from millstream.catalog.integrity import CatalogIntegrity
from millstream.catalog.projection_sqlite import SqliteGroupTables
from millstream.catalog.queries import QueryEngine, QueryQueue
from millstream.catalog.query_threads import ThreadQueryEngine
from millstream.catalog.sqlite_file import connect, flush_directory, is_full, migrate, own, protect
from millstream.catalog.sqlite_rows import (
    PLACEMENT_COLUMNS,
    insert_placements,
    insert_settings,
    insert_topic,
    nodes_text,
    read_group_settings,
    read_placement,
    read_topics,
    ready_partitions,
    replace_group_settings,
)
from millstream.catalog.statement import QueryResult
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId, LeaderEpoch, ProducerId, TopicId
from millstream.model.names import PartitionKey
from millstream.seams.clock import Clock
from millstream.seams.entropy import Entropy, random_uuid
from millstream.seams.workers import Workers

T = TypeVar("T")


class SqliteCatalog:
    kind = "sqlite"

    def __init__(
        self,
        path: Path | str,
        *,
        workers: Workers,
        clock: Clock,
        entropy: Entropy,
        query_engine: QueryEngine | None = None,
    ) -> None:
        """Without `query_engine`, queries run in threads of `workers`, where their memory is not limited."""
        self._path = Path(path)
        self._workers = workers
        self._clock = clock
        self._entropy = entropy
        self._one_at_a_time = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()
        self._connection: sqlite3.Connection | None = None
        self._integrity = CatalogIntegrity(self._path)
        self._lock_descriptor: int | None = None
        self.group_tables = SqliteGroupTables(self._in_transaction)
        self._make_room: MakeRoom = no_room
        self._queries = QueryQueue(query_engine or ThreadQueryEngine(self._path, workers))

    async def open(self, make_room: MakeRoom = no_room) -> None:
        self._make_room = make_room
        await self._run(self._open)
        self._queries.open()

    async def close(self) -> None:
        await self._queries.close()
        await self._run(self._close)

    async def cluster_id(self) -> str:
        return await self._run(lambda: str(self._sql().execute("SELECT cluster_id FROM cluster").fetchone()[0]))

    async def register_broker(self, node_id: BrokerId, host: str, port: int) -> BrokerEntry:
        now_ms = self._clock.wall_ms()

        def work() -> BrokerEntry:
            with self._transaction() as sql:
                row = sql.execute(
                    "INSERT INTO brokers (node_id, host, port, incarnation, registered) VALUES (?, ?, ?, 1, ?) "
                    "ON CONFLICT (node_id) DO UPDATE SET host = excluded.host, port = excluded.port, "
                    "incarnation = incarnation + 1, registered = excluded.registered RETURNING incarnation",
                    (node_id, host, port, readable_time(now_ms)),
                ).fetchone()
            return BrokerEntry(node_id, host, port, row[0], now_ms)

        return await self._run(work)

    async def brokers(self) -> list[BrokerEntry]:
        def work() -> list[BrokerEntry]:
            rows = self._sql().execute(
                "SELECT node_id, host, port, incarnation, registered FROM brokers ORDER BY node_id"
            )
            return [BrokerEntry(row[0], row[1], row[2], row[3], time_ms(row[4])) for row in rows]

        return await self._run(work)

    async def create_topic(
        self, name: str, partitions: int, settings: Mapping[str, str], replicas: Sequence[Sequence[BrokerId]]
    ) -> Topic:
        check_new_topic(name, partitions, replicas)
        topic_id = TopicId(random_uuid(self._entropy))
        topic = Topic(name, topic_id, partitions, dict(settings), TopicState.CREATING, self._clock.wall_ms())

        def work() -> Topic:
            with self._transaction() as sql:
                if sql.execute("SELECT 1 FROM topics WHERE name = ? AND state <> 'deleting'", (name,)).fetchone():
                    raise MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
                insert_topic(sql, topic)
                insert_placements(sql, placements_from(topic_id, 0, replicas))
            return topic

        return await self._run(work)

    async def set_ready(self, topic_id: TopicId) -> None:
        await self._set_state(topic_id, TopicState.READY)

    async def delete_topic(self, topic_id: TopicId) -> None:
        await self._set_state(topic_id, TopicState.DELETING)

    async def forget_topic(self, topic_id: TopicId) -> None:
        def work() -> None:
            with self._transaction() as sql:
                sql.execute("DELETE FROM topics WHERE topic_id = ? AND state = 'deleting'", (str(topic_id),))

        await self._run(work)

    async def change_settings(self, topic_id: TopicId, settings: Mapping[str, str]) -> None:
        def work() -> None:
            with self._transaction() as sql:
                ready_partitions(sql, topic_id)
                sql.execute("DELETE FROM topic_settings WHERE topic_id = ?", (str(topic_id),))
                insert_settings(sql, topic_id, settings)

        await self._run(work)

    async def begin_growth(self, topic_id: TopicId, replicas: Sequence[Sequence[BrokerId]]) -> None:
        check_replicas(str(topic_id), replicas)

        def work() -> None:
            with self._transaction() as sql:
                ready = ready_partitions(sql, topic_id)
                sql.execute("DELETE FROM partitions WHERE topic_id = ? AND partition >= ?", (str(topic_id), ready))
                insert_placements(sql, placements_from(topic_id, ready, replicas))

        await self._run(work)

    async def finish_growth(self, topic_id: TopicId) -> None:
        def work() -> None:
            with self._transaction() as sql:
                ready_partitions(sql, topic_id)
                sql.execute(
                    "UPDATE topics SET partitions = (SELECT count(*) FROM partitions WHERE topic_id = ?1) "
                    "WHERE topic_id = ?1",
                    (str(topic_id),),
                )

        await self._run(work)

    async def abandon_growth(self, topic_id: TopicId) -> None:
        def work() -> None:
            with self._transaction() as sql:
                ready = ready_partitions(sql, topic_id)
                sql.execute("DELETE FROM partitions WHERE topic_id = ? AND partition >= ?", (str(topic_id), ready))

        await self._run(work)

    async def topics(self) -> list[Topic]:
        return await self._run(lambda: read_topics(self._sql()))

    async def placements(self) -> list[Placement]:
        def work() -> list[Placement]:
            rows = self._sql().execute(f"SELECT {PLACEMENT_COLUMNS} FROM partitions ORDER BY topic_id, partition")
            return [read_placement(row) for row in rows]

        return await self._run(work)

    async def begin_leadership(self, node_id: BrokerId, *, without: Collection[PartitionKey] = ()) -> list[Placement]:
        def work() -> list[Placement]:
            with self._transaction() as sql:
                rows = sql.execute(
                    f"SELECT {PLACEMENT_COLUMNS} FROM partitions WHERE leader = ? ORDER BY topic_id, partition",
                    (node_id,),
                ).fetchall()
                led = [placement for placement in map(read_placement, rows) if placement.key not in without]
                sql.executemany(
                    "UPDATE partitions SET leader_epoch = leader_epoch + 1, partition_epoch = partition_epoch + 1 "
                    "WHERE topic_id = ? AND partition = ?",
                    [(str(placement.key.topic_id), placement.key.partition) for placement in led],
                )
            return [
                each._replace(leader_epoch=LeaderEpoch(each.leader_epoch + 1), partition_epoch=each.partition_epoch + 1)
                for each in led
            ]

        return await self._run(work)

    async def change_placement(self, changed: Placement) -> Placement | None:
        where = (str(changed.key.topic_id), changed.key.partition, changed.partition_epoch)

        def work() -> Placement | None:
            with self._transaction() as sql:
                row = sql.execute(
                    f"SELECT {PLACEMENT_COLUMNS} FROM partitions "
                    "WHERE topic_id = ? AND partition = ? AND partition_epoch = ?",
                    where,
                ).fetchone()
                if row is None:
                    return None
                check_change(read_placement(row), changed)
                sql.execute(
                    "UPDATE partitions SET leader = ?, leader_epoch = ?, partition_epoch = partition_epoch + 1, "
                    "replicas = ?, in_sync = ? WHERE topic_id = ? AND partition = ? AND partition_epoch = ?",
                    (
                        changed.leader,
                        changed.leader_epoch,
                        nodes_text(changed.replicas),
                        nodes_text(changed.in_sync),
                        *where,
                    ),
                )
            return changed._replace(partition_epoch=changed.partition_epoch + 1)

        return await self._run(work)

    async def next_producer_ids(self, count: int, node_id: BrokerId) -> range:
        given = readable_time(self._clock.wall_ms())

        def work() -> range:
            with self._transaction() as sql:
                first = sql.execute("SELECT coalesce(max(last_id) + 1, 0) FROM producers").fetchone()[0]
                sql.execute(
                    "INSERT INTO producers (first_id, last_id, node_id, given) VALUES (?, ?, ?, ?)",
                    (first, first + count - 1, node_id, given),
                )
            return range(first, first + count)

        return await self._run(work)

    async def bind_producer(self, producer_id: ProducerId, producer_group: str, node_id: BrokerId) -> None:
        given = readable_time(self._clock.wall_ms())

        def work() -> None:
            with self._transaction() as sql:
                sql.execute(
                    "INSERT INTO producer_groups (producer_id, producer_group, node_id, given) VALUES (?, ?, ?, ?)",
                    (producer_id, producer_group, node_id, given),
                )

        await self._run(work)

    async def trim_producers(self, keep: int) -> None:
        def work() -> None:
            with self._transaction() as sql:
                oldest = "SELECT producer_id FROM producer_groups ORDER BY producer_id DESC LIMIT 1 OFFSET ?"
                sql.execute(f"DELETE FROM producer_groups WHERE producer_id <= ({oldest})", (keep,))

        await self._run(work)

    async def secret(self, name: str) -> bytes:
        made = self._entropy.token(SECRET_BYTES)

        def work() -> bytes:
            with self._transaction() as sql:
                sql.execute("INSERT OR IGNORE INTO secrets (name, secret) VALUES (?, ?)", (name, made))
                return bytes(sql.execute("SELECT secret FROM secrets WHERE name = ?", (name,)).fetchone()[0])

        return await self._run(work)

    async def group_settings(self) -> Mapping[str, Mapping[str, str]]:
        return await self._run(lambda: read_group_settings(self._sql()))

    async def change_group_settings(self, group_id: str, settings: Mapping[str, str]) -> None:
        await self._in_transaction(partial(replace_group_settings, group_id=group_id, settings=settings))

    async def _set_state(self, topic_id: TopicId, state: TopicState) -> None:
        def work() -> None:
            with self._transaction() as sql:
                changed = sql.execute(
                    "UPDATE topics SET state = ? WHERE topic_id = ? AND state <> 'deleting'",
                    (state.value, str(topic_id)),
                )
                if changed.rowcount != 1:
                    raise unknown_topic(topic_id)

        await self._run(work)

    async def query(self, sql: str, *, rows_max: int, timeout_ms: int) -> QueryResult:
        return await self._queries.run(sql, rows_max=rows_max, timeout_ms=timeout_ms)

    async def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            with self._transaction() as sql:
                return work(sql)

        return await self._run(run, may_use_reserve=False)

    async def _run(self, work: Callable[[], T], *, may_use_reserve: bool = True) -> T:
        # A separate task: if the caller is cancelled, the lock must still be held until the worker has finished.
        task = asyncio.create_task(self._alone(work, may_use_reserve))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _alone(self, work: Callable[[], T], may_use_reserve: bool) -> T:
        async with self._one_at_a_time:
            try:
                try:
                    return await self._workers.run(work)
                except sqlite3.OperationalError as error:
                    if not (may_use_reserve and is_full(error) and await self._make_room()):
                        raise
                return await self._workers.run(work)
            except ValueError as error:  # A row that this program has not written.
                text = f"catalog {self._path} is damaged: {error}; restore it from a copy"
                raise MillstreamError(ErrorCode.CATALOG_REFUSED, text) from error
            except sqlite3.Error as error:
                raise MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, f"catalog {self._path}: {error}") from error

    def _sql(self) -> sqlite3.Connection:
        if self._connection is None:
            raise MillstreamError(ErrorCode.SHUTTING_DOWN, f"catalog {self._path} is not open")
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        sql = self._sql()
        sql.execute("BEGIN IMMEDIATE")
        try:
            self._integrity.begin()
            yield sql
            self._integrity.before_commit(sql)
            sql.execute("COMMIT")
            self._integrity.committed()
        except BaseException:
            if sql.in_transaction:
                sql.execute("ROLLBACK")
            raise

    def _open(self) -> None:
        if self._connection is not None:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_descriptor = own(self._path)
        try:
            protect(self._path)
            self._connection = connect(self._path)
            with self._transaction() as sql:
                migrate(sql, self._path)
                sql.execute(
                    "INSERT OR IGNORE INTO cluster (only_row, cluster_id, created) VALUES (1, ?, ?)",
                    (new_cluster_id(self._entropy), readable_time(self._clock.wall_ms())),
                )
                self._integrity.open(sql)
            flush_directory(self._path.parent)
        except BaseException as error:
            self._close()
            if isinstance(error, (sqlite3.Error, OSError, UnicodeDecodeError)):
                raise MillstreamError(
                    ErrorCode.CATALOG_REFUSED, f"catalog {self._path} cannot be opened: {error}"
                ) from error
            raise

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._integrity.close()
        descriptor, self._lock_descriptor = self._lock_descriptor, None
        try:
            if connection is not None:
                connection.close()
        finally:
            if descriptor is not None:
                os.close(descriptor)
