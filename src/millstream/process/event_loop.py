"""Runs a process on an event loop, returns its exit code, and prints its ready message."""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from millstream.model.errors import MillstreamError
from millstream.process import service_manager
from millstream.process.exit_codes import EXIT_FAILED, exit_code
from millstream.process.logs import report_failure

log = logging.getLogger(__name__)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Returns the event loop's factory: uvloop's if it is installed, or else asyncio's."""
    try:
        import uvloop
    except ImportError:
        log.warning("uvloop not installed, using the slower asyncio event loop")
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def run_process(serve: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Runs a process's main coroutine on a new event loop. Reports errors on standard error. Returns the exit code."""
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(serve())
    except MillstreamError as problem:
        report_failure(problem.detail)
        return exit_code(problem)
    except OSError as problem:
        report_failure(f"cannot start: {problem}")
        return EXIT_FAILED


def say_ready(lines: Sequence[str]) -> None:
    """Prints the ready message on standard output, and reports to the service manager that the process serves."""
    service_manager.notify(service_manager.READY)
    try:
        if sys.stdout is None:
            raise OSError("standard output is closed")
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
    except OSError as problem:
        # The process can serve without a reader of its output.
        log.warning("ready message not written", extra={"error": str(problem)})
