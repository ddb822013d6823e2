"""A lock on the checkpoint of each running query, so that no two drivers write the same one.

Spark's quicker way to write checkpoint files looks whether a file is there and then renames; on a local file system
two drivers may both find none. So the driver's JVM, which is what writes, holds a lock on a file in the checkpoint for
as long as the query runs, or until the JVM is gone, however it ends. Elsewhere a rename does not replace what is there,
and nothing is locked.

A query whose checkpoint is another driver's is ended before its first batch, and its `start` raises
CheckpointInUseError.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse
from weakref import WeakSet

from py4j.protocol import Py4JJavaError
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.spark.hooks import add

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

LOCK_FILE = ".millstream.lock"
_POLL_S = 0.005

_refused: dict[str, str] = {}
"""Runs that were ended because their checkpoint is in use, until their `start` has said so."""

_guarded: "WeakSet[SparkSession]" = WeakSet()


class CheckpointInUseError(RuntimeError):
    """Another driver runs a query with this checkpoint."""


class CheckpointLocks(StreamingQueryListener):
    """Spark waits for `onQueryStarted` before a query's first batch, and takes no notice of what it raises."""

    def __init__(self, spark: "SparkSession") -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._streams = spark.streams
        self._held: dict[str, Any] = {}
        """Locks by checkpoint."""
        self._runs: dict[str, str] = {}
        """Which run each of them is for: one that comes later in this driver takes it over."""

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802  # Spark's names, here and below
        query = self._streams.get(str(event.id))
        if query is None:
            return
        directory = local_directory(query._jsq.streamingQuery().resolvedCheckpointRoot())
        if directory is None:
            return
        if directory not in self._held:
            lock = self._lock(directory)
            if lock is None:
                _refused[str(event.runId)] = directory
                _end(query)
                return
            self._held[directory] = lock
        self._runs[directory] = str(event.runId)

    def _lock(self, directory: str) -> Any:
        """None where another process has it."""
        channel = self._jvm.java.io.RandomAccessFile(f"{directory}/{LOCK_FILE}", "rw").getChannel()
        lock = channel.tryLock()
        if lock is None:
            channel.close()
        return lock

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        for directory, run in list(self._runs.items()):
            if run == str(event.runId):
                del self._runs[directory]
                try:
                    self._held.pop(directory).channel().close()
                except Py4JJavaError:
                    pass  # The session is being stopped, and everything with it.

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        """Nothing is to be done."""

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        """Nothing is to be done."""


def local_directory(checkpoint: str) -> str | None:
    """The path of a checkpoint on a local file system; None for others."""
    parts = urlparse(checkpoint)
    return unquote(parts.path) if parts.scheme in ("", "file") else None


def _end(query: "StreamingQuery") -> None:
    """The query's own thread waits for this to return; from here it does not begin any more."""
    threading.Thread(target=query.stop, name="end of a query whose checkpoint is in use", daemon=True).start()
    while query.isActive:
        time.sleep(_POLL_S)


def guard(spark: "SparkSession") -> None:
    """Lock the checkpoints of the queries that this session starts from now on; once, however often this is asked for:
    one JVM cannot take a lock twice."""
    if spark in _guarded:
        return
    _guarded.add(spark)
    spark.streams.addListener(CheckpointLocks(spark))
    for name in ("start", "toTable"):
        add(DataStreamWriter, name, _telling)


def _telling(
    begin: "Callable[..., StreamingQuery]", writer: DataStreamWriter, *arguments: Any, **options: Any
) -> "StreamingQuery":
    query = begin(writer, *arguments, **options)
    directory = _refused.pop(str(query.runId), None)
    if directory is not None:
        text = f"the checkpoint {directory} is in use: another driver runs a query with it, and must end first"
        raise CheckpointInUseError(text)
    return query
