"""Signals that end a process: the first one gracefully, a second one at once."""

import asyncio
import logging
import os
import signal
import sys

from millstream.process.exit_codes import EXIT_BY_SECOND_SIGNAL

log = logging.getLogger(__name__)

REPEATED_SIGNAL_S = 0.5
"""Supervisors, `timeout` and terminals tend to signal a process and its group: so close together, two are one."""


def watch_signals(stopping: asyncio.Event, repeated_s: float = REPEATED_SIGNAL_S) -> None:
    """The first signal sets `stopping`; another one ends the process at once, unless it came within `repeated_s`."""
    loop = asyncio.get_running_loop()
    first_s = 0.0

    def caught(name: str) -> None:
        nonlocal first_s
        if stopping.is_set():
            if loop.time() - first_s < repeated_s:
                return
            # The data is safe at any moment; only the next start has to look at a little more of it.
            sys.stderr.write("millstream: stopped at once by a second signal\n")
            sys.stderr.flush()
            os._exit(EXIT_BY_SECOND_SIGNAL)
        log.info("stopping", extra={"signal": name})
        first_s = loop.time()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, caught, number.name)
