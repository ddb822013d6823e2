"""Stops a pipeline on a signal: gracefully on the first one, immediately on the second.

Ctrl-C and SIGTERM have the same effect; only the exit code tells the parent process which one it was. The first signal
interrupts the pipeline's file, or, once the file has run, only requests a stop. The second one ends this process.
Spark's processes notice that and end, or `at_once` ends them first.
"""

import io
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from millstream.process.exit_codes import EXIT_BY_SECOND_SIGNAL
from millstream.spark.pipelines.query_monitor import QueryMonitor

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_POLL_S = 0.05
_WORKING = "Processing new data"
"""Status of a query while it runs a batch. At other times, a stop causes no work to be repeated."""


class Terminated(KeyboardInterrupt):
    """Interrupted by SIGTERM."""


class Stop:
    """Tracks whether a signal has requested a stop."""

    def __init__(self) -> None:
        self.is_asked = False
        self._interrupt: type[KeyboardInterrupt] = KeyboardInterrupt
        self.interrupts = True
        """True if the first signal raises KeyboardInterrupt."""
        self.at_once: Callable[[], None] | None = None
        """Called at the second signal, before this process ends."""

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Handles signals within the block, and restores the previous handlers afterwards."""
        before = {each: signal.getsignal(each) for each in _SIGNALS}
        self.listen()
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def listen(self) -> None:
        """Installs the signal handlers. Spark installs its own when it starts, so call this again afterwards."""
        for each in _SIGNALS:
            signal.signal(each, self._handle_signal)

    def interrupt(self) -> None:
        """Lets the first signal interrupt from now on. If it has already arrived, raises."""
        self.interrupts = True
        if self.is_asked:
            raise self._interrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delays an interrupt to the end of the block."""
        self.interrupts = False
        yield
        self.interrupt()

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_asked:
            if self.at_once is not None:
                self.at_once()
            os._exit(EXIT_BY_SECOND_SIGNAL)
        self.is_asked = True
        self._interrupt = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if self.interrupts:
            raise self._interrupt


class InterruptiblePipe(io.RawIOBase):
    """Reads a pipe such that a signal always interrupts the reading thread.

    Python handles signals between bytecodes. A signal that arrives just before a blocking read starts does not
    interrupt the read, and would be handled only when the pipe has data. So this class polls with a timeout.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, room: "WriteableBuffer") -> int:
        while not self._poll.poll(_POLL_S * 1000):
            pass
        return os.readv(self._pipe, [room])


def stop_queries(spark: "SparkSession", watch: QueryMonitor, grace_s: float) -> list[str]:
    """Stops all queries, each after its batch or when the grace period ends.

    Returns the names of the queries that the grace period cut off.
    """
    waiting = {query: watch.batches(str(query.runId)) for query in spark.streams.active}
    deadline = time.monotonic() + grace_s
    cut: list[str] = []
    while waiting:
        is_late = time.monotonic() >= deadline
        for query, batches in list(waiting.items()):
            is_busy = _is_busy(query) and watch.batches(str(query.runId)) == batches
            if is_busy and not is_late:
                continue
            if is_busy:
                cut.append(query.name or str(query.id))
            query.stop()
            del waiting[query]
        time.sleep(_POLL_S if waiting else 0)
    return cut


def _is_busy(query: "StreamingQuery") -> bool:
    return query.isActive and query.status["message"] == _WORKING


def aside(work: Callable[[], None]) -> None:
    """Runs the work in another thread and waits for it.

    A thread that was interrupted during a call to Java must not call Java again: it would read the response to its
    earlier call.
    """
    failures: list[BaseException] = []

    def do() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=do, name="pipeline stop")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
