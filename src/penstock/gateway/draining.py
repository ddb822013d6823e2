"""Whether the gateway is on its way out."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Draining:
    """Set once. Whoever waits long for something (a poll, a stream) also waits for `begun`, and then ends early."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self._waiting: set[asyncio.Task[Any]] = set()

    @property
    def is_draining(self) -> bool:
        return self.begun.is_set()

    @property
    def waiting_count(self) -> int:
        """How many wait at the moment."""
        return len(self._waiting)

    def begin(self) -> None:
        """Wake everybody who waits; a second time does nothing."""
        if not self.begun.is_set():
            self.begun.set()
            for task in list(self._waiting):
                task.cancel()

    async def waiting(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work gives, which may take long; None when the gateway is drained before or meanwhile."""
        if self.is_draining:
            work.close()
            return None
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            return await work
        except asyncio.CancelledError:
            if not self.begun.is_set() or task.uncancel():
                raise
            return None
        finally:
            self._waiting.discard(task)
