"""Executes queries in worker threads, for a broker inside another process. Memory is not limited."""

import asyncio
from pathlib import Path

from millstream.catalog.queries import LimitedQuery, refused
from millstream.catalog.statement import QueryResult, RefusedStatementError, execute
from millstream.seams.workers import Workers


class ThreadQueryEngine:
    """Executes the queries of one catalog file."""

    def __init__(self, path: Path, workers: Workers) -> None:
        self._path = path
        self._workers = workers
        self._is_closed = False

    async def execute(self, query: LimitedQuery) -> QueryResult:
        is_cancelled = False

        def work() -> QueryResult:
            return execute(str(self._path), query.sql, query.rows_max, lambda: is_cancelled or self._is_closed)

        self._is_closed = False
        running = self._workers.run(work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            is_cancelled = True
            await asyncio.wait((running,))  # The next query starts after this one has left its thread.
            raise
        except RefusedStatementError as error:
            raise refused(str(error)) from error

    async def close(self) -> None:
        self._is_closed = True
