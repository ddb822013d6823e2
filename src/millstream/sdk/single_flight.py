"""Work that outlives whoever waits for it: begun by the first who needs it, taken up by whoever comes next."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.retry_policy import Deadline

log = logging.getLogger("millstream.sdk.single_flight")

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Invariants: it runs at most once at a time, and is not begun anew before somebody has heard what came of it. A
    failure is told to those who wait for it, or else to whoever comes next; one that nobody thought of is logged, and
    told as CLIENT_FAILED."""

    def __init__(
        self, run: Callable[[], Coroutine[Any, Any, T]], name: str, over: Callable[[], None] | None = None
    ) -> None:
        """`over` is called when it is."""
        self._run = run
        self._name = name
        self._over = over
        self._task: asyncio.Task[T] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether it was begun, and nobody has heard yet what came of it."""
        return self._task is not None

    def begin(self) -> "asyncio.Task[T]":
        """Begin it, unless it is under way."""
        if self._task is None:
            self._task = asyncio.create_task(self._guarded(), name=self._name)
            self._task.add_done_callback(self._is_over)
        return self._task

    async def _guarded(self) -> T:
        try:
            return await self._run()
        except MillstreamError:
            raise
        except Exception as error:
            raise client_failed(log, f"the {self._name}", error) from error

    async def wait(self, deadline: Deadline | None = None) -> "asyncio.Task[T] | None":
        """Begin it, unless it is under way, and wait until it is over; None when the time is first. CLIENT_CLOSED when
        it is given up."""
        task = self.begin()
        if not task.done():
            await asyncio.wait([task], timeout=None if deadline is None else deadline.left_s)
        if not task.done():
            return None
        if task.cancelled():
            raise MillstreamError(ErrorCode.CLIENT_CLOSED, f"the {self._name} was given up: who needs it was closed")
        if self._task is task:
            self._task = None
        return task

    def hear(self) -> None:
        """If it is over: raise what it failed with, and let it be begun anew."""
        task = self._task
        if task is not None and task.done():
            self._task = None
            task.result()

    async def close(self) -> None:
        """Give it up, and its failure too."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _is_over(self, task: "asyncio.Task[T]") -> None:
        if self._over is not None and not task.cancelled():
            self._over()
