"""Runs queries of users over the catalog's tables: read-only, limited in time and size, one at a time.

Queries run on a connection of their own that cannot write. An authorizer permits only SELECT and function calls. So a
query cannot change the catalog, reach another file, or read the secrets of the brokers.
"""

import asyncio
import json
import math
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.clock import Clock
from millstream.seams.workers import Workers

ROWS_MAX = 10_000
ANSWER_BYTES_MAX = 8 * 1024 * 1024
TIMEOUT_MS_MAX = 10_000
VALUE_BYTES_MAX = 1024 * 1024
NAME_CHARACTERS_MAX = 1_000
"""Maximum length of a column name. A column without a name is named after its whole expression."""

SQL_BYTES_MAX = 64 * 1024

_STEPS = 10_000
"""Number of SQLite engine steps between two checks of the time, well under a millisecond."""

_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension"})
_SECRETS = "secrets"
"""The table that only brokers may read."""


class QueryResult(NamedTuple):
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    """Each row is a JSON array of nulls, numbers and strings. Bytes are strings of hexadecimal digits."""
    truncated: bool


class SqliteQueries:
    """Runs the queries of one catalog file."""

    def __init__(self, path: Path, *, workers: Workers, clock: Clock) -> None:
        self._path = path
        self._workers = workers
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def run(self, sql: str, *, rows_max: int, timeout_ms: int) -> QueryResult:
        """Returns the rows of one statement.

        Raises INVALID_REQUEST if the statement is invalid or would write. Raises REQUEST_TIMED_OUT if it takes too
        long; the wait for other queries does not count.
        """
        rows = min(max(rows_max, 0), ROWS_MAX)
        limit_s = min(max(timeout_ms, 1), TIMEOUT_MS_MAX) / 1000
        async with self._one_at_a_time:
            return await self._workers.run(lambda: self._run(sql, rows, limit_s))

    def _run(self, sql: str, rows_max: int, limit_s: float) -> QueryResult:
        until_s = self._clock.monotonic_s() + limit_s
        try:
            connection = _connect(self._path)
            try:
                connection.set_progress_handler(lambda: self._clock.monotonic_s() > until_s, _STEPS)
                return _read(connection.execute(sql), rows_max)
            finally:
                connection.close()
        except sqlite3.OperationalError as error:
            if self._clock.monotonic_s() > until_s:
                raise MillstreamError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"the query took longer than {limit_s:g} s; narrow it or raise its timeout",
                ) from error
            raise _refused(error) from error
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise _refused(error) from error


def _refused(error: Exception) -> MillstreamError:
    text = str(error)
    if "prohibited" in text:
        text += "; only brokers may read this table"
    elif any(sign in text for sign in ("not authorized", "authorization denied")):
        text += "; queries can only read: use SELECT"
    return MillstreamError(ErrorCode.INVALID_REQUEST, f"the query cannot be run: {text}")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=1)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES_MAX)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_authorizer(_authorize)
    return connection


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _view: str | None) -> int:
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and second in _FORBIDDEN_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_READ and first == _SECRETS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _read(cursor: sqlite3.Cursor, rows_max: int) -> QueryResult:
    columns = tuple(column[0][:NAME_CHARACTERS_MAX] for column in cursor.description or ())
    rows: list[str] = []
    size = 0
    for row in cursor:
        text = json.dumps([_plain(value) for value in row])
        size += len(text)
        if len(rows) == rows_max or size > ANSWER_BYTES_MAX:
            return QueryResult(columns, tuple(rows), truncated=True)
        rows.append(text)
    return QueryResult(columns, tuple(rows), truncated=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
