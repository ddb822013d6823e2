"""Checks all connections with an incomplete transfer by one timer. Idle connections have no timer and cost nothing."""

import asyncio
from typing import Protocol

PERIOD_S = 1.0


class TimedConnection(Protocol):
    def check(self, now: float) -> bool:
        """Disconnect a peer that has gone silent. Returns false if there is nothing left to watch."""
        ...


class ConnectionTimer:
    def __init__(self) -> None:
        # A dictionary keeps its order, so that a simulated run visits connections in the same order every time.
        self._watched: dict[TimedConnection, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, watched: TimedConnection) -> None:
        self._watched[watched] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._check_all)

    def remove(self, watched: TimedConnection) -> None:
        self._watched.pop(watched, None)

    def _check_all(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for watched in list(self._watched):
            if not watched.check(now):
                self._watched.pop(watched, None)
        self._timer = loop.call_later(PERIOD_S, self._check_all) if self._watched else None

    def close(self) -> None:
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
