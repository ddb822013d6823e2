"""Runs a pipeline that is a SQL file: its statements, one after the other."""

import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from millstream.spark.pipelines.failures import told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class Statement(NamedTuple):
    """One statement.

    `text` has blanks for everything before it, so that positions in Spark's errors are those in the file.
    """

    line: int
    text: str

    @property
    def first_line(self) -> str:
        return self.text.strip().split("\n", 1)[0]


class Result(NamedTuple):
    """The result of a statement; `columns` is empty for a statement that returns no rows."""

    statement: Statement
    seconds: float
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    is_cut: bool
    """True if there are more rows."""


def split(spark: "SparkSession", text: str) -> list[Statement]:
    """Splits a SQL file as Spark does: at semicolons outside strings, comments and blocks."""
    jvm: Any = spark.sparkContext._jvm
    found = jvm.org.apache.spark.sql.catalyst.parser.SqlStatementSplitter.split(text)
    each = found.completeStatements()
    parts = [each.apply(number).statement() for number in range(each.size())] + [found.partialStatement()]
    statements = []
    behind = 0
    for part in filter(_is_statement, parts):
        start = text.index(part.strip(), behind)
        behind = start + len(part.strip())
        start += len(part.strip()) - len(_without_comments_ahead(part.strip()))
        blank = re.sub(r"[^\n]", " ", text[:start])
        statements.append(Statement(text.count("\n", 0, start) + 1, blank + text[start:behind]))
    return statements


_COMMENT = re.compile(r"\s*(?:--[^\n]*(?:\n|$)|/\*(?!\+).*?\*/)", re.DOTALL)


def _without_comments_ahead(part: str) -> str:
    while (comment := _COMMENT.match(part)) is not None:
        part = part[comment.end() :]
    return part.lstrip()


def _is_statement(part: str) -> bool:
    return bool(_without_comments_ahead(part))


def run_sql(spark: "SparkSession", file: Path, text: str, rows_max: int, show: Callable[[Result], None]) -> None:
    """Runs all statements in order. Raises PipelineError with the line of the first one that fails.

    Syntax errors in any statement are found before the first one runs.
    """
    statements = split(spark, text)
    for statement in statements:
        _with_line(statement, file, partial(_parse, spark, statement))
    for statement in statements:
        show(_with_line(statement, file, partial(_run, spark, statement, rows_max)))


def _with_line(statement: Statement, file: Path, work: Callable[[], T]) -> T:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return work()
    except (PySparkException, Py4JError) as error:
        raise told(str(error), f"{file.name}, line {statement.line}", file) from error


def _parse(spark: "SparkSession", statement: Statement) -> None:
    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    parser.parsePlan(statement.text)


def _run(spark: "SparkSession", statement: Statement, rows_max: int) -> Result:
    begun_s = time.monotonic()
    frame = spark.sql(statement.text)
    rows = frame.take(rows_max + 1) if frame.columns else []
    return Result(statement, time.monotonic() - begun_s, frame.columns, rows[:rows_max], len(rows) > rows_max)
