"""Query, a Millstream API: runs read-only SQL on the tables of the catalog."""

import asyncio
from typing import Protocol

from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.catalog.statement import QueryResult
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response

API = "Query"


class Queries(Protocol):
    async def query(self, sql: str, *, rows_max: int, timeout_ms: int) -> QueryResult: ...


class QueryHandler:
    """Runs a Query request. Cancels it with SHUTTING_DOWN if the client disconnects or the broker stops."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        query = self._queries.query(fields["sql"], rows_max=fields["rows_max"], timeout_ms=fields["timeout_ms"])
        running = asyncio.ensure_future(query)

        def hurry() -> None:
            running.cancel()

        return Work(_answer(request.version, running), hurry)


async def _answer(version: int, running: asyncio.Future[QueryResult]) -> bytes:
    try:
        await asyncio.wait((running,))
    finally:
        running.cancel()  # Without effect on a query that is done.
    try:
        result = running.result()
    except asyncio.CancelledError:
        error = MillstreamError(
            ErrorCode.SHUTTING_DOWN, "the query was ended because the broker is stopping; retry it later"
        )
        return _refusal(version, error)
    except MillstreamError as error:
        return _refusal(version, error)
    return write_response(API, version, {"columns": result.columns, "rows": result.rows, "truncated": result.truncated})


def _refusal(version: int, error: MillstreamError) -> bytes:
    return write_response(API, version, {"error_code": error.code.number, "error_message": error.detail})
