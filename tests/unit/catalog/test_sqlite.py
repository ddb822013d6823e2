"""Tests the parts that only the SQLite catalog has: its file, its lock, its schema versions."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from millstream.catalog.producer_ids import ProducerIds
from millstream.catalog.projection import GroupRow, MemberRow, OffsetPlace, OffsetRow, ShardRows
from millstream.catalog.schema import MIGRATIONS
from millstream.catalog.sqlite import SqliteCatalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId, LeaderEpoch, Offset, ProducerId
from millstream.model.names import PartitionKey
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy
from millstream.seams.workers import ThreadWorkers


def _with_workers(work: Callable[[Callable[[], SqliteCatalog]], Awaitable[None]], path: Path) -> None:
    async def run() -> None:
        workers = ThreadWorkers(2, "catalog")
        made: list[SqliteCatalog] = []

        def new() -> SqliteCatalog:
            made.append(SqliteCatalog(path, workers=workers, clock=SystemClock(), entropy=SystemEntropy()))
            return made[-1]

        try:
            await work(new)
        finally:
            for catalog in made:
                await catalog.close()
            workers.close()

    asyncio.run(run())


def test_a_second_owner_is_refused_until_the_first_has_closed_the_catalog(tmp_path: Path) -> None:
    async def work(new: Callable[[], SqliteCatalog]) -> None:
        first, second = new(), new()
        await first.open()
        with pytest.raises(MillstreamError) as error:
            await second.open()
        assert error.value.code is ErrorCode.DATA_DIRECTORY_IN_USE
        await first.close()
        await second.open()

    _with_workers(work, tmp_path / "catalog.db")


def test_other_programs_can_read_the_tables_while_the_broker_runs(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"

    async def work(new: Callable[[], SqliteCatalog]) -> None:
        catalog = new()
        await catalog.open()
        await catalog.create_topic("orders", 1, {"retention.ms": "5"}, [[BrokerId(1)]])
        reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            reader.execute("BEGIN")
            query = "SELECT name, state, leader, replicas FROM topics JOIN partitions USING (topic_id)"
            assert reader.execute(query).fetchall() == [("orders", "creating", 1, "[1]")]
            await catalog.create_topic("more", 1, {}, [[BrokerId(1)]])  # An open read transaction blocks no writer.
        finally:
            reader.close()

    _with_workers(work, path)


def test_the_queries_in_the_documentation_work(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    text = (Path(__file__).parents[3] / "docs" / "catalog.md").read_text()
    (block,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    topics, leaders, producers, producer_groups, groups, assignments = block.strip().split("\n\n")

    async def work(new: Callable[[], SqliteCatalog]) -> None:
        catalog = new()
        await catalog.open()
        topic = await catalog.create_topic(
            "orders", 1, {"retention.ms": "5", "segment.ms": "6"}, [[BrokerId(1), BrokerId(2)]]
        )
        await catalog.set_ready(topic.topic_id)
        await catalog.register_broker(BrokerId(1), "localhost", 9092)
        await catalog.next_producer_ids(1000, BrokerId(1))
        await catalog.bind_producer(ProducerId(7), "shop", BrokerId(1))
        member = MemberRow("member-1", None, "client", "/host", {"orders": (0,)})
        group = GroupRow("classic", "Stable", "consumer", "range", 1, (member,))
        rows = ShardRows(PartitionKey(topic.topic_id, 0), Offset(3), {"readers": group})
        rows.offsets[OffsetPlace("readers", "orders", 0)] = OffsetRow(Offset(7), LeaderEpoch(0), "", 0)
        await catalog.group_tables.project([rows])
        reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            ((name, count, state, _, settings),) = reader.execute(topics).fetchall()
            assert (name, count, state, settings) == ("orders", 1, "ready", "retention.ms=5 segment.ms=6")
            assert reader.execute(leaders).fetchall() == [("orders", 0, 1, "localhost:9092", 0, "[1, 2]", "[1, 2]")]
            assert reader.execute(producers).fetchone()[:3] == (0, 999, 1)
            assert reader.execute(producer_groups).fetchone()[:2] == ("shop", 7)
            ((*of_group, _),) = reader.execute(groups).fetchall()
            assert of_group == ["readers", "classic", "Stable", 1, "orders", 0, 7]
            assert reader.execute(assignments).fetchall() == [("readers", "client", "/host", "orders", 0)]
            for (table,) in reader.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
                assert f"| `{table}` |" in text
                for column in reader.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchall():
                    assert column[0] == "only_row" or f"`{column[0]}`" in text
        finally:
            reader.close()

    _with_workers(work, path)


def test_the_connection_uses_wal_and_full_synchronous_mode(tmp_path: Path) -> None:
    async def work(new: Callable[[], SqliteCatalog]) -> None:
        catalog = new()
        await catalog.open()
        pragmas = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
        for name, value in pragmas.items():
            assert catalog._sql().execute(f"PRAGMA {name}").fetchone()[0] == value

    _with_workers(work, tmp_path / "catalog.db")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"this is no database, but long enough to be looked at" * 20),
        lambda path: _execute(path, "CREATE TABLE somebody_elses (x)"),
        lambda path: _execute(path, "PRAGMA user_version = 3"),
        lambda path: _execute(path, "PRAGMA application_id = 7"),
    ],
    ids=["garbage", "another program's", "another program's, empty", "another application id"],
)
def test_a_file_of_another_program_is_refused_and_not_changed(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    path = tmp_path / "catalog.db"
    spoil(path)

    async def work(new: Callable[[], SqliteCatalog]) -> None:
        with pytest.raises(MillstreamError) as error:
            await new().open()
        assert error.value.code is ErrorCode.CATALOG_REFUSED

    _with_workers(work, path)
    assert b"cluster_id" not in path.read_bytes()


def test_a_file_with_a_newer_schema_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"

    async def work(new: Callable[[], SqliteCatalog]) -> None:
        catalog = new()
        await catalog.open()
        await catalog.close()
        _execute(path, f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        with pytest.raises(MillstreamError, match=f"schema version {len(MIGRATIONS) + 1}") as error:
            await new().open()
        assert error.value.code is ErrorCode.CATALOG_REFUSED

    _with_workers(work, path)


def test_a_topic_without_partition_rows_is_still_listed(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"

    async def work(new: Callable[[], SqliteCatalog]) -> None:
        catalog = new()
        await catalog.open()
        await catalog.create_topic("orders", 2, {}, [[BrokerId(1)], [BrokerId(1)]])
        await catalog.close()
        by_hand = sqlite3.connect(path)
        by_hand.execute("DELETE FROM partitions")
        by_hand.execute("DELETE FROM integrity")
        by_hand.commit()
        by_hand.close()
        again = new()
        await again.open()
        (topic,) = await again.topics()
        assert (topic.name, topic.partitions, topic.growing_to) == ("orders", 2, 0)

    _with_workers(work, path)


def test_a_transaction_completes_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    async def work(new: Callable[[], SqliteCatalog]) -> None:
        catalog = new()
        await catalog.open()
        caller = asyncio.create_task(catalog.create_topic("orders", 1, {}, [[BrokerId(1)]]))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert [topic.name for topic in await catalog.topics()] == ["orders"]

    _with_workers(work, tmp_path / "catalog.db")


def test_calls_to_a_catalog_that_is_not_open_are_refused(tmp_path: Path) -> None:
    async def work(new: Callable[[], SqliteCatalog]) -> None:
        catalog = new()
        with pytest.raises(MillstreamError) as error:
            await catalog.topics()
        assert error.value.code is ErrorCode.SHUTTING_DOWN

    _with_workers(work, tmp_path / "catalog.db")


def test_a_failing_statement_raises_storage_error_and_is_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"

    async def work(new: Callable[[], SqliteCatalog]) -> None:
        catalog = new()
        await catalog.open()
        _execute(path, "DROP TABLE producers")
        with pytest.raises(MillstreamError, match="producers") as error:
            await catalog.next_producer_ids(10, BrokerId(1))
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await catalog.create_topic(
            "orders", 1, {}, [[BrokerId(1)]]
        )  # The failed transaction was rolled back and holds no lock.

    _with_workers(work, path)


def _execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    try:
        connection.execute(statement)
        connection.commit()
    finally:
        connection.close()


def test_only_the_newest_producer_ids_of_groups_are_remembered(tmp_path: Path) -> None:
    async def work(new: Callable[[], SqliteCatalog]) -> None:
        catalog = new()
        await catalog.open()
        ids = ProducerIds(catalog, BrokerId(1), block=10, bound_max=5)
        given = [await ids.next("shop" if number % 2 else None) for number in range(21)]
        found = await catalog.query(
            "SELECT producer_id, producer_group FROM producer_groups ORDER BY 1", rows_max=100, timeout_ms=1_000
        )
        bound = [(producer_id, "shop") for number, producer_id in enumerate(given) if number % 2]
        assert [tuple(json.loads(row)) for row in found.rows] == bound[-5:]
        await catalog.close()

    _with_workers(work, tmp_path / "catalog.db")


@pytest.mark.parametrize("damage", ["UPDATE topics SET topic_id = 'x'", "UPDATE topics SET created = 'never'"])
def test_a_damaged_row_is_refused_with_the_name_of_the_file(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "catalog.sqlite"

    async def work(new: Callable[[], SqliteCatalog]) -> None:
        catalog = new()
        await catalog.open()
        await catalog.create_topic("orders", 1, {}, [[BrokerId(1)]])
        with sqlite3.connect(path) as other:
            other.execute("PRAGMA foreign_keys = OFF")
            other.execute(damage)
        other.close()
        with pytest.raises(MillstreamError, match=r"catalog\.sqlite is damaged") as refused:
            await catalog.topics()
        assert refused.value.code is ErrorCode.CATALOG_REFUSED

    _with_workers(work, path)
