"""Tracks a gateway's shutdown and wakes waiting requests when draining begins."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Draining:
    """The two steps of a shutdown. Each step is taken once.

    `announce`: the readiness check fails, and everything else continues. Refused callers would reconnect at once, until
    load balancers have noticed. `begin`: long polls and streams are woken and end early.
    """

    def __init__(self) -> None:
        self.is_announced = False
        self._begun = asyncio.Event()
        self._waiting: set[asyncio.Task[Any]] = set()

    @property
    def has_begun(self) -> bool:
        return self._begun.is_set()

    @property
    def waiting_count(self) -> int:
        """Number of requests that wait now."""
        return len(self._waiting)

    def announce(self) -> None:
        self.is_announced = True

    def begin(self) -> None:
        """Wake every waiting request. A second call has no effect."""
        self.announce()
        if not self.has_begun:
            self._begun.set()
            for task in list(self._waiting):
                task.cancel()

    async def waiting(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Await `work`, which may take long.

        Returns None if draining has begun or begins meanwhile, which cancels `work`.
        """
        if self.has_begun:
            work.close()
            return None
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            return await work
        except asyncio.CancelledError:
            if not self._begun.is_set() or task.uncancel():
                raise
            return None
        finally:
            self._waiting.discard(task)
