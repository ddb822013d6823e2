"""Isolates a simulated run from the rest of the Python process, so that its digest depends only on the seed."""

import gc
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.model.errors import MillstreamError
from millstream.process.logs import fields_of
from millstream.testing.simulated.loop import SimulatedLoop, described
from millstream.testing.simulated.trace import Trace


@contextmanager
def repeatable_run(loop: SimulatedLoop, trace: Trace) -> Iterator[None]:
    """Run a simulation within this context: log lines become events, and garbage is collected only at the end."""
    with _collecting_at_the_end(), _logs_as_events(loop, trace):
        yield


@contextmanager
def _collecting_at_the_end() -> Iterator[None]:
    """Disable the garbage collector, whose timing depends on the rest of the process."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _EventHandler(logging.Handler):
    def __init__(self, loop: SimulatedLoop, trace: Trace) -> None:
        super().__init__()
        self._loop = loop
        self._trace = trace
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:  # From another program in this process: the run has one thread.
            return
        fields = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        self._trace.note(self._loop.true_time(), "log", record.levelname, record.getMessage(), fields)
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, (OSError, MillstreamError)):
            self._loop.failures.append(f"logged: {record.getMessage()}: {described(error)}")


@contextmanager
def _logs_as_events(loop: SimulatedLoop, trace: Trace) -> Iterator[None]:
    """Turn the broker's log lines into events. A line with an unexpected exception fails the run."""
    logger = logging.getLogger("millstream")
    handler = _EventHandler(loop, trace)
    before = (logger.propagate, logger.level)
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)  # Not by the attribute, because loggers cache the levels that are enabled.
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[0]
        logger.setLevel(before[1])
