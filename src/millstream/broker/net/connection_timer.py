"""One timer for all connections that are in the middle of something, so that idle ones cost nothing at all."""

import asyncio
from typing import Protocol

PERIOD_S = 1.0


class TimedConnection(Protocol):
    def check(self, now: float) -> bool:
        """Look for a peer that has fallen silent, and cut it off; False when there is nothing to watch any more."""
        ...


class ConnectionTimer:
    def __init__(self) -> None:
        # A dictionary for its order: a simulated run must visit connections in the same order every time.
        self._watched: dict[TimedConnection, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, watched: TimedConnection) -> None:
        self._watched[watched] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._look)

    def remove(self, watched: TimedConnection) -> None:
        self._watched.pop(watched, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for watched in list(self._watched):
            if not watched.check(now):
                self._watched.pop(watched, None)
        self._timer = loop.call_later(PERIOD_S, self._look) if self._watched else None

    def close(self) -> None:
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
