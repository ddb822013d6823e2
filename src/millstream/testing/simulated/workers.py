"""Simulates worker threads: blocking work runs on the simulated loop, as one step, at a time that the seed determines.

A job has three steps: it gets a free worker, its work takes effect, and its result becomes visible. A crash may fall
between any two of them; later steps then never happen. Nothing else runs during one job. Crashes in the middle of a
job come from the simulated disk.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from millstream.testing.simulated.process_owner import ProcessCrashed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slowness:
    """The duration of jobs: usually up to `usual_s`, sometimes up to `rare_s`."""

    usual_s: float = 0.001
    rare_s: float = 0.050
    rare_chance: float = 0.02

    def draw(self, random: Random) -> float:
        return random.random() * (self.rare_s if random.random() < self.rare_chance else self.usual_s)


@dataclass(slots=True, eq=False)
class _Job:
    work: Callable[[], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    ran: bool = False


class SimulatedWorkers:
    """A `Workers` with `count` simulated threads. Jobs begin in the order of their submission."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, random: Random, *, count: int = 4, slowness: Slowness | None = None
    ) -> None:
        self._loop = loop
        self._random = random
        self._free = count
        self._slowness = slowness or Slowness()
        self._waiting: deque[_Job] = deque()
        self._started: list[_Job] = []
        self._closed = False

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._closed:
            raise RuntimeError("these workers are closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(_Job(work, future))
        self._start_next()
        return future

    def close(self) -> None:
        """Run all submitted work before returning, as a thread pool does."""
        self._closed = True
        for job in [*self._started, *self._waiting]:
            self._execute(job)
        self._waiting.clear()

    def _start_next(self) -> None:
        while self._free and self._waiting:
            job = self._waiting.popleft()
            if job.future.cancelled():
                continue
            self._free -= 1
            self._started.append(job)
            self._loop.call_later(self._slowness.draw(self._random), self._take_effect, job)

    def _take_effect(self, job: _Job) -> None:
        self._execute(job)
        self._loop.call_later(self._slowness.draw(self._random) / 4, self._finish, job)

    def _execute(self, job: _Job) -> None:
        if job.ran:
            return
        job.ran = True
        if job not in self._started:  # The job was still waiting at the close, so nothing else sets its future.
            self._loop.call_soon(self._answer, job)
        try:
            job.result = job.work()
        except ProcessCrashed:
            raise
        except BaseException as error:
            job.error = error

    def _finish(self, job: _Job) -> None:
        self._started.remove(job)
        self._free += 1
        self._answer(job)
        self._start_next()

    def _answer(self, job: _Job) -> None:
        if job.future.done():
            return
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
