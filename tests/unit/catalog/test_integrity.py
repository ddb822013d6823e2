"""Checks that a catalog with changed values, or without acknowledged changes, is refused."""

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from millstream.catalog.integrity import TABLES
from millstream.catalog.producer_ids import ProducerIds
from millstream.catalog.schema import MIGRATIONS
from millstream.catalog.sqlite import SqliteCatalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy
from millstream.seams.workers import ThreadWorkers

COPIES_OF_A_LOG = {"consumer_groups", "group_members", "offset_commits", "group_projection"}


def with_catalog(path: Path, work: Callable[[SqliteCatalog], Awaitable[None]]) -> None:
    async def run() -> None:
        workers = ThreadWorkers(1, "catalog")
        catalog = SqliteCatalog(path, workers=workers, clock=SystemClock(), entropy=SystemEntropy())
        try:
            await catalog.open()
            await work(catalog)
        finally:
            await catalog.close()
            workers.close()

    asyncio.run(run())


async def filled(catalog: SqliteCatalog) -> None:
    for number in range(3):
        topic = await catalog.create_topic(f"orders-{number}", 2, {"retention.ms": "-1"}, [[BrokerId(1)]] * 2)
        await catalog.set_ready(topic.topic_id)
    await catalog.register_broker(BrokerId(1), "localhost", 9092)
    await catalog.begin_leadership(BrokerId(1))
    await catalog.secret("signing")
    await ProducerIds(catalog, BrokerId(1)).next("writers")
    await catalog.change_settings(topic.topic_id, {"retention.ms": "99999999999"})
    await catalog.delete_topic(topic.topic_id)
    await catalog.forget_topic(topic.topic_id)


async def nothing(catalog: SqliteCatalog) -> None:
    await catalog.topics()


def refusal(path: Path) -> str:
    with pytest.raises(MillstreamError) as refused:
        with_catalog(path, nothing)
    assert refused.value.code is ErrorCode.CATALOG_REFUSED
    return refused.value.detail


def test_every_table_is_covered_unless_it_copies_a_log() -> None:
    with sqlite3.connect(":memory:") as sql:
        for migration in MIGRATIONS:
            sql.executescript(migration)
        tables = {name for (name,) in sql.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        assert tables == TABLES.keys() | COPIES_OF_A_LOG | {"integrity"}
        for table, columns in TABLES.items():
            assert tuple(row[1] for row in sql.execute(f"PRAGMA table_info({table})")) == columns
    sql.close()


def test_an_undamaged_catalog_opens_again_after_every_kind_of_change(tmp_path: Path) -> None:
    with_catalog(tmp_path / "catalog.sqlite", filled)
    with_catalog(tmp_path / "catalog.sqlite", filled_again)
    with_catalog(tmp_path / "catalog.sqlite", nothing)


async def filled_again(catalog: SqliteCatalog) -> None:
    with pytest.raises(MillstreamError):
        await catalog.create_topic("orders-0", 1, {}, [[BrokerId(1)]])  # It exists, so the transaction is rolled back.
    await catalog.create_topic("more", 1, {}, [[BrokerId(1)]])


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE topics SET name = 'ordess-0' WHERE name = 'orders-0'",
        "UPDATE topic_settings SET name = 'retentioo.ms'",
        "UPDATE topic_settings SET value = '-2'",
        "DELETE FROM producers",
        "UPDATE integrity SET checksum = zeroblob(16)",
    ],
)
def test_a_changed_value_is_refused_until_the_operator_accepts_it(tmp_path: Path, change: str) -> None:
    path = tmp_path / "catalog.sqlite"
    with_catalog(path, filled)
    by_hand(path, change)
    assert "do not match their checksum" in refusal(path)
    by_hand(path, "DELETE FROM integrity")
    with_catalog(path, nothing)


def by_hand(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as sql:
        sql.execute(statement)
    sql.close()


def test_a_damaged_write_ahead_log_is_refused_instead_of_undoing_changes(tmp_path: Path) -> None:
    live, killed = tmp_path / "live", tmp_path / "killed"
    live.mkdir()

    async def copied(catalog: SqliteCatalog) -> None:
        await filled(catalog)
        shutil.copytree(live, killed)

    with_catalog(live / "catalog.sqlite", copied)
    random = Random(1)
    for number in range(20):
        damaged = tmp_path / str(number)
        shutil.copytree(killed, damaged)
        wal = damaged / "catalog.sqlite-wal"
        content = bytearray(wal.read_bytes())
        content[random.randrange(len(content) // 2, len(content))] ^= 1 << random.randrange(8)
        wal.write_bytes(content)
        assert "was acknowledged" in refusal(damaged / "catalog.sqlite")


def test_an_older_copy_of_the_catalog_is_refused_until_its_number_is_deleted(tmp_path: Path) -> None:
    path, old = tmp_path / "catalog.sqlite", tmp_path / "old.sqlite"
    with_catalog(path, filled)
    shutil.copy(path, old)
    with_catalog(path, filled_again)
    shutil.copy(old, path)
    assert "it is an older copy" in refusal(path)
    Path(f"{path}.change").unlink()
    with_catalog(path, nothing)
