"""The start of a reader: begun by whoever needs it first, and not given up because that one waits no longer."""

from collections.abc import Callable, Coroutine
from typing import Any

from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.single_flight import SingleFlight


class SharedStart:
    """Invariants: `begin` runs at most once at a time, and not again after it has succeeded. A failure is raised once,
    by whoever waits for it, or else by whoever does next; then it is begun anew."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self.is_done = False
        self._begin = begin
        self._errand = SingleFlight(self._run, name)

    async def wait(self) -> None:
        """Until it is done; raises what keeps it from that."""
        await self.wait_until(None)

    async def _run(self) -> None:
        await self._begin()
        self.is_done = True

    async def wait_until(self, deadline: Deadline | None) -> bool:
        """As `wait`, and whether it is done in time; None waits as long as it takes."""
        if self.is_done:
            return True
        run = await self._errand.wait(deadline)
        if run is not None:
            run.result()
        return run is not None

    async def close(self) -> None:
        """Give it up, and its failure too."""
        await self._errand.close()
