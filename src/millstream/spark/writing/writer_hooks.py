"""What a session adds to Spark's writers where their format is "millstream".

Output mode `update`: Spark refuses it for sinks in Python. There is no reason for that in ours, so each batch of such a
query is written as a table, numbered by query and batch as ever.

`rowOrder`: where it is not said, it follows from the query's plan, which nobody but the driver knows. A batch whose
order changes when it is repeated would lose rows otherwise.

A `txnId` within `foreachBatch` names one write of every batch. Spark tells only the thread that the function runs in
which batch that is; so it is noted for the session that belongs to the batch's rows, for writes by other threads.

`bootstrap`: where it is not said, it is what the environment of this process says.
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
"""The `txnId` of the one write that a batch of a query in mode update makes."""

_batches: "WeakKeyDictionary[SparkSession, dict[str, str | None]]" = WeakKeyDictionary()
"""What Spark tells tasks of a batch, by the session that it makes for its rows."""


def extend() -> None:
    """For all writers of this process."""
    add(DataStreamWriter, "start", _start)
    add(DataStreamWriter, "foreachBatch", _for_each_batch)
    add(DataFrameWriter, "save", _save)


def _start(
    start: "Callable[..., StreamingQuery]", writer: DataStreamWriter, *arguments: Any, **named: Any
) -> "StreamingQuery":
    left = _told(start, writer, arguments, named)
    if _field(writer, "source") == FORMAT:
        options = _completed(writer, _field(writer, "extraOptions"), is_numbered=True)
        if _field(writer, "outputMode").toString() == "Update":
            _write_in_batches(writer, options)
    return start(writer, **left)


def _save(save: Callable[..., None], writer: DataFrameWriter, *arguments: Any, **named: Any) -> None:
    left = _told(save, writer, arguments, named)
    if writer._jwrite.source() == FORMAT:
        options: Any = writer._jwrite.extraOptions()
        _completed(writer, options, is_numbered=options.contains("txnId"))
        with _of_its_batch(writer._spark):
            save(writer, **left)
    else:
        save(writer, **left)


def _for_each_batch(
    for_each_batch: Callable[..., DataStreamWriter], writer: DataStreamWriter, func: "Callable[[DataFrame, int], None]"
) -> DataStreamWriter:
    def noted(batch: "DataFrame", number: int) -> None:
        context = batch.sparkSession.sparkContext
        _batches[batch.sparkSession] = {name: context.getLocalProperty(name) for name in (QUERY, BATCH)}
        func(batch, number)

    return for_each_batch(writer, noted)


@contextmanager
def _of_its_batch(session: "SparkSession") -> "Iterator[None]":
    """Whatever thread this is, Spark finds the format, and tells its tasks of which batch their rows are."""
    context = session.sparkContext
    sessions: Any = session._get_j_spark_session_class(session._jvm)
    if not sessions.getActiveSession().isDefined():
        sessions.setActiveSession(session._jsparkSession)
    told = _batches.get(session, {}) if context.getLocalProperty(QUERY) is None else {}
    for name, value in told.items():
        context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None takes it away.
    try:
        yield
    finally:
        for name in told:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


def _told(
    method: Callable[..., Any],
    writer: DataFrameWriter | DataStreamWriter,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
) -> dict[str, Any]:
    """Tell the writer what is said beside a call and decides something here; what is left of it."""
    said = signature(method).bind(writer, *arguments, **named).arguments
    del said["self"]
    writer.options(**said.pop("options", {}))
    for name in ("format", "outputMode"):
        if (value := said.pop(name, None)) is not None:
            getattr(writer, name)(value)
    return said


def _completed(writer: DataFrameWriter | DataStreamWriter, said: Any, *, is_numbered: bool) -> dict[str, str]:
    """All options of a writer, with those that were not said; `is_numbered`: the order of its rows matters."""
    added: dict[str, str] = {}
    if not said.contains("bootstrap"):
        added["bootstrap"] = default_bootstrap()
    if is_numbered and not said.contains("rowOrder"):
        added["rowOrder"] = row_order_of(writer._df._jdf.queryExecution().analyzed()).value
    writer.options(**added)
    jvm: Any = writer._spark.sparkContext._jvm
    return dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(said.originalMap())) | added


def _write_in_batches(writer: DataStreamWriter, options: dict[str, str]) -> None:
    """What is wrong is raised here, and not by the first batch."""
    target_of(sink_options(parse_options(options), streaming=True), writer._df.schema)

    def store(batch: "DataFrame", number: int) -> None:
        batch.write.format(FORMAT).options(**options).option("txnId", _UPDATE).mode("append").save()

    writer.foreachBatch(store)


def _field(writer: DataStreamWriter, name: str) -> Any:
    """What a writer was told: Spark has no method that gives it."""
    jvm_writer: Any = writer._jwrite
    field = jvm_writer.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(jvm_writer)
