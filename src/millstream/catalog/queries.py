"""Runs queries of users over the catalog's tables: one at a time, from a bounded queue, each with a time limit.

An engine executes the queries outside of the event loop. The broker's engine is a process with limits on memory and CPU
time (`supervisor.query_process`). An embedded broker uses threads (`catalog.query_threads`).
"""

import asyncio
from typing import NamedTuple, Protocol

from millstream.catalog.statement import QueryResult
from millstream.model.errors import ErrorCode, MillstreamError

ROWS_MAX = 10_000
TIMEOUT_MS_MAX = 10_000
QUERIES_MAX = 16
"""Maximum number of queries that run or wait."""


class LimitedQuery(NamedTuple):
    sql: str
    rows_max: int
    timeout_s: float


class QueryEngine(Protocol):
    """Executes one query at a time."""

    async def execute(self, query: LimitedQuery) -> QueryResult:
        """Returns the rows. Raises INVALID_REQUEST if the query is invalid, would write, or needs too much memory.

        Cancelling the call ends the query. The caller limits the time; an engine may use the timeout as a second limit.
        """
        ...

    async def close(self) -> None:
        """Ends the running query. The engine may be used again."""
        ...


class QueryQueue:
    """The queue of queries. Invariant: at most QUERIES_MAX queries are in it, and the engine has at most one."""

    def __init__(self, engine: QueryEngine) -> None:
        self._engine = engine
        self._turn = asyncio.Lock()
        self._count = 0
        self._is_open = True

    def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        """Ends the running and the waiting queries with SHUTTING_DOWN."""
        self._is_open = False
        await self._engine.close()

    async def run(self, sql: str, *, rows_max: int, timeout_ms: int) -> QueryResult:
        """Returns the rows of one statement. Cancelling the call ends the query.

        Raises INVALID_REQUEST if the statement cannot be run, QUERY_QUEUE_FULL if too many queries wait, and
        REQUEST_TIMED_OUT if the wait and the query together take too long.
        """
        if self._count >= QUERIES_MAX:
            text = f"{QUERIES_MAX} other queries run or wait on this broker; retry later"
            raise MillstreamError(ErrorCode.QUERY_QUEUE_FULL, text)
        timeout_s = min(max(timeout_ms, 1), TIMEOUT_MS_MAX) / 1000
        query = LimitedQuery(sql, min(max(rows_max, 0), ROWS_MAX), timeout_s)
        self._count += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await self._run(query)
        except TimeoutError:
            text = f"the query and its wait for other queries took longer than {timeout_s:g} s"
            raise MillstreamError(ErrorCode.REQUEST_TIMED_OUT, f"{text}; narrow it or raise its timeout") from None
        finally:
            self._count -= 1
            assert self._count >= 0, "a query left the queue twice"

    async def _run(self, query: LimitedQuery) -> QueryResult:
        async with self._turn:
            self._check_open()
            try:
                return await self._engine.execute(query)
            except MillstreamError:
                self._check_open()  # The engine was closed, so its error has another reason.
                raise

    def _check_open(self) -> None:
        if not self._is_open:
            raise MillstreamError(ErrorCode.SHUTTING_DOWN, "the catalog is closed, so queries cannot be run")


def refused(reason: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_REQUEST, f"the query cannot be run: {reason}")
