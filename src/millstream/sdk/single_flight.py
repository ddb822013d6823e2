"""Shares one running operation among all callers that need its result.

The first caller starts the operation. It continues when a caller is cancelled, and later callers await the same result.
"""

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
    """Runs one operation at a time for many callers.

    Invariant: `_task` is the current run. A new run starts only after a caller has received the result of the current
    one. A failure is raised in every waiting caller. If no caller waits, the next call raises it. An unexpected
    exception is logged and raised as CLIENT_FAILED.
    """

    def __init__(
        self, run: Callable[[], Coroutine[Any, Any, T]], name: str, over: Callable[[], None] | None = None
    ) -> None:
        """`over` is called when a run ends and was not cancelled."""
        self._run = run
        self._name = name
        self._over = over
        self._task: asyncio.Task[T] | None = None

    @property
    def is_under_way(self) -> bool:
        """True while there is a run whose result no caller has received yet."""
        return self._task is not None

    def begin(self) -> "asyncio.Task[T]":
        """Start a run, unless one is under way."""
        if self._task is None:
            self._task = asyncio.create_task(self._guarded(), name=self._name)
            self._task.add_done_callback(self._is_over)
        return self._task

    async def _guarded(self) -> T:
        # With eager tasks the run starts before `begin` has stored the task.
        assert self._task in (None, asyncio.current_task()), "a run starts only while no other is under way"
        try:
            return await self._run()
        except MillstreamError:
            raise
        except Exception as error:
            raise client_failed(log, f"the {self._name}", error) from error

    async def wait(self, deadline: Deadline | None = None) -> "asyncio.Task[T] | None":
        """Start a run, unless one is under way, and wait until it ends; None if the deadline passes first.

        Raises CLIENT_CLOSED if the run was cancelled by `close`.
        """
        task = self.begin()
        if not task.done():
            await asyncio.wait([task], timeout=None if deadline is None else deadline.left_s)
        if not task.done():
            return None
        if task.cancelled():
            raise MillstreamError(
                ErrorCode.CLIENT_CLOSED, f"the {self._name} was cancelled because its owner was closed"
            )
        if self._task is task:
            self._task = None
        return task

    def accept_result(self) -> None:
        """Accept the result of a finished run: raise its failure, and allow a new run. Otherwise do nothing."""
        task = self._task
        if task is not None and task.done():
            self._task = None
            task.result()

    async def close(self) -> None:
        """Cancel the run and discard its failure."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _is_over(self, task: "asyncio.Task[T]") -> None:
        if self._over is not None and not task.cancelled():
            self._over()
