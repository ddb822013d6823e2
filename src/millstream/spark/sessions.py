"""A Spark session with what the source and the sink need, and what makes small batches quick."""

import os
import sys
from collections.abc import Mapping
from pkgutil import iter_modules
from shutil import which
from typing import TYPE_CHECKING

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.java import java_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIVIDING_ALIKE = {"spark.sql.adaptive.streaming.stateless.enabled": "false"}
"""A batch that is repeated must divide its rows among tasks as it did before, whatever size they turn out to be."""

_UNCHECKED = "ARROW_ENABLE_UNSAFE_MEMORY_ACCESS"
"""In the environment, "true" has Java's Arrow trust batches to be what they say: they come from a worker of Spark's
own, and to check each access costs nearly a tenth of what a row takes in Java."""

SETTINGS = {
    **DIVIDING_ALIKE,
    # Over TCP, each batch pays for a delayed acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    # Off by default; the source then cannot leave out what a filter does not want.
    "spark.sql.python.filterPushdown.enabled": "true",
    # The other one starts processes for each file of a checkpoint. This one needs the lock of `checkpoints`.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""What `session` sets unless the caller says otherwise."""

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""There where spark-submit has started this program, and Java before it."""


def session(
    app_name: str = "millstream",
    *,
    master: str | None = None,
    java: str = "any",
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A Spark session that knows the format "millstream", on `master`, or on this machine's cores.

    Spark's workers run on this Python, unless PYSPARK_PYTHON names another, which must be there on this machine too:
    INVALID_SETTING otherwise. Java is the one of JAVA_HOME, one on the
    PATH or the one of `millstream[spark-java]`; `java="bundled"` insists on the last. JavaNotFoundError when there is
    none. `settings` are Spark's own, and go before those chosen here (`SETTINGS`).

    Where a session exists already, it is that one: Python, Java and transport stay as they were chosen for it.
    Writers of the format "millstream" take the output mode `update` from now on, and find out by themselves where rows
    have to be sorted so that a batch can be repeated (`writers`). Two drivers cannot run queries with one checkpoint
    on a local disk: CheckpointInUseError, by the later `start`.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from millstream.spark.checkpoints import guard
    from millstream.spark.source import MillstreamSource
    from millstream.spark.writing.writer_hooks import extend

    if java not in ("any", "bundled"):
        raise ValueError(f"java={java!r}: expected 'any' or 'bundled'")
    if SparkContext._active_spark_context is None:
        _choose_python()
        if _SUBMITTED not in os.environ:
            os.environ.update(java_environment(os.environ, bundled=java == "bundled"))
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    on_executors = {f"spark.executorEnv.{_UNCHECKED}": os.environ.setdefault(_UNCHECKED, "true")}
    for name, value in {**SETTINGS, **on_executors, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not _is_found():
        spark.dataSource.register(MillstreamSource)
    guard(spark)
    extend()
    return spark


def _choose_python() -> None:
    """Spark runs a source on one Python everywhere: on the driver, to plan, and on executors, to read. Which of two
    names it looks at depends on how it found the source, so both name the same."""
    chosen = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if which(chosen) is None:
        text = (
            f"PYSPARK_PYTHON is {chosen}, which is not there on this machine; Spark runs steps of sources and sinks on "
            "the driver too. Unpack the environment here as well, or start this program where it is"
        )
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    os.environ["PYSPARK_DRIVER_PYTHON"] = chosen


def _is_found() -> bool:
    """Whether Spark finds the format by itself: surely, if ours is the only module that it looks at. One of them that
    cannot be imported hides the others."""
    return [module.name for module in iter_modules() if module.name.startswith("pyspark_")] == ["pyspark_millstream"]
