"""How far this machine's clock is from the brokers', and telling the user when it is too far.

A broker's clock is read by INFO; half of the round trip is taken off, so what is left of the network's part is its
asymmetry. What counts is the average over all brokers that answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

from millstream.model.errors import MillstreamError

CHECK_TIMEOUT_S = 10.0
INTERVAL_MIN_S = 0.1

_log = logging.getLogger("millstream.sdk.clock")


class ClockDrift(NamedTuple):
    """How far the own clock is ahead (negative: behind): of the brokers' average, and of each broker by its number."""

    drift: timedelta
    brokers: Mapping[int, timedelta]


class Measure(Protocol):
    def __call__(self, *, timeout_s: float) -> Awaitable[ClockDrift]: ...


OnClockDrift = Callable[[timedelta, Mapping[int, timedelta]], object]


def average(ahead: Mapping[int, timedelta]) -> ClockDrift:
    """The drift against the average of at least one broker."""
    return ClockDrift(sum(ahead.values(), timedelta()) / len(ahead), dict(ahead))


@dataclass(frozen=True, slots=True)
class DriftWatch:
    """Looks at the drift now and then, and calls back, each time, when it is larger than the threshold."""

    measure: Measure
    on_drift: OnClockDrift
    threshold_s: float
    interval_s: float

    async def check(self) -> None:
        """Look once. Brokers that cannot be asked, or that do not tell their time, are no reason to fail."""
        try:
            found = await self.measure(timeout_s=CHECK_TIMEOUT_S)
        except MillstreamError as error:
            _log.debug("the brokers' clocks could not be read: %s", error)
            return
        except Exception:  # Nobody would hear of a watch that ended by it.
            _log.exception("the brokers' clocks could not be read")
            return
        if abs(found.drift.total_seconds()) <= self.threshold_s:
            return
        _log.warning("this machine's clock is %+.3f s off the brokers' average", found.drift.total_seconds())
        try:
            self.on_drift(*found)
        except BaseException:  # The thread belongs to everybody who uses the client.
            _log.exception("on_clock_drift failed")

    async def run(self) -> None:
        """Look at every interval, until cancelled."""
        while True:
            await asyncio.sleep(max(self.interval_s, INTERVAL_MIN_S))
            await self.check()
