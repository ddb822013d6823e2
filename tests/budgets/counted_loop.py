"""Wraps Python's event loop, and counts its iterations, callbacks, timers and tasks."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeVarTuple, cast

Ts = TypeVarTuple("Ts")


@dataclass(slots=True)
class LoopCounts:
    iterations: int = 0
    callbacks: int = 0
    timers: int = 0
    tasks: int = 0
    stands_still: bool = False
    """While set, the loop's clock stands still, so that no timer expires."""


class _CountedSelector(selectors.DefaultSelector):
    """A selector that counts the loop's iterations: the loop calls it once in each."""

    def __init__(self, counts: LoopCounts) -> None:
        super().__init__()
        self._counts = counts

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._counts.iterations += 1
        return super().select(timeout)


class CountedLoop(asyncio.SelectorEventLoop):
    def __init__(self, counts: LoopCounts) -> None:
        super().__init__(_CountedSelector(counts))
        self._counts = counts
        self._time_s = super().time()
        self.set_task_factory(cast(Any, self._make_task))

    def time(self) -> float:
        if not self._counts.stands_still:
            self._time_s = super().time()
        return self._time_s

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._counts.callbacks += 1
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._counts.timers += 1
        return super().call_at(when, callback, *args, context=context)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> "asyncio.Task[Any]":
        self._counts.tasks += 1
        return asyncio.Task(work, loop=loop, **options)
