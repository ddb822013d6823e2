"""Query, a Millstream API: runs read-only SQL on the tables of the catalog."""

from typing import Protocol

from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.catalog.queries import QueryResult
from millstream.model.errors import MillstreamError
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "Query"


class Queries(Protocol):
    async def query(self, sql: str, *, rows_max: int, timeout_ms: int) -> QueryResult: ...


class QueryHandler:
    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def __call__(self, request: BrokerRequest) -> Result:
        return Work(self._answer(request.version, read_request(API, request.version, request.frame, request.body)))

    async def _answer(self, version: int, fields: Fields) -> bytes:
        try:
            result = await self._queries.query(
                fields["sql"], rows_max=fields["rows_max"], timeout_ms=fields["timeout_ms"]
            )
        except MillstreamError as error:
            return write_response(API, version, {"error_code": error.code.number, "error_message": error.detail})
        rows = [row.encode() for row in result.rows]
        return write_response(API, version, {"columns": result.columns, "rows": rows, "truncated": result.truncated})
