"""Tracks the lifecycle of a client and the objects it created, and closes them in the right order.

Guarantees:
- A client closes the objects it created before itself, the newest first, and everything is closed once. A second
  `close` waits for the first, so that an owner does not remove what its objects still need in order to close.
- After a fork, all objects belong to the parent process. In the child every use is refused. Closing them there touches
  neither sockets nor threads, which the parent still uses. Buffered messages are dropped in the child.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Self
from weakref import WeakSet

from millstream.model.errors import ErrorCode, MillstreamError


class Lifecycle:
    """The lifecycle of one client, producer or consumer. `over` is None while the object may be used."""

    def __init__(
        self,
        name: str,
        end: Callable[[], Coroutine[Any, Any, None]],
        owner: "Lifecycle | None" = None,
        drop: Callable[[], object] | None = None,
    ) -> None:
        """`end` is awaited on the event loop at close; it may raise an error about lost messages. `drop` is called in
        the child process after a fork. It must not wait for a lock, because the lock's holder does not exist there."""
        self.name = name
        self.over: ErrorCode | None = None
        self._end = end
        self._drop = drop
        self._ended = asyncio.Event()
        self._owner = owner
        self._created: dict[Self, None] = {}
        if owner is None:
            _roots.add(self)
        else:
            owner.check()
            owner._created[self] = None

    def __str__(self) -> str:
        if self.over is not None:
            return "closed" if self.over is ErrorCode.CLIENT_CLOSED else "of another process"
        kinds = Counter(each.name for each in list(self._created))
        shown = " and ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in kinds.items())
        return f"open, with {shown}" if shown else "open"

    def check(self) -> None:
        """Raise CLIENT_CLOSED after close and CLIENT_MISUSED after a fork; otherwise do nothing."""
        if self.over is not None:
            raise self.refusal()

    def refusal(self) -> MillstreamError:
        if self.over is ErrorCode.CLIENT_MISUSED:
            text = (
                f"this {self.name} was created before a fork and belongs to the parent process; "
                "connect in the process that uses it"
            )
            return MillstreamError(ErrorCode.CLIENT_MISUSED, text)
        return MillstreamError(ErrorCode.CLIENT_CLOSED, f"this {self.name} is closed")

    async def close(self) -> None:
        """Close the created objects, then this one; raises the first failure after all are closed.

        If the caller is cancelled, the remaining objects are closed at once, without waiting for pending work.
        """
        if self.over is not None:
            await self.ended()
            return
        self.over = ErrorCode.CLIENT_CLOSED
        try:
            await self._end_all()
        finally:
            if self._owner is not None:
                self._owner._created.pop(self, None)
            self._ended.set()

    @property
    def has_ended(self) -> bool:
        """True once closing is complete, and always in a forked child."""
        return self.over is ErrorCode.CLIENT_MISUSED or self._ended.is_set()

    async def ended(self) -> None:
        """Wait until the running `close` has finished."""
        if not self.has_ended:
            await self._ended.wait()

    async def _end_all(self) -> None:
        failures: list[BaseException] = []
        cancelled: asyncio.CancelledError | None = None
        created = list(self._created)  # One atomic copy, because other threads may be creating objects.
        for end in [*(each.close for each in reversed(created)), self._end]:
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
        for each in list(self._created):
            each._leave_to_parent()


async def _cut_short(end: Coroutine[Any, Any, None]) -> None:
    """Run `end` and cancel it at the first point where it would wait."""
    begun = asyncio.Event()

    async def run() -> None:
        begun.set()
        await end

    task = asyncio.create_task(run(), name="close after cancellation")
    await begun.wait()
    task.cancel()
    await task


_roots: WeakSet[Lifecycle] = WeakSet()


def _after_fork() -> None:
    for lifecycle in list(_roots):
        lifecycle._leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


def note_or_raise(failure: MillstreamError, error: BaseException | None) -> None:
    """Raise a failure of closing; if the `with` block already raised `error`, add the failure to it as a note."""
    if error is None:
        raise failure
    error.add_note(f"While closing: {failure}")
