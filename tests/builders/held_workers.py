"""Workers that do nothing until they are told to."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class HeldWorkers:
    """A `Workers` whose jobs a test lets run, one by one and in any order. `begun` counts them."""

    def __init__(self) -> None:
        self.begun = 0
        self._jobs: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    @property
    def held(self) -> int:
        """Jobs that are held."""
        return len(self._jobs)

    def run(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.begun += 1
        self._jobs.append((work, future))
        return future

    def close(self) -> None:
        """What is held never happens."""

    async def release(self, at: int = 0) -> None:
        """Let one of the held jobs happen, and whoever waits for it go on."""
        work, future = self._jobs.pop(at)
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        await asyncio.sleep(0.1)
