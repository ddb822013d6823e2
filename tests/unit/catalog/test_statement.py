"""Tests which functions, tables and sizes a statement of a user may use."""

import sqlite3
from pathlib import Path

import pytest

from millstream.catalog.statement import QueryResult, RefusedStatementError, execute


def run(directory: Path, sql: str) -> QueryResult:
    path = directory / "catalog.db"
    if not path.exists():
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE topics (name TEXT, assignment TEXT)")
        connection.execute("INSERT INTO topics VALUES ('orders', '{\"a\": [1, 2]}')")
        connection.commit()
        connection.close()
    return execute(str(path), sql, 100)


@pytest.mark.parametrize(
    "call",
    [
        "randomblob(1)",
        "zeroblob(1)",
        "hex(name)",
        "load_extension('x')",
        "fts3_tokenizer('simple')",
        "sqlite_compileoption_get(1)",
        "soundex(name)",
        "random()",
    ],
)
def test_a_query_with_another_function_is_refused(call: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedStatementError, match=r"not authorized to use function: \w+; docs/catalog.md lists"):
        run(tmp_path, f"SELECT {call} FROM topics")
    with pytest.raises(RefusedStatementError, match="not authorized to use function"):
        run(tmp_path, f"SELECT name FROM topics ORDER BY {call}")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("upper(name) || substr(name, 1, 2) || length(name)", '"ORDERSor6"'),
        ("json_extract(assignment, '$.a[1]')", "2"),
        ("assignment -> '$.a'", '"[1,2]"'),
        ("assignment ->> '$.a[0]'", "1"),
        ("name LIKE 'ord%'", "1"),
        ("name GLOB 'ord*'", "1"),
        ("coalesce(NULL, iif(0, 1, 2))", "2"),
        ("count(DISTINCT name)", "1"),
        ("group_concat(name || '=' || 1, ' ')", '"orders=1"'),
        ("row_number() OVER (ORDER BY name)", "1"),
        ("date('2026-01-31 12:00:00.000Z', '+1 day')", '"2026-02-01"'),
        ("round(avg(2.5), 0)", "3.0"),
    ],
)
def test_a_query_can_use_each_permitted_function(expression: str, value: str, tmp_path: Path) -> None:
    assert run(tmp_path, f"SELECT {expression} FROM topics").rows == (f"[{value}]".encode(),)


@pytest.mark.parametrize("table", ["dbstat", "sqlite_stmt", "sqlite_dbpage", "pragma_user_version", "fts3tokenize"])
def test_a_query_of_an_internal_sqlite_table_is_refused(table: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedStatementError):
        run(tmp_path, f"SELECT * FROM {table}")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT " + ", ".join(["printf('%.*c', 1000000, 'x')"] * 1_900), "too many columns"),
        ("SELECT 1" + " OR 1" * 300, "Expression tree is too large"),
        (" UNION ALL ".join(["SELECT 1"] * 100), "too many terms in compound SELECT"),
        (f"SELECT name LIKE '{'%a' * 600}' FROM topics", "pattern too complex"),
        ("SELECT json_array(" + ", ".join("1" * 101) + ")", "too many arguments"),
        ("SELECT '" + "x" * 70_000 + "'", "too large"),
    ],
)
def test_a_statement_above_a_size_limit_is_refused(sql: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedStatementError, match=reason):
        run(tmp_path, sql)


def test_an_error_text_is_limited_even_if_it_repeats_the_statement(tmp_path: Path) -> None:
    with pytest.raises(RefusedStatementError) as refused:
        run(tmp_path, f"SELECT {'x' * 60_000} FROM topics")
    assert len(str(refused.value)) < 3_000
