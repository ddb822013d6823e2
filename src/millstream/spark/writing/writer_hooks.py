"""Extends Spark's writers with the format "millstream", in a process that has called `session`.

Output mode `update`: Spark refuses it for sinks written in Python. Each batch of such a query is instead written as a
table in `foreachBatch`, numbered by query and batch like any other.

`rowOrder`: if it is not set, it is derived from the query's plan, which only the driver knows. With the wrong order, a
repeated batch would lose rows.

`txnId` within `foreachBatch` names one write of each batch. Spark gives the batch number only to the thread that runs
the function. So it is stored with the session of the batch's rows, for writes from other threads.

`bootstrap`: if it is not set, it comes from the environment of this process.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.spark.hooks import add
from millstream.spark.options import default_bootstrap, parse_options, sink_options
from millstream.spark.writing.row_order import row_order_of
from millstream.spark.writing.sink import BATCH, QUERY, target_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT = "millstream"
_UPDATE = "update"
"""The `txnId` of the single write per batch of a query in output mode `update`."""

_batches: "WeakKeyDictionary[SparkSession, dict[str, str | None]]" = WeakKeyDictionary()
"""Local properties of a batch (query id and batch number), by the session that Spark creates for the batch's rows."""


def extend() -> None:
    """Installs the extensions for all writers of this process."""
    add(DataStreamWriter, "start", _start)
    add(DataStreamWriter, "foreachBatch", _for_each_batch)
    add(DataFrameWriter, "save", _save)


def _start(
    start: "Callable[..., StreamingQuery]", writer: DataStreamWriter, *arguments: Any, **named: Any
) -> "StreamingQuery":
    remaining = _apply_arguments(start, writer, arguments, named)
    if _field(writer, "source") == FORMAT:
        options = _with_defaults(writer, _field(writer, "extraOptions"), is_numbered=True)
        if _field(writer, "outputMode").toString() == "Update":
            _write_in_batches(writer, options)
    return start(writer, **remaining)


def _save(save: Callable[..., None], writer: DataFrameWriter, *arguments: Any, **named: Any) -> None:
    remaining = _apply_arguments(save, writer, arguments, named)
    if writer._jwrite.source() == FORMAT:
        options: Any = writer._jwrite.extraOptions()
        _with_defaults(writer, options, is_numbered=options.contains("txnId"))
        with _batch_properties(writer._spark):
            save(writer, **remaining)
    else:
        save(writer, **remaining)


def _for_each_batch(
    for_each_batch: Callable[..., DataStreamWriter], writer: DataStreamWriter, func: "Callable[[DataFrame, int], None]"
) -> DataStreamWriter:
    def noted(batch: "DataFrame", number: int) -> None:
        context = batch.sparkSession.sparkContext
        _batches[batch.sparkSession] = {name: context.getLocalProperty(name) for name in (QUERY, BATCH)}
        func(batch, number)

    return for_each_batch(writer, noted)


@contextmanager
def _batch_properties(session: "SparkSession") -> "Iterator[None]":
    """Gives this thread the active session and the batch's local properties.

    Spark then finds the format in any thread, and its tasks know which batch they write.
    """
    context = session.sparkContext
    sessions: Any = session._get_j_spark_session_class(session._jvm)
    if not sessions.getActiveSession().isDefined():
        sessions.setActiveSession(session._jsparkSession)
    properties = _batches.get(session, {}) if context.getLocalProperty(QUERY) is None else {}
    for name, value in properties.items():
        context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it.
    try:
        yield
    finally:
        for name in properties:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


def _apply_arguments(
    method: Callable[..., Any],
    writer: DataFrameWriter | DataStreamWriter,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
) -> dict[str, Any]:
    """Sets the format, output mode and options that were passed to the call on the writer.

    Returns the arguments that remain.
    """
    given = signature(method).bind(writer, *arguments, **named).arguments
    del given["self"]
    writer.options(**given.pop("options", {}))
    for name in ("format", "outputMode"):
        if (value := given.pop(name, None)) is not None:
            getattr(writer, name)(value)
    return given


def _with_defaults(writer: DataFrameWriter | DataStreamWriter, given: Any, *, is_numbered: bool) -> dict[str, str]:
    """Sets missing options on a writer and returns all of them. `is_numbered`: the order of its rows matters."""
    added: dict[str, str] = {}
    if not given.contains("bootstrap"):
        added["bootstrap"] = default_bootstrap()
    if is_numbered and not given.contains("rowOrder"):
        added["rowOrder"] = row_order_of(writer._df._jdf.queryExecution().analyzed()).value
    writer.options(**added)
    jvm: Any = writer._spark.sparkContext._jvm
    return dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(given.originalMap())) | added


def _write_in_batches(writer: DataStreamWriter, options: dict[str, str]) -> None:
    """Writes each batch as a table. Errors in the options are raised here, not by the first batch."""
    target_of(sink_options(parse_options(options), streaming=True), writer._df.schema)

    def store(batch: "DataFrame", number: int) -> None:
        batch.write.format(FORMAT).options(**options).option("txnId", _UPDATE).mode("append").save()

    writer.foreachBatch(store)


def _field(writer: DataStreamWriter, name: str) -> Any:
    """Reads a private field of Spark's Java writer, for which Spark has no getter."""
    jvm_writer: Any = writer._jwrite
    field = jvm_writer.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(jvm_writer)
