"""Threads, handed in: where blocking work goes so that the event loop is free."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Workers(Protocol):
    """Runs blocking work beside the event loop."""

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Start `work` now; the future carries its result or its exception.

        Work that has begun is not interrupted when the future is cancelled.
        """
        ...

    def close(self) -> None:
        """Wait for the work that is under way and take no more."""
        ...


class ThreadWorkers:
    """A pool of real threads."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
