"""Whether the gateway is on its way out."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Draining:
    """Two steps, each taken once. When it is announced, who asks is told so, and everything goes on as before: callers
    that were sent away would come back at once, until load balancers have noticed. When it begins, whoever waits long
    for something (a poll, a stream) is woken, and ends early."""

    def __init__(self) -> None:
        self.is_announced = False
        self._begun = asyncio.Event()
        self._waiting: set[asyncio.Task[Any]] = set()

    @property
    def has_begun(self) -> bool:
        return self._begun.is_set()

    @property
    def waiting_count(self) -> int:
        """How many wait at the moment."""
        return len(self._waiting)

    def announce(self) -> None:
        self.is_announced = True

    def begin(self) -> None:
        """Wake everybody who waits; a second time does nothing."""
        self.announce()
        if not self.has_begun:
            self._begun.set()
            for task in list(self._waiting):
                task.cancel()

    async def waiting(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work gives, which may take long; None when the gateway is drained before or meanwhile."""
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
