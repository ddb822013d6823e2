"""Provides workers that hold their jobs until the test releases them."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from millstream.seams.workers import ThreadWorkers

T = TypeVar("T")


class HeldWorkers:
    """A `Workers` whose jobs a test releases, one by one and in any order. `begun` counts the jobs."""

    def __init__(self) -> None:
        self.begun = 0
        self._jobs: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    @property
    def held(self) -> int:
        """The number of held jobs."""
        return len(self._jobs)

    def run(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.begun += 1
        self._jobs.append((work, future))
        return future

    def close(self) -> None:
        """Discard the held jobs."""

    async def release(self, at: int = 0) -> None:
        """Run one of the held jobs, and resume its waiter."""
        work, future = self._jobs.pop(at)
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        await asyncio.sleep(0.1)


class HoldingWorkers(ThreadWorkers):
    """Threads that can hold one job, before it starts or before its result is delivered; other jobs run."""

    def __init__(self) -> None:
        super().__init__(2, "work")
        self.held = asyncio.Event()
        """Set once the job is held."""
        self._go_on = asyncio.Event()
        self._is_next = self._has_run = False

    def hold_next(self, *, has_run: bool) -> None:
        """Hold the next job: before its result is delivered if `has_run`, otherwise before it starts."""
        self._is_next, self._has_run = True, has_run

    def release(self) -> None:
        self._go_on.set()

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        if not self._is_next:
            return super().run(work)
        self._is_next = False
        return asyncio.ensure_future(self._run_held(work))

    async def _run_held(self, work: Callable[[], T]) -> T:
        job = super().run(work) if self._has_run else None
        if job is not None:
            await asyncio.wait([job])
        self.held.set()
        await self._go_on.wait()
        return await (job or super().run(work))
