"""Implements `millstream sql`, which queries the catalog."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.failures import HintedError, failures_explained, usage_error
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Timeout
from millstream.cli.output import print_json, print_line, print_note, print_table
from millstream.model.errors import ErrorCode, MillstreamError

if TYPE_CHECKING:
    from millstream.sdk.admin.admin_results import QueryResult
    from millstream.sdk.wire_client import WireClient

_TABLES = """
    SELECT name FROM sqlite_schema
    WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%' AND name <> 'secrets' ORDER BY name
"""
"""Selects the tables that can be queried. The broker refuses to read `secrets`."""


def sql(
    statement: Annotated[
        str | None, typer.Argument(metavar="[STATEMENT]", help="SQL statement that only reads.", show_default=False)
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read the statement from a file (- is standard input)."),
    ] = None,
    tables: Annotated[bool, typer.Option("--tables", help="List the tables and their columns.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Maximum number of rows.")] = 1_000,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Query the catalog in SQL: brokers, topics, partitions, producers, groups and committed offsets.

    Statements are in SQLite's dialect and can only read.
    """
    with failures_explained(as_json):
        text = None if tables else _statement(statement, file)
        if tables and (statement is not None or file is not None):
            raise usage_error("--tables cannot be combined with a statement or --file")
        from millstream.cli.session import connected

        with connected(bootstrap, timeout) as session:
            if text is None:
                _print_tables(session.run(_tables(session.client, timeout)), as_json)
            else:
                _print_result(session.run(_result(session.client, text, limit, timeout)), as_json)


def _statement(statement: str | None, file: str | None) -> str:
    if (statement is None) == (file is None):
        raise usage_error("give either a statement or --file; --tables lists the tables")
    text = _read(file) if file is not None else statement or ""
    if not text.strip():
        raise usage_error("the statement is empty")
    return text


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise usage_error(f"--file {file}: {error}") from None


async def _result(client: "WireClient", text: str, rows_max: int, timeout_s: float) -> "QueryResult":
    try:
        return await client.admin.query(text, rows_max=rows_max, timeout_s=timeout_s)
    except MillstreamError as error:
        if error.code is ErrorCode.INVALID_REQUEST and "no such" in error.detail:
            hint = "`millstream sql --tables` lists the tables and their columns."
            raise HintedError(error.code, error.detail, hint) from None
        raise


async def _tables(client: "WireClient", timeout_s: float) -> list[dict[str, Any]]:
    found = []
    for (name,) in (await client.admin.query(_TABLES, timeout_s=timeout_s)).rows:
        quoted = '"' + name.replace('"', '""') + '"'
        empty = await client.admin.query(f"SELECT * FROM {quoted} LIMIT 0", timeout_s=timeout_s)
        counted = await client.admin.query(f"SELECT count(*) FROM {quoted}", timeout_s=timeout_s)
        found.append({"table": name, "columns": list(empty.columns), "rows": counted.rows[0][0]})
    return found


def _print_tables(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
    else:
        shown = [(row["table"], row["rows"], ", ".join(row["columns"])) for row in rows]
        print_table(("table", "rows", "columns"), shown, numbers=("rows",))


def _print_result(result: "QueryResult", as_json: bool) -> None:
    if as_json:
        print_json({"columns": result.columns, "rows": result.rows, "truncated": result.is_truncated})
        return
    numbers = [
        name
        for index, name in enumerate(result.columns)
        if result.rows and all(isinstance(row[index], int | float | None) for row in result.rows)
    ]
    cells = [["-" if value is None else value for value in row] for row in result.rows]
    if result.columns:
        print_table(result.columns, cells, numbers=numbers)
    if result.is_truncated:
        print_note("millstream: there are more rows; raise --limit to show them")
    elif not result.rows:
        print_line("No rows.")
