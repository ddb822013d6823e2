"""Locks the checkpoint of each running query so that two drivers never write the same one.

The faster of Spark's checkpoint file managers checks that a file does not exist and then renames. On a local file
system two drivers can both pass that check. So the driver's JVM, which writes the checkpoint, holds a lock on a file in
it while the query runs. The operating system releases the lock when the JVM exits for any reason. On other file systems
a rename does not replace an existing file, and nothing is locked.

If another driver holds the lock, the query is stopped before its first batch, and its `start` raises
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
"""Checkpoint directories by run id, of queries stopped because their checkpoint is in use. `start` removes the entry.
"""

_guarded: "WeakSet[SparkSession]" = WeakSet()
"""Sessions that already have the listener."""


class CheckpointInUseError(RuntimeError):
    """Another driver runs a query with this checkpoint."""


class CheckpointLocks(StreamingQueryListener):
    """Takes a lock when a query starts and releases it when the query ends.

    Spark waits for `onQueryStarted` before a query's first batch, and ignores exceptions that it raises.
    """

    def __init__(self, spark: "SparkSession") -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._streams = spark.streams
        self._held: dict[str, Any] = {}
        """Locks by checkpoint directory."""
        self._runs: dict[str, str] = {}
        """Run id of the query that uses each lock. A later query of this driver with the same checkpoint takes the lock
        over.
        """

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
        """Returns the lock, or None if another process holds it."""
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
                    pass  # The session is stopping, and its JVM releases the lock.

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        """Does nothing: progress does not affect locks."""

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        """Does nothing: an idle query keeps its lock."""


def local_directory(checkpoint: str) -> str | None:
    """Returns the path of a checkpoint on a local file system, and None for other file systems."""
    parts = urlparse(checkpoint)
    return unquote(parts.path) if parts.scheme in ("", "file") else None


def _end(query: "StreamingQuery") -> None:
    """Stops the query before its first batch.

    The query's thread is blocked until the listener returns, so this function waits until the stop has taken effect.
    """
    threading.Thread(target=query.stop, name="stop of a query with a locked checkpoint", daemon=True).start()
    while query.isActive:
        time.sleep(_POLL_S)


def guard(spark: "SparkSession") -> None:
    """Locks the checkpoints of all queries that this session starts from now on.

    Repeated calls have no effect. One JVM cannot take the same lock twice.
    """
    if spark in _guarded:
        return
    _guarded.add(spark)
    spark.streams.addListener(CheckpointLocks(spark))
    for name in ("start", "toTable"):
        add(DataStreamWriter, name, _start_unless_locked)


def _start_unless_locked(
    begin: "Callable[..., StreamingQuery]", writer: DataStreamWriter, *arguments: Any, **options: Any
) -> "StreamingQuery":
    """Starts the query, and raises CheckpointInUseError if the listener stopped it."""
    query = begin(writer, *arguments, **options)
    directory = _refused.pop(str(query.runId), None)
    if directory is not None:
        text = f"the checkpoint {directory} is in use by a query of another driver; stop that query first"
        raise CheckpointInUseError(text)
    return query
