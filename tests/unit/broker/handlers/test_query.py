"""Tests Query: SQL on the catalog's tables over the wire."""

import asyncio
import json
from pathlib import Path

import pytest

from builders.requests import request_frame
from builders.served import ServedBroker, serve
from millstream.broker.dispatch.request import BrokerRequest, Work
from millstream.broker.handlers.query import QueryHandler
from millstream.catalog.memory import MemoryCatalog
from millstream.catalog.sqlite import SqliteCatalog
from millstream.catalog.statement import QueryResult
from millstream.model.errors import ErrorCode
from millstream.model.ids import BrokerId
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy
from millstream.seams.workers import ThreadWorkers
from millstream.wire.messages import read_response, write_request
from millstream.wire.schema_readers import Fields


def request_of(fields: Fields) -> BrokerRequest:
    return BrokerRequest(0, correlation_id=1, frame=memoryview(write_request("Query", 0, fields)), body=0)


async def answered(handler: QueryHandler, **fields: object) -> Fields:
    work = handler(request_of(fields))
    assert isinstance(work, Work)
    answer = await work.run
    assert isinstance(answer, bytes)
    return read_response("Query", 0, memoryview(answer), 0)


def test_rows_are_returned_as_json_with_column_names(tmp_path: Path) -> None:
    async def story() -> None:
        workers = ThreadWorkers(2, "catalog")
        catalog = SqliteCatalog(tmp_path / "catalog.db", workers=workers, clock=SystemClock(), entropy=SystemEntropy())
        try:
            await catalog.open()
            for name in ("orders", "visits"):
                await catalog.create_topic(name, 1, {}, [[BrokerId(1)]])
            handler = QueryHandler(catalog)
            answer = await answered(handler, sql="SELECT name, partitions FROM topics ORDER BY name")
            assert (answer["error_code"], answer["error_message"], answer["truncated"]) == (0, None, False)
            assert answer["columns"] == ["name", "partitions"]
            assert [json.loads(bytes(row)) for row in answer["rows"]] == [["orders", 1], ["visits", 1]]
            answer = await answered(handler, sql="SELECT printf('%.*c', 800000, '0') AS long")
            assert json.loads(bytes(answer["rows"][0])) == ["0" * 800_000]
            answer = await answered(handler, sql="SELECT name FROM topics", rows_max=1)
            assert (len(answer["rows"]), answer["truncated"]) == (1, True)
            answer = await answered(handler, sql="DELETE FROM topics")
            assert answer["error_code"] == ErrorCode.INVALID_REQUEST.number
            assert "only read" in answer["error_message"]
        finally:
            await catalog.close()
            workers.close()

    asyncio.run(story())


def test_a_catalog_without_sql_tables_refuses_queries(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        answer = await (await broker.peer()).ask("Query", 0, {"sql": "SELECT 1"})
        assert answer["error_code"] == ErrorCode.INVALID_REQUEST.number
        assert "in memory" in answer["error_message"]

    serve(tmp_path, story)


class _EndlessQueries:
    """Queries that end only when they are cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def query(self, sql: str, *, rows_max: int, timeout_ms: int) -> QueryResult:
        self.begun.set()
        try:
            await asyncio.Event().wait()
            raise AssertionError
        finally:
            self.ended.set()


def test_a_query_ends_when_its_client_disconnects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(broker: ServedBroker) -> None:
        queries = _EndlessQueries()
        monkeypatch.setattr(MemoryCatalog, "query", lambda _, sql, **limits: queries.query(sql, **limits))
        peer = await broker.peer()
        peer.send(request_frame("Query", 0, {"sql": "SELECT 1"}))
        await queries.begun.wait()
        answer = await (await broker.peer()).ask("Metadata", 9, {"topics": []})
        assert answer["brokers"], "other clients are served meanwhile"
        assert not queries.ended.is_set()
        peer.close()
        await queries.ended.wait()

    serve(tmp_path, story)


def test_a_query_is_answered_when_the_broker_stops() -> None:
    async def story() -> None:
        queries = _EndlessQueries()
        request = request_of({"sql": "SELECT 1"})
        work = QueryHandler(queries)(request)
        assert isinstance(work, Work)
        assert work.hurry is not None
        answering = asyncio.create_task(work.run)
        await queries.begun.wait()
        work.hurry()
        answer = await answering
        assert isinstance(answer, bytes)
        fields = read_response("Query", 0, memoryview(answer), 0)
        assert fields["error_code"] == ErrorCode.SHUTTING_DOWN.number
        assert queries.ended.is_set()

    asyncio.run(story())


def test_cancelling_the_request_ends_its_query() -> None:
    async def story() -> None:
        queries = _EndlessQueries()
        work = QueryHandler(queries)(request_of({"sql": "SELECT 1"}))
        assert isinstance(work, Work)
        answering = asyncio.ensure_future(work.run)
        await queries.begun.wait()
        answering.cancel()
        await queries.ended.wait()

    asyncio.run(story())
