"""Starts a reader once for all callers that need it.

The first caller begins the start; it continues when a caller is cancelled.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.single_flight import SingleFlight


class SharedStart:
    """Runs the coroutine function `begin` until it has succeeded once.

    Invariant: `begin` runs at most once at a time, and not again after it has succeeded. Guarantee: a failure is raised
    in the waiting callers; without a waiting caller, the next call raises it. The call after that runs `begin` again.
    """

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self.is_done = False
        self._begin = begin
        self._flight = SingleFlight(self._run, name)

    async def wait(self) -> None:
        """Wait until the start has succeeded; raises its failure."""
        await self.wait_until(None)

    async def _run(self) -> None:
        assert not self.is_done, "a start that succeeded does not run again"
        await self._begin()
        self.is_done = True

    async def wait_until(self, deadline: Deadline | None) -> bool:
        """Wait like `wait` until the deadline; returns whether the start has succeeded. None waits without a limit."""
        if self.is_done:
            return True
        run = await self._flight.wait(deadline)
        if run is not None:
            run.result()
        return run is not None

    async def close(self) -> None:
        """Cancel the start and discard its failure."""
        await self._flight.close()
