"""Observes for how long other work keeps the gateway's event loop busy."""

import asyncio
import time
from collections.abc import Iterable

from millstream.process.metrics import Histogram, Metric, histogram

PERIOD_S = 1.0


class LoopLag:
    """The lateness of a timer that is due every PERIOD_S."""

    def __init__(self) -> None:
        self.lag = Histogram()

    async def run(self) -> None:
        while True:
            due_s = time.monotonic() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            self.lag.observe(max(0.0, time.monotonic() - due_s))

    def metrics(self) -> Iterable[Metric]:
        yield histogram("millstream_event_loop_lag_seconds", "Lateness of a timer of the event loop.", self.lag)
