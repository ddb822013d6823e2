"""Creates a Spark session with the settings that the source and the sink need, and that make small batches fast."""

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
"""Settings that make a repeated batch divide its rows among tasks as before, regardless of the tasks' sizes."""

_UNCHECKED = "ARROW_ENABLE_UNSAFE_MEMORY_ACCESS"
"""Environment variable that disables bounds checks in Java's Arrow if it is "true".

The batches come from Spark's own workers, and checking each access costs nearly a tenth of the time per row in Java.
"""

SETTINGS = {
    **DIVIDING_ALIKE,
    # Over TCP, each batch waits for a delayed acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    # Off by default, and then the source must read rows that a filter removes.
    "spark.sql.python.filterPushdown.enabled": "true",
    # The default manager starts processes for each checkpoint file. This one needs the lock of `checkpoints`.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Spark settings of `session`; the caller can override each of them."""

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Environment variable that is set if spark-submit started this program, after it had started Java."""


def session(
    app_name: str = "millstream",
    *,
    master: str | None = None,
    java: str = "any",
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Returns a Spark session with the format "millstream", on `master` or on this machine's cores.

    Spark's workers run this Python, or the one that PYSPARK_PYTHON names. That one must exist on this machine too:
    INVALID_SETTING otherwise. Java is the one of JAVA_HOME, else one on the PATH, else the one of
    `millstream[spark-java]`; `java="bundled"` forces the last. Raises JavaNotFoundError if there is none. `settings`
    are Spark's own settings and override the defaults (`SETTINGS`).

    If a session already exists, it is returned, and its Python, Java and transport stay as they are.

    From then on, writers of the format "millstream" accept the output mode `update`, and determine from the query
    whether rows must be sorted so that a batch can be repeated (`writer_hooks`). Two drivers cannot run queries with
    the same checkpoint on a local disk: the later `start` raises CheckpointInUseError.
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
    """Sets both of Spark's variables for the Python interpreter to the same value.

    Spark runs a source in one Python on the driver, to plan, and on executors, to read. How it found the source decides
    which of the two variables it uses.
    """
    chosen = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if which(chosen) is None:
        text = (
            f"PYSPARK_PYTHON={chosen} does not exist on this machine, but Spark runs parts of sources and sinks on the "
            "driver too. Unpack the environment here as well, or start this program in the directory that has it"
        )
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    os.environ["PYSPARK_DRIVER_PYTHON"] = chosen


def _is_found() -> bool:
    """True if Spark discovers the format by itself.

    Spark imports every module named `pyspark_…`, and finds none of them if one import fails. So the result is certain
    only if `pyspark_millstream` is the only such module.
    """
    return [module.name for module in iter_modules() if module.name.startswith("pyspark_")] == ["pyspark_millstream"]
