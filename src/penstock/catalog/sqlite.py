"""The catalog in one SQLite file: the embedded default.

One process owns the file: a lock file beside it says so, because SQLite alone would let a second broker in. Other
programs may read it at any time (WAL lets them, and they never hold up the broker); docs/catalog.md shows how.
Every change is one transaction with `synchronous=FULL`: it is on stable storage before the call returns. A crash
leaves the last whole transaction; the WAL is played back by SQLite at the next open.

Blocking calls run in workers, one at a time. A caller that is cancelled does not stop a transaction that has begun.
"""

import asyncio
import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from penstock.catalog.catalog import (
    BrokerEntry,
    Placement,
    Topic,
    TopicState,
    check_change,
    check_new_topic,
    first_placement,
    new_cluster_id,
    readable_time,
    time_ms,
)
from penstock.catalog.schema import APPLICATION_ID, MIGRATIONS
from penstock.model.clock import Clock
from penstock.model.entropy import Entropy, random_uuid
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import PartitionKey
from penstock.model.workers import Workers

T = TypeVar("T")

_PLACEMENT_COLUMNS = "topic_id, partition, leader, leader_epoch, partition_epoch, replicas, in_sync"


class SqliteCatalog:
    def __init__(self, path: Path | str, *, workers: Workers, clock: Clock, entropy: Entropy) -> None:
        self._path = Path(path)
        self._workers = workers
        self._clock = clock
        self._entropy = entropy
        self._one_at_a_time = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._connection: sqlite3.Connection | None = None
        self._owned: int | None = None

    async def open(self) -> None:
        await self._run(self._open)

    async def close(self) -> None:
        await self._run(self._close)

    async def cluster_id(self) -> str:
        return await self._run(lambda: str(self._sql().execute("SELECT cluster_id FROM cluster").fetchone()[0]))

    async def register_broker(self, node_id: int, host: str, port: int) -> BrokerEntry:
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
        self, name: str, partitions: int, settings: Mapping[str, str], replicas: Sequence[Sequence[int]]
    ) -> Topic:
        check_new_topic(name, partitions, replicas)
        topic_id = random_uuid(self._entropy)
        topic = Topic(name, topic_id, partitions, dict(settings), TopicState.CREATING, self._clock.wall_ms())
        placements = [first_placement(PartitionKey(topic_id, number), nodes) for number, nodes in enumerate(replicas)]

        def work() -> Topic:
            with self._transaction() as sql:
                if sql.execute("SELECT 1 FROM topics WHERE name = ? AND state <> 'deleting'", (name,)).fetchone():
                    raise PenstockError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
                _insert_topic(sql, topic, placements)
            return topic

        return await self._run(work)

    async def set_ready(self, topic_id: UUID) -> None:
        await self._set_state(topic_id, TopicState.READY)

    async def delete_topic(self, topic_id: UUID) -> None:
        await self._set_state(topic_id, TopicState.DELETING)

    async def forget_topic(self, topic_id: UUID) -> None:
        def work() -> None:
            with self._transaction() as sql:
                sql.execute("DELETE FROM topics WHERE topic_id = ? AND state = 'deleting'", (str(topic_id),))

        await self._run(work)

    async def topics(self) -> list[Topic]:
        return await self._run(lambda: _topics(self._sql()))

    async def placements(self) -> list[Placement]:
        def work() -> list[Placement]:
            rows = self._sql().execute(f"SELECT {_PLACEMENT_COLUMNS} FROM partitions ORDER BY topic_id, partition")
            return [_placement(row) for row in rows]

        return await self._run(work)

    async def begin_leadership(self, node_id: int) -> list[Placement]:
        def work() -> list[Placement]:
            with self._transaction() as sql:
                sql.execute(
                    "UPDATE partitions SET leader_epoch = leader_epoch + 1, partition_epoch = partition_epoch + 1 "
                    "WHERE leader = ?",
                    (node_id,),
                )
                rows = sql.execute(
                    f"SELECT {_PLACEMENT_COLUMNS} FROM partitions WHERE leader = ? ORDER BY topic_id, partition",
                    (node_id,),
                ).fetchall()
            return [_placement(row) for row in rows]

        return await self._run(work)

    async def change_placement(self, changed: Placement) -> Placement | None:
        where = (str(changed.key.topic_id), changed.key.partition, changed.partition_epoch)

        def work() -> Placement | None:
            with self._transaction() as sql:
                row = sql.execute(
                    f"SELECT {_PLACEMENT_COLUMNS} FROM partitions "
                    "WHERE topic_id = ? AND partition = ? AND partition_epoch = ?",
                    where,
                ).fetchone()
                if row is None:
                    return None
                check_change(_placement(row), changed)
                sql.execute(
                    "UPDATE partitions SET leader = ?, leader_epoch = ?, partition_epoch = partition_epoch + 1, "
                    "replicas = ?, in_sync = ? WHERE topic_id = ? AND partition = ? AND partition_epoch = ?",
                    (changed.leader, changed.leader_epoch, _nodes(changed.replicas), _nodes(changed.in_sync), *where),
                )
            return changed._replace(partition_epoch=changed.partition_epoch + 1)

        return await self._run(work)

    async def next_producer_ids(self, count: int, node_id: int) -> range:
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

    async def _set_state(self, topic_id: UUID, state: TopicState) -> None:
        def work() -> None:
            with self._transaction() as sql:
                changed = sql.execute(
                    "UPDATE topics SET state = ? WHERE topic_id = ? AND state <> 'deleting'",
                    (state.value, str(topic_id)),
                )
                if changed.rowcount != 1:
                    raise PenstockError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")

        await self._run(work)

    async def _run(self, work: Callable[[], T]) -> T:
        # A task of its own: when the caller goes away the lock must still be held until the worker is done.
        task = asyncio.create_task(self._alone(work))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _alone(self, work: Callable[[], T]) -> T:
        async with self._one_at_a_time:
            try:
                return await self._workers.run(work)
            except sqlite3.Error as error:
                raise PenstockError(ErrorCode.KAFKA_STORAGE_ERROR, f"catalog {self._path}: {error}") from error

    def _sql(self) -> sqlite3.Connection:
        if self._connection is None:
            raise PenstockError(ErrorCode.SHUTTING_DOWN, f"catalog {self._path} is not open")
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        sql = self._sql()
        sql.execute("BEGIN IMMEDIATE")
        try:
            yield sql
            sql.execute("COMMIT")
        except BaseException:
            if sql.in_transaction:
                sql.execute("ROLLBACK")
            raise

    def _open(self) -> None:
        if self._connection is not None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._owned = _own(self._path)
        try:
            self._connection = _connect(self._path)
            with self._transaction() as sql:
                _migrate(sql, self._path)
                sql.execute(
                    "INSERT OR IGNORE INTO cluster (only_row, cluster_id, created) VALUES (1, ?, ?)",
                    (new_cluster_id(self._entropy), readable_time(self._clock.wall_ms())),
                )
            _flush_directory(self._path.parent)
        except sqlite3.Error as error:
            self._close()
            raise PenstockError(ErrorCode.CATALOG_REFUSED, f"{self._path} cannot be used: {error}") from error
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        owned, self._owned = self._owned, None
        try:
            if connection is not None:
                connection.close()
        finally:
            if owned is not None:
                os.close(owned)


def _own(path: Path) -> int:
    """Lock the file beside the catalog; the lock ends with the process, however it ends."""
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise PenstockError(ErrorCode.DATA_DIRECTORY_IN_USE, f"another process owns the catalog {path}") from None
    return descriptor


def _connect(path: Path) -> sqlite3.Connection:
    # Workers are several threads; the lock in `_alone` lets one of them at a time use the connection.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(sql: sqlite3.Connection, path: Path) -> None:
    """Bring the file to the newest schema, within the transaction of the caller."""
    version = sql.execute("PRAGMA user_version").fetchone()[0]
    owner = sql.execute("PRAGMA application_id").fetchone()[0]
    if owner != APPLICATION_ID and (owner or version or sql.execute("SELECT 1 FROM sqlite_schema").fetchone()):
        raise PenstockError(ErrorCode.CATALOG_REFUSED, f"{path} is a database of another program")
    if version > len(MIGRATIONS):
        raise PenstockError(
            ErrorCode.CATALOG_REFUSED,
            f"{path} has schema version {version}; this version of Penstock knows up to {len(MIGRATIONS)}",
        )
    for migration in MIGRATIONS[version:]:
        # Not executescript(): it would commit first, and the steps would no longer be one transaction.
        for statement in _statements(migration):
            sql.execute(statement)
    sql.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    sql.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _insert_topic(sql: sqlite3.Connection, topic: Topic, placements: Sequence[Placement]) -> None:
    topic_id = str(topic.topic_id)
    sql.execute(
        "INSERT INTO topics (topic_id, name, partitions, state, created) VALUES (?, ?, ?, ?, ?)",
        (topic_id, topic.name, topic.partitions, topic.state.value, readable_time(topic.created_ms)),
    )
    sql.executemany(
        "INSERT INTO topic_settings (topic_id, name, value) VALUES (?, ?, ?)",
        [(topic_id, name, value) for name, value in topic.settings.items()],
    )
    sql.executemany(
        f"INSERT INTO partitions ({_PLACEMENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(topic_id, p.key.partition, *p[1:4], _nodes(p.replicas), _nodes(p.in_sync)) for p in placements],
    )


def _topics(sql: sqlite3.Connection) -> list[Topic]:
    settings: dict[str, dict[str, str]] = {}
    for topic_id, name, value in sql.execute("SELECT topic_id, name, value FROM topic_settings ORDER BY name"):
        settings.setdefault(topic_id, {})[name] = value
    rows = sql.execute("SELECT name, topic_id, partitions, state, created FROM topics ORDER BY rowid")
    return [
        Topic(name, UUID(topic_id), count, settings.get(topic_id, {}), TopicState(state), time_ms(created))
        for name, topic_id, count, state, created in rows
    ]


def _placement(row: Sequence[Any]) -> Placement:
    topic_id, number, leader, leader_epoch, partition_epoch, replicas, in_sync = row
    key = PartitionKey(UUID(topic_id), number)
    return Placement(
        key, leader, leader_epoch, partition_epoch, tuple(json.loads(replicas)), tuple(json.loads(in_sync))
    )


def _nodes(nodes: Sequence[int]) -> str:
    return json.dumps(list(nodes))
