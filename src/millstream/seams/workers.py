"""Defines injected worker threads, which run blocking work so that the event loop stays free."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Generic, Protocol, TypeVar, cast
from weakref import finalize

T = TypeVar("T")


class Workers(Protocol):
    """Runs blocking work outside the event loop."""

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Start `work` now. The future returns its result or raises its exception.

        Cancelling the future does not interrupt work that has begun.
        """
        ...

    def close(self) -> None:
        """Wait for the work in progress, and accept no more."""
        ...


class ThreadWorkers:
    """Real threads over one queue, started on demand.

    The standard library's pool would cost the event loop twice as much per job, which every flush would pay.
    """

    def __init__(self, count: int, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._count = count
        self._name = name
        self._threads: list[Thread] = []
        self._under_way = 0
        self._is_closed = False

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._is_closed:
            raise RuntimeError("these workers are closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._under_way += 1
        if len(self._threads) < min(self._under_way, self._count):
            thread = Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put((work, future))
        return future

    def close(self) -> None:
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future = job
            result, error = None, None
            if not future.cancelled():
                try:
                    result = work()
                except BaseException as raised:
                    error = raised
            with suppress(RuntimeError):  # The loop is closed, so nothing awaits the result.
                future.get_loop().call_soon_threadsafe(self._ended, future, result, error)
            del job, work, future, result, error  # Otherwise these references would live until the next job.

    def _ended(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._under_way -= 1
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


class BackgroundJob(Generic[T]):
    """Work that runs in another thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._is_done = Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    def do(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        self._is_done.set()

    def join(self) -> None:
        """Wait until the work has ended. An exception of the work is not raised here."""
        self._is_done.wait()

    def result(self) -> T:
        """Wait for the work, and return its result or raise its exception. It may be called repeatedly."""
        self.join()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class CompanionThread:
    """A thread that runs jobs for one owner that needs no event loop. It ends when its owner is collected."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[BackgroundJob[Any] | None] = SimpleQueue()
        finalize(self, self._jobs.put, None)  # First, so that an interrupt during the thread's start leaves no thread.
        Thread(target=_do_all, args=(self._jobs,), name=name, daemon=True).start()

    def begin(self, work: Callable[[], T]) -> BackgroundJob[T]:
        job = BackgroundJob(work)
        self._jobs.put(job)
        return job


def _do_all(jobs: "SimpleQueue[BackgroundJob[Any] | None]") -> None:
    while (job := jobs.get()) is not None:
        job.do()
        del job  # Otherwise it would live until the next job.
