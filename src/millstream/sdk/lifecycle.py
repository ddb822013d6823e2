"""Whether a client, or something it made, may still be used; and the order in which they end.

Invariants:
- What was made ends before its maker, the newest first, and everything ends once. Whoever ends what is being ended by
  another waits for that: a maker does not pull away what those it made still need to end well.
- After a fork, whatever lived belongs to the parent process alone: in the child it refuses every use, and ending it
  there touches neither sockets nor threads, which the parent still uses. What it had ready for its user is dropped.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Self
from weakref import WeakSet

from millstream.model.errors import ErrorCode, MillstreamError


class Lifecycle:
    """One client, producer or consumer, from its making to its end. `over` is None while it may be used."""

    def __init__(
        self,
        name: str,
        end: Callable[[], Coroutine[Any, Any, None]],
        maker: "Lifecycle | None" = None,
        drop: Callable[[], object] | None = None,
    ) -> None:
        """`end` is awaited, on the event loop, when it ends; it may raise what got lost thereby. `drop` is called in
        the child of a fork, and must wait for nothing: whoever had a lock is not there."""
        self.name = name
        self.over: ErrorCode | None = None
        self._end = end
        self._drop = drop
        self._ended = asyncio.Event()
        self._maker = maker
        self._made: dict[Self, None] = {}
        if maker is None:
            _roots.add(self)
        else:
            maker.check()
            maker._made[self] = None

    def __str__(self) -> str:
        if self.over is not None:
            return "closed" if self.over is ErrorCode.CLIENT_CLOSED else "of another process"
        kinds = Counter(made.name for made in list(self._made))
        shown = " and ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in kinds.items())
        return f"open, with {shown}" if shown else "open"

    def check(self) -> None:
        """Raise CLIENT_CLOSED or CLIENT_MISUSED, saying what is wrong, unless it may be used."""
        if self.over is not None:
            raise self.refusal()

    def refusal(self) -> MillstreamError:
        if self.over is ErrorCode.CLIENT_MISUSED:
            text = (
                f"this {self.name} was made in another process (before a fork), and belongs to it; "
                "connect in the process that uses it"
            )
            return MillstreamError(ErrorCode.CLIENT_MISUSED, text)
        return MillstreamError(ErrorCode.CLIENT_CLOSED, f"this {self.name} is closed")

    async def close(self) -> None:
        """End what it made, then itself; afterwards the first failure of these is raised.

        Whoever is cancelled here gives up what the others would still wait for, too: they end at once.
        """
        if self.over is not None:
            await self.ended()
            return
        self.over = ErrorCode.CLIENT_CLOSED
        try:
            await self._end_all()
        finally:
            if self._maker is not None:
                self._maker._made.pop(self, None)
            self._ended.set()

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to be waited for."""
        return self.over is ErrorCode.CLIENT_MISUSED or self._ended.is_set()

    async def ended(self) -> None:
        """Wait until whoever ends it is through."""
        if not self.has_ended:
            await self._ended.wait()

    async def _end_all(self) -> None:
        failures: list[BaseException] = []
        cancelled: asyncio.CancelledError | None = None
        made = list(self._made)  # In one step: other threads may be making more.
        for end in [*(each.close for each in reversed(made)), self._end]:
            try:
                await (end() if cancelled is None else _cut_short(end()))
            except asyncio.CancelledError as error:
                cancelled = error
            except BaseException as error:
                failures.append(error)
        if cancelled is not None:
            raise cancelled
        if failures:
            raise failures[0]

    def _leave_to_parent(self) -> None:
        self.over = ErrorCode.CLIENT_MISUSED
        if self._drop is not None:
            self._drop()
        for made in list(self._made):
            made._leave_to_parent()


async def _cut_short(end: Coroutine[Any, Any, None]) -> None:
    """Have it end without waiting for anything: it is cancelled where it first would."""
    begun = asyncio.Event()

    async def run() -> None:
        begun.set()
        await end

    task = asyncio.create_task(run(), name="an end that is cut short")
    await begun.wait()
    task.cancel()
    await task


_roots: WeakSet[Lifecycle] = WeakSet()


def _after_fork() -> None:
    for lifecycle in list(_roots):
        lifecycle._leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


def note_or_raise(failure: MillstreamError, error: BaseException | None) -> None:
    """What failed on the way out is raised, unless something is on its way already: then it is a note there."""
    if error is None:
        raise failure
    error.add_note(f"On the way out: {failure}")
