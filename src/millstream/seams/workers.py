"""Threads, handed in: where blocking work goes so that the event loop is free."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Generic, Protocol, TypeVar, cast
from weakref import finalize

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
    """Real threads over one queue, started as there is work for them.

    The standard library's pool would do; handing a job over and back through it costs the event loop twice as much,
    which every flush pays.
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
            with suppress(RuntimeError):  # The loop is closed: nobody waits any longer.
                future.get_loop().call_soon_threadsafe(self._ended, future, result, error)
            del job, work, future, result, error  # They would live on until the next job comes.

    def _ended(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._under_way -= 1
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


class BackgroundJob(Generic[T]):
    """Work that was begun beside its caller."""

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
        """Wait until it is done, whatever came of it: what is raised here is not of the work."""
        self._is_done.wait()

    def result(self) -> T:
        """What it gave, or raised; as often as somebody asks. Waits for it."""
        self.join()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class CompanionThread:
    """A thread for one who comes back for what it does, and needs no event loop for that; it ends with its maker."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[BackgroundJob[Any] | None] = SimpleQueue()
        finalize(self, self._jobs.put, None)  # First: who is interrupted while the thread starts leaves none behind.
        Thread(target=_do_all, args=(self._jobs,), name=name, daemon=True).start()

    def begin(self, work: Callable[[], T]) -> BackgroundJob[T]:
        job = BackgroundJob(work)
        self._jobs.put(job)
        return job


def _do_all(jobs: "SimpleQueue[BackgroundJob[Any] | None]") -> None:
    while (job := jobs.get()) is not None:
        job.do()
        del job  # It would live on until the next comes.
