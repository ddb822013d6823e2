"""Tests user queries on both engines: they can only read, are limited in time and size, and wait in a bounded queue."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from millstream.catalog.queries import QUERIES_MAX, ROWS_MAX, LimitedQuery, QueryEngine, QueryQueue
from millstream.catalog.query_threads import ThreadQueryEngine
from millstream.catalog.sqlite import SqliteCatalog
from millstream.catalog.statement import ANSWER_BYTES_MAX, QueryResult
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy
from millstream.seams.workers import ThreadWorkers, Workers
from millstream.supervisor.query_process import ProcessQueryEngine

LONG_MS = 10_000
COUNTING = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n{bound}) SELECT {what} FROM n"


WAIT_S = 60.0
MEMORY_BYTES = 256 * 2**20


def threads(path: Path, workers: Workers) -> QueryEngine:
    return ThreadQueryEngine(path, workers)


def process(path: Path, workers: Workers) -> QueryEngine:
    return ProcessQueryEngine(path, workers=workers, memory_bytes=MEMORY_BYTES)


def with_catalog(directory: Path, story: Callable[[SqliteCatalog], Awaitable[None]]) -> None:
    """Runs the story once on each engine."""

    async def run(make: Callable[[Path, Workers], QueryEngine]) -> None:
        path = directory / make.__name__ / "catalog.db"
        workers = ThreadWorkers(2, "catalog")
        catalog = SqliteCatalog(
            path, workers=workers, clock=SystemClock(), entropy=SystemEntropy(), query_engine=make(path, workers)
        )
        try:
            await catalog.open()
            await catalog.create_topic("orders", 3, {}, [[BrokerId(1)]] * 3)
            async with asyncio.timeout(WAIT_S):
                await story(catalog)
        finally:
            await catalog.close()
            workers.close()
        assert sorted(each.name for each in path.parent.glob("*.db")) == ["catalog.db"]

    for make in (threads, process):
        asyncio.run(run(make))


def counting(what: str = "i", rows: int | None = None) -> str:
    return COUNTING.format(what=what, bound="" if rows is None else f" WHERE i < {rows - 1}")


def test_rows_are_returned_as_json_arrays(tmp_path: Path) -> None:
    async def story(catalog: SqliteCatalog) -> None:
        found = await catalog.query(
            "SELECT name, partitions, NULL, 1.5, x'00ff' AS b FROM topics", rows_max=10, timeout_ms=LONG_MS
        )
        assert found.columns == ("name", "partitions", "NULL", "1.5", "b")
        assert (found.rows, found.truncated) == ((b'["orders", 3, null, 1.5, "00ff"]',), False)
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
        "WITH gone AS (SELECT 1) DELETE FROM topics",
    ],
)
def test_a_statement_that_does_more_than_read_is_refused(sql: str, tmp_path: Path) -> None:
    async def story(catalog: SqliteCatalog) -> None:
        with pytest.raises(MillstreamError) as error:
            await catalog.query(sql, rows_max=10, timeout_ms=LONG_MS)
        assert error.value.code is ErrorCode.INVALID_REQUEST
        assert "queries can only read" in error.value.detail
        assert (await catalog.query("SELECT count(*) FROM topics", rows_max=10, timeout_ms=LONG_MS)).rows == (b"[1]",)

    with_catalog(tmp_path, story)


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
        ("SELECT replace(printf('%.*c', 1000000, 'x'), 'x', 'yy')", "too big"),
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
        assert (await catalog.query("SELECT 1", rows_max=10, timeout_ms=LONG_MS)).rows == (b"[1]",)

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
        found = await catalog.query(counting("printf('%.*c', 400000, 'x')", rows=100), rows_max=100, timeout_ms=LONG_MS)
        assert found.truncated
        assert 0 < sum(map(len, found.rows)) <= ANSWER_BYTES_MAX

    with_catalog(tmp_path, story)


def test_columns_of_json_values_are_expanded(tmp_path: Path) -> None:
    async def story(catalog: SqliteCatalog) -> None:
        sql = "SELECT t.key, p.value FROM json_each('{\"a\": [1, 2]}') t, json_tree(t.value) p WHERE p.atom IS NOT NULL"
        found = await catalog.query(sql, rows_max=10, timeout_ms=LONG_MS)
        assert found.rows == (b'["a", 1]', b'["a", 2]')

    with_catalog(tmp_path, story)


def test_a_cancelled_query_ends_and_the_next_one_runs(tmp_path: Path) -> None:
    async def story(catalog: SqliteCatalog) -> None:
        endless = asyncio.create_task(catalog.query(counting("count(*)"), rows_max=10, timeout_ms=LONG_MS))
        next_one = asyncio.create_task(catalog.query("SELECT 1", rows_max=10, timeout_ms=LONG_MS))
        await asyncio.sleep(0)
        endless.cancel()
        assert (await next_one).rows == (b"[1]",)
        assert endless.cancelled()

    with_catalog(tmp_path, story)


def test_closing_the_catalog_ends_its_queries(tmp_path: Path) -> None:
    async def story(catalog: SqliteCatalog) -> None:
        endless = [
            asyncio.create_task(catalog.query(counting("count(*)"), rows_max=10, timeout_ms=LONG_MS)) for _ in range(3)
        ]
        await asyncio.sleep(0)
        await catalog.close()
        for ended in await asyncio.gather(*endless, return_exceptions=True):
            assert isinstance(ended, MillstreamError)
            assert ended.code is ErrorCode.SHUTTING_DOWN
        await catalog.open()
        assert (await catalog.query("SELECT 1", rows_max=10, timeout_ms=LONG_MS)).rows == (b"[1]",)

    with_catalog(tmp_path, story)


class _HeldEngine:
    """Executes queries when the test permits."""

    def __init__(self) -> None:
        self.permits = asyncio.Semaphore(0)
        self.ended: list[str] = []

    async def execute(self, query: LimitedQuery) -> QueryResult:
        try:
            await self.permits.acquire()
            return QueryResult(("sql",), (query.sql.encode(),), truncated=False)
        finally:
            self.ended.append(query.sql)

    async def close(self) -> None:
        pass


def with_held_engine(story: Callable[[_HeldEngine, QueryQueue], Awaitable[None]]) -> None:
    async def run() -> None:
        engine = _HeldEngine()
        await asyncio.wait_for(story(engine, QueryQueue(engine)), WAIT_S)

    asyncio.run(run())


def test_queries_beyond_the_queue_are_refused_with_a_retriable_error() -> None:
    async def story(engine: _HeldEngine, queries: QueryQueue) -> None:
        names = [str(number) for number in range(QUERIES_MAX)]
        admitted = [asyncio.create_task(queries.run(name, rows_max=1, timeout_ms=LONG_MS)) for name in names]
        await asyncio.sleep(0)
        with pytest.raises(MillstreamError) as refused:
            await queries.run("refused", rows_max=1, timeout_ms=LONG_MS)
        assert refused.value.code is ErrorCode.QUERY_QUEUE_FULL
        assert refused.value.retriable
        engine.permits.release()
        await admitted[0]
        later = asyncio.create_task(queries.run("later", rows_max=1, timeout_ms=LONG_MS))
        for _ in range(QUERIES_MAX):
            engine.permits.release()
        await asyncio.gather(*admitted, later)
        assert engine.ended == [*names, "later"]

    with_held_engine(story)


def test_the_timeout_includes_the_wait_for_other_queries() -> None:
    async def story(engine: _HeldEngine, queries: QueryQueue) -> None:
        first = asyncio.create_task(queries.run("first", rows_max=1, timeout_ms=LONG_MS))
        await asyncio.sleep(0)
        with pytest.raises(MillstreamError) as waited:
            await queries.run("waiting", rows_max=1, timeout_ms=1)
        assert waited.value.code is ErrorCode.REQUEST_TIMED_OUT
        engine.permits.release()
        assert (await first).rows == (b"first",)
        assert engine.ended == ["first"]

    with_held_engine(story)


def test_a_cancelled_wait_leaves_the_queue() -> None:
    async def story(engine: _HeldEngine, queries: QueryQueue) -> None:
        waiting = [asyncio.create_task(queries.run("x", rows_max=1, timeout_ms=LONG_MS)) for _ in range(QUERIES_MAX)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        engine.permits.release()
        assert (await queries.run("next", rows_max=1, timeout_ms=LONG_MS)).rows == (b"next",)

    with_held_engine(story)
