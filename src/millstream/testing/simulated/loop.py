"""An asyncio event loop with simulated time: one thread, no sockets, no waiting, the same order every time.

Invariants:
- callbacks run in the order asyncio promises: `call_soon` first in, first out; timers by their time, equal ones in the
  order they were made. What varies from seed to seed are the delays that the simulated network and workers choose;
- time moves only when nothing is ready, and then straight to the next timer: computing takes no time at all;
- a callback whose owner is dead is dropped unseen (`process_owner.py`).
"""

import asyncio
import gc
import heapq
import os.path
import traceback
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, TypeVar, TypeVarTuple

from millstream.testing.simulated.process_owner import OWNER, ProcessCrashed, SimulatedOwner

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEPS_MAX = 5_000_000
_PRUNE_AT_LEAST = 256
_CLOSE_ATTEMPTS = 20


class SimulationStuckError(RuntimeError):
    """The loop cannot go on: nothing is left to do, or it does not come to an end."""


class _OwnedFuture(asyncio.Future[T]):
    """A future that knows its process, so that what a dead one left unread is not reported.

    Its hash is a number of the loop's and not its address, so that sets of futures have the same order in every run.
    """

    def __init__(self, loop: "SimulatedLoop", owner: SimulatedOwner | None) -> None:
        self.owner = owner
        self._number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _OwnedTask(asyncio.Task[T]):
    """A task that knows its process; hashed as futures are, for asyncio itself keeps sets of tasks to cancel."""

    def __init__(
        self,
        coroutine: Generator[Any, None, T] | Coroutine[Any, Any, T],
        loop: "SimulatedLoop",
        name: str | None,
        context: Context,
    ) -> None:
        self.owner: SimulatedOwner | None = context.get(OWNER)
        self._number = loop.next_number()
        super().__init__(coroutine, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(BaseEventLoop):
    """Runs asyncio programs in simulated time; hand it to nothing but one thread.

    `failures` collects what would have gone to asyncio's exception handler. A run that met any has failed.
    """

    def __init__(self, *, start_s: float = 1_000.0, steps_max: int = STEPS_MAX) -> None:
        super().__init__()
        self._now = start_s
        self._queue: deque[tuple[asyncio.Handle, SimulatedOwner | None]] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle, SimulatedOwner | None]] = []
        self._timer_count = 0
        self._number = 0
        self._tasks: list[_OwnedTask[Any]] = []
        self._prune_at = _PRUNE_AT_LEAST
        self._ended = False
        self._running: SimulatedOwner | None = None
        self._steps_max = steps_max
        self.steps = 0
        self.failures: list[str] = []

    # Time and callbacks

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        context = context if context is not None else copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        if not self._ended:
            self._queue.append((handle, context.get(OWNER)))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """The same as `call_soon`: there is no other thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = context if context is not None else copy_context()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._ended:
            self._timer_count += 1
            heapq.heappush(self._timers, (when, self._timer_count, handle, context.get(OWNER)))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asyncio counts cancelled timers to sweep them; here they are skipped when their time comes."""

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        raise RuntimeError("a simulated program must not start threads: hand in simulated workers")

    # Futures and tasks

    def next_number(self) -> int:
        """A number for a new future or task."""
        self._number += 1
        return self._number

    def create_future(self) -> asyncio.Future[Any]:
        return _OwnedFuture(self, OWNER.get())

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        del options  # Later versions of Python offer eager tasks; a simulated task always begins with its own step.
        context = context if context is not None else copy_context()
        task = _OwnedTask(coro, self, None if name is None else str(name), context)
        if len(self._tasks) >= self._prune_at:
            self._tasks = [known for known in self._tasks if not known.done()]
            self._prune_at = max(_PRUNE_AT_LEAST, 2 * len(self._tasks))
        # Held strongly: asyncio itself would let the collector end a forgotten task at a moment of its own choice.
        self._tasks.append(task)
        return task

    # Failures

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        future = context.get("future") or context.get("task")
        owner = getattr(future, "owner", None) or OWNER.get() or self._running
        exception = context.get("exception")
        if self._ended or isinstance(exception, ProcessCrashed) or (owner is not None and not owner.alive):
            return
        shown = described(exception) if exception is not None else ""
        self.failures.append(f"{owner.name if owner else 'simulation'}: {context.get('message')}: {shown}")

    # Running

    def _run_once(self) -> None:
        self._take_due_timers()
        for _ in range(len(self._queue)):
            handle, owner = self._queue.popleft()
            if handle.cancelled() or (owner is not None and not owner.alive):
                continue
            self.steps += 1
            self._running = owner
            handle._run()
        self._running = None
        if self.steps > self._steps_max:
            raise SimulationStuckError(f"no end after {self.steps} steps, at {self._now:.3f} s of simulated time")

    def _take_due_timers(self) -> None:
        timers = self._timers
        while timers and (timers[0][2].cancelled() or _is_dead(timers[0][3])):
            heapq.heappop(timers)
        if not self._queue:
            if not timers:
                if self._stop_asked():
                    return
                waiting = [task.get_name() for task in self._tasks if not task.done() and not _is_dead(task.owner)]
                raise SimulationStuckError(
                    f"deadlock at {self._now:.3f} s of simulated time: nothing is left to do, "
                    f"and these tasks still wait: {', '.join(waiting) or 'none'}"
                )
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            _, _, handle, owner = heapq.heappop(timers)
            self._queue.append((handle, owner))

    def _stop_asked(self) -> bool:
        return bool(getattr(self, "_stopping", False))

    def settle_failures(self) -> list[str]:
        """All failures, also those that asyncio reports only when a forgotten future is thrown away."""
        self._tasks = [task for task in self._tasks if not task.done()]
        gc.collect()
        return self.failures

    def end(self) -> None:
        """Close the loop for good; what still waits is thrown away without a sound."""
        self._ended = True
        self._queue.clear()
        self._timers.clear()
        for task in self._tasks:
            if not task.done():
                _discard(task)
        self._tasks.clear()
        self.close()


def described(error: BaseException) -> str:
    """An exception in one line, with the places it came through last."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " > ".join(f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames)
    return f"{error!r} at {places}" if places else repr(error)


def _is_dead(owner: SimulatedOwner | None) -> bool:
    return owner is not None and not owner.alive


def _discard(task: asyncio.Task[Any]) -> None:
    """End a task that will never run again, whatever its cleanup says to that."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own way to say: not an accident
    chain: list[Any] = []
    coroutine: Any = task.get_coro()
    while coroutine is not None and hasattr(coroutine, "close"):
        chain.append(coroutine)
        coroutine = getattr(coroutine, "cr_await", None)
    # From the inside out: closing an outer one first would leave an inner one, whose cleanup awaits, to the collector.
    for coroutine in reversed(chain):
        for _ in range(_CLOSE_ATTEMPTS):
            try:
                coroutine.close()
                break
            except BaseException:
                # Cleanup code that awaits, or that meets the ended loop, has nothing left to protect.
                continue
