"""The start of a reader: begun by whoever needs it first, and not given up because that one waits no longer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.sdk.retry import Deadline


class Starting:
    """Invariants: `begin` runs at most once at a time, and not again after it has succeeded. A failure is raised once,
    by whoever waits for it, or else by whoever does next; then it is begun anew."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self.is_done = False
        self._begin = begin
        self._name = name
        self._task: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Until it is done; raises what keeps it from that."""
        if self.is_done:
            return
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=self._name)
        task = self._task
        if not task.done():
            await asyncio.wait([task])
        if self._task is task:
            self._task = None
        task.result()

    async def _run(self) -> None:
        await self._begin()
        self.is_done = True

    async def wait_until(self, deadline: Deadline | None) -> bool:
        """As `wait`, and whether it is done in time; None waits as long as it takes."""
        if self.is_done:
            return True
        try:
            async with asyncio.timeout(None if deadline is None else deadline.left_s):
                await self.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Give it up, and its failure too."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
