"""Executes one SQL statement of a user on the catalog's file.

The connection is read-only. An authorizer permits SELECT with the functions of a list, and hides the secrets of the
brokers. So a statement cannot change the catalog, reach another file, or read more than the public tables.

This module uses the standard library only: the query process imports it, and no other part of the broker.
"""

import json
import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ANSWER_BYTES_MAX = 8 * 1024 * 1024
VALUE_BYTES_MAX = 1024 * 1024
NAME_CHARACTERS_MAX = 1_000
"""Maximum length of a column name. A column without a name is named after its whole expression."""

MESSAGE_CHARACTERS_MAX = 2_000
"""Maximum length of an error text. SQLite repeats parts of the statement in it."""

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: VALUE_BYTES_MAX,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 64 * 1024,
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 100,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
_STEPS = 10_000
"""Number of SQLite engine steps between two checks for cancellation, well under a millisecond."""

_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_FUNCTION_NAMES = """
    abs ceil ceiling floor max min mod round sign
    char concat concat_ws format glob instr length like lower ltrim octet_length printf quote replace rtrim substr
    substring trim unicode upper
    coalesce if ifnull iif nullif typeof
    current_date current_time current_timestamp date datetime julianday strftime time timediff unixepoch
    avg count group_concat string_agg sum total
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    json json_array json_array_length json_extract json_group_array json_group_object json_object json_quote
    json_type json_valid -> ->>
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
"""The functions that statements may call. Functions that create large values, such as randomblob, are not needed."""

_SECRETS = "secrets"
"""The table that only brokers may read."""


class QueryResult(NamedTuple):
    columns: tuple[str, ...]
    rows: tuple[bytes, ...]
    """Each row is a JSON array of nulls, numbers and strings. Bytes are strings of hexadecimal digits."""
    truncated: bool


class RefusedStatementError(Exception):
    """The statement is invalid, or does more than read. The text is the reason."""


def execute(path: str, sql: str, rows_max: int, is_cancelled: Callable[[], bool] | None = None) -> QueryResult:
    """Returns the rows of one statement. Raises RefusedStatementError, and MemoryError without enough memory.

    SQLite calls `is_cancelled` from time to time, but not within one call of a function such as LIKE. If it returns
    True, the statement ends with RefusedStatementError.
    """
    try:
        connection = _connect(path)
        try:
            if is_cancelled is not None:
                connection.set_progress_handler(is_cancelled, _STEPS)
            return _read(connection.execute(sql), rows_max)
        finally:
            connection.close()
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise RefusedStatementError(_reason(str(error)[:MESSAGE_CHARACTERS_MAX])) from error


def _reason(text: str) -> str:
    if "prohibited" in text:
        return text + "; only brokers may read this table"
    if "not authorized to use function" in text:
        return text + "; docs/catalog.md lists the functions that queries can use"
    if "not authorized" in text or "authorization denied" in text:
        return text + "; queries can only read: use SELECT"
    return text


def _connect(path: str) -> sqlite3.Connection:
    uri = Path(path).absolute().as_uri()
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, isolation_level=None, timeout=1)
    try:
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        connection.execute("PRAGMA temp_store = MEMORY")  # Sorting then creates no files.
        # SQLite creates a virtual table at its first use, which the authorizer refuses. So json_each and json_tree are
        # used before, and tables that show the raw pages of the file or the state of the engine cannot be used.
        connection.execute("SELECT 1 FROM json_each('0'), json_tree('0')").close()
        connection.set_authorizer(_authorize)
    except BaseException:
        connection.close()
        raise
    return connection


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _view: str | None) -> int:
    if action not in _ALLOWED:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and second not in _FUNCTIONS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_READ and first == _SECRETS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _read(cursor: sqlite3.Cursor, rows_max: int) -> QueryResult:
    columns = tuple(column[0][:NAME_CHARACTERS_MAX] for column in cursor.description or ())
    rows: list[bytes] = []
    size = 0
    for row in cursor:
        text = json.dumps([_plain(value) for value in row])
        size += len(text)
        if len(rows) == rows_max or size > ANSWER_BYTES_MAX:
            return QueryResult(columns, tuple(rows), truncated=True)
        rows.append(text.encode())
    return QueryResult(columns, tuple(rows), truncated=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
