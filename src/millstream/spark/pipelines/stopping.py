"""How a pipeline is ended by a signal: once in peace, twice at once.

Ctrl-C and SIGTERM do the same, and only who started the process is told which it was. The first one interrupts whatever
the pipeline's file is doing, or, once that has run, only asks; the second ends this process, and Spark's notice that it
is gone, or are ended first (`at_once`).
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
"""A query's status while a batch runs; at all other times it loses nothing that it would have to do again."""


class Terminated(KeyboardInterrupt):
    """Interrupted by SIGTERM."""


class Stop:
    """Whether somebody has asked for the end."""

    def __init__(self) -> None:
        self.is_asked = False
        self._interrupt: type[KeyboardInterrupt] = KeyboardInterrupt
        self.interrupts = True
        """Whether the first signal interrupts what is being done."""
        self.at_once: Callable[[], None] | None = None
        """What the second one does before it ends this process."""

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        before = {each: signal.getsignal(each) for each in _SIGNALS}
        self.listen()
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def listen(self) -> None:
        """Spark, when it starts, takes Ctrl-C for itself; this takes it back."""
        for each in _SIGNALS:
            signal.signal(each, self._hear)

    def interrupt(self) -> None:
        """From now on the first signal interrupts, also one that has come already."""
        self.interrupts = True
        if self.is_asked:
            raise self._interrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """A signal that comes within interrupts at the end of it."""
        self.interrupts = False
        yield
        self.interrupt()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.is_asked:
            if self.at_once is not None:
                self.at_once()
            os._exit(EXIT_BY_SECOND_SIGNAL)
        self.is_asked = True
        self._interrupt = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if self.interrupts:
            raise self._interrupt


class InterruptiblePipe(io.RawIOBase):
    """What is read from a pipe, by a thread that hears every signal.

    Python sees to signals between its own steps. One that comes after such a step, and before the call that waits for
    the pipe, does not end that call: it would not be heard before the pipe has something to read.
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
    """Stop all queries, each when its batch has ended, or when the time is over; the names of those then cut off."""
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
    """Do it in another thread, and wait for it: a thread that was interrupted while it spoke to Java must not do so
    again, since the answer to what it asked before is still to come."""
    failures: list[BaseException] = []

    def do() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=do, name="end of a pipeline")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
