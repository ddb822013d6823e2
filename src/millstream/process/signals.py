"""Ends a process on signals: the first one stops it gracefully, a second one immediately. Ignores SIGHUP."""

import asyncio
import logging
import os
import signal

from millstream.process import service_manager
from millstream.process.exit_codes import EXIT_BY_SECOND_SIGNAL
from millstream.process.logs import report_failure

log = logging.getLogger(__name__)

REPEATED_SIGNAL_S = 0.5
"""Signals within this time count as one: supervisors, `timeout` and terminals often signal a process and its group."""


def watch_signals(stopping: asyncio.Event, repeated_s: float = REPEATED_SIGNAL_S) -> None:
    """Sets `stopping` at the first signal. Another one later than `repeated_s` ends the process immediately.

    SIGHUP is logged and ignored: there are no settings to read again, and the end of a terminal must not end a broker.
    """
    loop = asyncio.get_running_loop()
    first_s = 0.0

    def caught(name: str) -> None:
        nonlocal first_s
        if stopping.is_set():
            if loop.time() - first_s < repeated_s:
                return
            # Acknowledged data is safe at any moment. Only recovery at the next start takes a little longer.
            report_failure("stopped immediately by a second signal")
            os._exit(EXIT_BY_SECOND_SIGNAL)
        log.info("stopping", extra={"signal": name})
        service_manager.notify(service_manager.STOPPING)
        first_s = loop.time()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, caught, number.name)
    loop.add_signal_handler(signal.SIGHUP, _ignore, signal.SIGHUP.name)


def _ignore(name: str) -> None:
    log.info("signal ignored, settings are read at the start only", extra={"signal": name})
