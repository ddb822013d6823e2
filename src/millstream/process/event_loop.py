"""The event loop, and what is printed when it serves."""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the event loop: uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        log.warning("uvloop is not installed; everything is slower without it")
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def say_ready(lines: Sequence[str]) -> None:
    """Say on standard output that clients may come, and what to try."""
    try:
        if sys.stdout is None:
            raise OSError("standard output is closed")
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
    except OSError as problem:
        # Nobody reads it; that is no reason not to serve.
        log.warning("the ready line could not be written", extra={"why": str(problem)})
