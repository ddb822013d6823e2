"""Tests user queries: they can only read, and are limited in time and size."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from millstream.catalog.queries import ANSWER_BYTES_MAX, ROWS_MAX
from millstream.catalog.sqlite import SqliteCatalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy
from millstream.seams.workers import ThreadWorkers

LONG_MS = 10_000
COUNTING = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n{bound}) SELECT {what} FROM n"


def with_catalog(path: Path, story: Callable[[SqliteCatalog], Awaitable[None]]) -> None:
    async def run() -> None:
        workers = ThreadWorkers(2, "catalog")
        catalog = SqliteCatalog(path / "catalog.db", workers=workers, clock=SystemClock(), entropy=SystemEntropy())
        try:
            await catalog.open()
            await catalog.create_topic("orders", 3, {}, [[BrokerId(1)]] * 3)
            await story(catalog)
        finally:
            await catalog.close()
            workers.close()

    asyncio.run(run())


def counting(what: str = "i", rows: int | None = None) -> str:
    return COUNTING.format(what=what, bound="" if rows is None else f" WHERE i < {rows - 1}")


def test_rows_are_returned_as_json_arrays(tmp_path: Path) -> None:
    async def story(catalog: SqliteCatalog) -> None:
        found = await catalog.query(
            "SELECT name, partitions, NULL, 1.5, x'00ff' AS b FROM topics", rows_max=10, timeout_ms=LONG_MS
        )
        assert found.columns == ("name", "partitions", "NULL", "1.5", "b")
        assert (found.rows, found.truncated) == (('["orders", 3, null, 1.5, "00ff"]',), False)
        strange = await catalog.query("SELECT 9e999, 'ü \"quoted\"'", rows_max=10, timeout_ms=LONG_MS)
        assert [json.loads(row) for row in strange.rows] == [["inf", 'ü "quoted"']]
        assert (await catalog.query("SELECT 1 WHERE 0", rows_max=10, timeout_ms=LONG_MS)).rows == ()
        assert (
            await catalog.query("SELECT name FROM sqlite_schema WHERE name = 'topics'", rows_max=10, timeout_ms=LONG_MS)
        ).rows

    with_catalog(tmp_path, story)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM topics",
        "INSERT INTO cluster VALUES (2, 'x', 'y')",
        "UPDATE topics SET name = 'x'",
        "DROP TABLE topics",
        "CREATE TABLE mine (x)",
        "CREATE TEMP TABLE mine (x)",
        "ATTACH 'other.db' AS other",
        "VACUUM INTO 'copy.db'",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA user_version",
        "BEGIN",
        "SELECT load_extension('x')",
        "WITH gone AS (SELECT 1) DELETE FROM topics",
    ],
)
def test_a_statement_that_does_more_than_read_is_refused(sql: str, tmp_path: Path) -> None:
    async def story(catalog: SqliteCatalog) -> None:
        with pytest.raises(MillstreamError) as error:
            await catalog.query(sql, rows_max=10, timeout_ms=LONG_MS)
        assert error.value.code is ErrorCode.INVALID_REQUEST
        assert "queries can only read" in error.value.detail
        assert (await catalog.query("SELECT count(*) FROM topics", rows_max=10, timeout_ms=LONG_MS)).rows == ("[1]",)

    with_catalog(tmp_path, story)
    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["catalog.db"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT secret FROM secrets",
        "SELECT count(*) FROM secrets",
        "SELECT t.name FROM topics t WHERE EXISTS (SELECT 1 FROM main.Secrets WHERE hex(secret) LIKE 'a%')",
        "WITH s AS (SELECT * FROM secrets) SELECT length(secret) FROM s",
    ],
)
def test_no_query_can_read_the_secrets_of_the_brokers(sql: str, tmp_path: Path) -> None:
    async def story(catalog: SqliteCatalog) -> None:
        await catalog.secret("iterators")
        with pytest.raises(MillstreamError) as error:
            await catalog.query(sql, rows_max=10, timeout_ms=LONG_MS)
        assert error.value.code is ErrorCode.INVALID_REQUEST

    with_catalog(tmp_path, story)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELECT missing FROM topics", "no such column: missing"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT ?", "bindings"),
        ("SELECT zeroblob(100000000)", "too big"),
        ("SELECT 1" + " " * 100_000, "too large"),
        ("SELECT 'a\0b'", ""),
    ],
)
def test_an_invalid_query_is_refused_with_its_reason(sql: str, said: str, tmp_path: Path) -> None:
    async def story(catalog: SqliteCatalog) -> None:
        with pytest.raises(MillstreamError) as error:
            await catalog.query(sql, rows_max=10, timeout_ms=LONG_MS)
        assert error.value.code is ErrorCode.INVALID_REQUEST
        assert said in error.value.detail

    with_catalog(tmp_path, story)


def test_a_query_is_stopped_at_its_timeout(tmp_path: Path) -> None:
    async def story(catalog: SqliteCatalog) -> None:
        endless = [catalog.query(counting("count(*)"), rows_max=10, timeout_ms=50) for _ in range(3)]
        for ended in await asyncio.gather(*endless, return_exceptions=True):
            assert isinstance(ended, MillstreamError)
            assert ended.code is ErrorCode.REQUEST_TIMED_OUT
        assert (await catalog.query("SELECT 1", rows_max=10, timeout_ms=LONG_MS)).rows == ("[1]",)

    with_catalog(tmp_path, story)


@pytest.mark.parametrize(("wanted", "given"), [(0, 0), (5, 5), (-3, 0), (10**9, ROWS_MAX)])
def test_the_number_of_rows_is_limited_by_request_and_maximum(wanted: int, given: int, tmp_path: Path) -> None:
    async def story(catalog: SqliteCatalog) -> None:
        found = await catalog.query(counting(rows=ROWS_MAX + 1), rows_max=wanted, timeout_ms=LONG_MS)
        assert (len(found.rows), found.truncated) == (given, True)
        exactly = await catalog.query(counting(rows=3), rows_max=3, timeout_ms=LONG_MS)
        assert (len(exactly.rows), exactly.truncated) == (3, False)

    with_catalog(tmp_path, story)


def test_the_size_of_an_answer_is_limited(tmp_path: Path) -> None:
    async def story(catalog: SqliteCatalog) -> None:
        found = await catalog.query(counting("hex(zeroblob(200000))", rows=100), rows_max=100, timeout_ms=LONG_MS)
        assert found.truncated
        assert 0 < sum(map(len, found.rows)) <= ANSWER_BYTES_MAX

    with_catalog(tmp_path, story)
