"""Runs asyncio programs in simulated time: one thread, no sockets, no waiting, and the same order in every run.

Guarantees:
- Callbacks run in asyncio's order: `call_soon` first in, first out; timers by time, and equal ones in the order of
  their creation. Only the delays of the simulated network and workers vary from seed to seed.
- A callback of a dead owner is dropped, and one of a paused owner is held (`process_owner.py`).
- Simulated time is the same for all. Code of a process sees the clock of its machine instead: `time` returns it and
  `call_at` takes it. So timers of a machine with a fast clock fire earlier.

Invariant: time moves only when nothing is ready, and then forward to the next timer. Computing takes no time.
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
    """The loop cannot continue: nothing is left to do, or it exceeded its limit of steps."""


class _OwnedFuture(asyncio.Future[T]):
    """A future that knows its process, so that unread results of a dead process are not reported.

    Its hash is a counter instead of its address, so that sets of futures have the same order in every run.
    """

    def __init__(self, loop: "SimulatedLoop", owner: SimulatedOwner | None) -> None:
        self.owner = owner
        self._number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _OwnedTask(asyncio.Task[T]):
    """A task that knows its process. Its hash is a counter too, because asyncio keeps sets of tasks to cancel."""

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
    """Runs asyncio programs in simulated time. It must be used in one thread only.

    `failures` collects the errors that asyncio would pass to its exception handler. A run with failures has failed.
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
        """The monotonic clock of the current process's machine, or simulated time outside all processes."""
        owner = OWNER.get()
        if owner is None or owner.local_time is None:
            return self._now
        return owner.local_time.local_s(self._now)

    def true_time(self) -> float:
        """The simulated time, for any caller."""
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
        """Same as `call_soon`, because there is no other thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = copy_context()
            owner = caller = context.get(OWNER)
        else:
            owner, caller = context.get(OWNER), OWNER.get()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._ended:
            self._timer_count += 1
            due_s = when if caller is None or caller.local_time is None else caller.local_time.true_s(when)
            heapq.heappush(self._timers, (due_s, self._timer_count, handle, owner))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing. Asyncio counts cancelled timers here; this loop skips them when they are due."""

    def _write_to_self(self) -> None:
        """Do nothing, because there is no selector to wake."""

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        raise RuntimeError("a simulated program must not start threads; pass simulated workers to it")

    # Processes

    def pause(self, owner: SimulatedOwner) -> None:
        """Run no callbacks of a process until `resume`. Due callbacks are held."""
        owner.pause()

    def resume(self, owner: SimulatedOwner) -> None:
        """Continue a paused process with all held callbacks, followed by those that became due in the current round."""
        queued = list(self._queue)
        self._queue.clear()  # In place, because `_run_once` iterates over it.
        self._queue.extend(each for each in queued if each[1] is not owner)
        due = [handle for handle, owned_by in queued if owned_by is owner]
        self._queue.extend((handle, owner) for handle in owner.resume(due))

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
        # A strong reference: otherwise the garbage collector would end a forgotten task at an unpredictable time.
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
        queue, timers = self._queue, self._timers
        if not queue or (timers and timers[0][0] <= self._now):
            self._take_due_timers()
        now_s = self._now
        for _ in range(len(queue)):
            handle, owner = queue.popleft()
            if handle._cancelled:
                continue
            if owner is not None and not owner.runs:
                if owner.alive:
                    owner.hold(handle)
                continue
            self.steps += 1
            self._running = owner
            handle._run()
        self._running = None
        assert self._now >= now_s, "time never goes back"
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
        """All failures, including those that asyncio reports only when a forgotten future is collected."""
        self._tasks = [task for task in self._tasks if not task.done()]
        gc.collect()
        return self.failures

    def end(self) -> None:
        """Close the loop. Waiting tasks are discarded silently."""
        self._ended = True
        self._queue.clear()
        self._timers.clear()
        for task in self._tasks:
            if not task.done():
                _discard(task)
        self._tasks.clear()
        self.close()


def described(error: BaseException) -> str:
    """Describe an exception in one line, with the last frames of its traceback."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " > ".join(f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames)
    return f"{error!r} at {places}" if places else repr(error)


def _is_dead(owner: SimulatedOwner | None) -> bool:
    return owner is not None and not owner.alive


def _discard(task: asyncio.Task[Any]) -> None:
    """End a task that will never run again, ignoring errors of its cleanup code."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own way to say: not an accident
    chain: list[Any] = []
    coroutine: Any = task.get_coro()
    while coroutine is not None and hasattr(coroutine, "close"):
        chain.append(coroutine)
        coroutine = getattr(coroutine, "cr_await", None)
    # From the innermost coroutine outwards: otherwise the garbage collector would run the cleanup of an inner one.
    for coroutine in reversed(chain):
        for _ in range(_CLOSE_ATTEMPTS):
            try:
                coroutine.close()
                break
            except BaseException:
                # The cleanup code awaits, or hits the closed loop. It has nothing left to protect.
                continue
