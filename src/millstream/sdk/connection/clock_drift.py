"""Compares this machine's clock with the brokers' clocks, and calls back when the difference is too large.

The broker's time comes from an Info request and is corrected by half of the round trip. The remaining error is the
asymmetry of the network. The drift is the difference to the average of all brokers that answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

from millstream.model.errors import MillstreamError
from millstream.process.log_event import LogEvent

CHECK_TIMEOUT_S = 10.0
INTERVAL_MIN_S = 0.1

_log = logging.getLogger("millstream.sdk.clock")


class ClockDrift(NamedTuple):
    """The lead of this machine's clock over the brokers' average and over each broker (negative: it is behind)."""

    drift: timedelta
    brokers: Mapping[int, timedelta]


class Measure(Protocol):
    def __call__(self, *, timeout_s: float) -> Awaitable[ClockDrift]: ...


OnClockDrift = Callable[[timedelta, Mapping[int, timedelta]], object]


def average(ahead: Mapping[int, timedelta]) -> ClockDrift:
    """Return the drift relative to the average of these brokers, of which there is at least one."""
    return ClockDrift(sum(ahead.values(), timedelta()) / len(ahead), dict(ahead))


@dataclass(frozen=True, slots=True)
class DriftWatch:
    """Measures the drift at every interval, and calls `on_drift` each time it exceeds the threshold."""

    measure: Measure
    on_drift: OnClockDrift
    threshold_s: float
    interval_s: float

    async def check(self) -> None:
        """Measure once. Brokers that do not answer or do not report their time are not an error."""
        try:
            found = await self.measure(timeout_s=CHECK_TIMEOUT_S)
        except MillstreamError as error:
            _log.debug(LogEvent("clock check failed", error=error))
            return
        except Exception:  # The exception would end the background task without a message.
            _log.exception("clock check failed")
            return
        if abs(found.drift.total_seconds()) <= self.threshold_s:
            return
        _log.warning(LogEvent("clock drift above threshold", drift_s=round(found.drift.total_seconds(), 3)))
        try:
            self.on_drift(*found)
        except BaseException:  # Even SystemExit, which would stop the event loop that all callers share.
            _log.exception("on_clock_drift callback failed")

    async def run(self) -> None:
        """Measure at every interval until cancelled."""
        while True:
            await asyncio.sleep(max(self.interval_s, INTERVAL_MIN_S))
            await self.check()
