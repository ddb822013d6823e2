"""Defines the base classes of the public asyncio classes; `sync/facade.py` has those of the blocking classes.

A public class is a thin facade over an engine of plain asyncio code. Every wait goes through `_do`. Here `_do` awaits
the engine's coroutine; in the blocking classes it runs the coroutine on the client's own thread and blocks. Engines are
therefore written once, and the blocking classes are generated from the asyncio classes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.client_context import ClientContext
from millstream.sdk.lifecycle import Lifecycle, note_or_raise
from millstream.sdk.time_arguments import Time

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound="AsyncFacade")


class AsyncPortal:
    """Binds a client to the event loop that uses it first, and refuses every other event loop."""

    callers_wait = False
    """Whether a call may block its thread. An event loop must not block."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the coroutine; raises CLIENT_MISUSED on any event loop but the first."""
        try:
            self._enter()
        except BaseException:
            work.close()
            raise
        return await work

    def call(self, make: Callable[[], T]) -> T:
        """Call `make` after checking that the client's event loop runs, and return its result."""
        self._enter()
        return make()

    def at_end(self, close_client: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do nothing: the application owns the event loop and closes the client before the loop ends."""

    async def close(self) -> None:
        """Do nothing: the application owns the event loop."""

    def _enter(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            text = "an async client needs a running event loop; without one, use millstream.connect"
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, text) from None
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            text = "this client belongs to another event loop; create one client per event loop"
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, text)


class AsyncEngineHandle:
    """Base of public classes and their parts: passes calls to an engine while `lifecycle` is open."""

    def __init__(self, portal: AsyncPortal, context: ClientContext, lifecycle: Lifecycle) -> None:
        self._portal = portal
        self._context = context
        self._lifecycle = lifecycle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._context}, {self._lifecycle}>"

    async def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the engine; raises CLIENT_CLOSED after close and CLIENT_MISUSED after a fork."""
        if self._lifecycle.over is not None:
            work.close()
            raise self._lifecycle.refusal()
        return await self._portal.run(work)

    def _call(self, make: Callable[[], T]) -> T:
        """Call `make` on the event loop and return its result. `make` must not wait."""
        self._lifecycle.check()
        return self._portal.call(make)

    def _span_s(self, span: Time, name: str = "timeout") -> float:
        return self._context.times.span_s(span, name)

    @property
    def closed(self) -> bool:
        """True after `close()`, and in a forked child process."""
        return self._lifecycle.over is not None


class AsyncFacade(AsyncEngineHandle):
    """Base of public classes that can be closed: the client and the objects it creates."""

    async def close(self) -> None:
        """Finish pending work and close this object and everything it created.

        A second call waits until the first call has finished.
        """
        if self._lifecycle.over is None:
            await self._portal.run(self._lifecycle.close())
        elif not self._lifecycle.has_ended:
            with suppress(MillstreamError):  # The client may close at the same time, which ends this wait.
                await self._portal.run(self._lifecycle.ended())

    async def __aenter__(self) -> Self:
        self._lifecycle.check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except MillstreamError as failure:
            note_or_raise(failure, error)


class PendingOpen(Generic[F]):
    """The pending result of an opening call: `await` it, or use it with `async with`, which also closes it."""

    def __init__(self, work: Coroutine[Any, Any, F]) -> None:
        self._work = work
        self._opened: F | None = None

    def __await__(self) -> Generator[Any, Any, F]:
        return self._work.__await__()

    async def __aenter__(self) -> F:
        self._opened = await self._work
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(kind, error, trace)


def opening(make: Callable[P, Coroutine[Any, Any, F]]) -> Callable[P, PendingOpen[F]]:
    """Wrap a coroutine function so that its result can be awaited or used with `async with` directly."""

    def wrapped(*args: P.args, **kwargs: P.kwargs) -> PendingOpen[F]:
        return PendingOpen(make(*args, **kwargs))

    wrapped.__doc__ = make.__doc__
    wrapped.__name__ = make.__name__
    return wrapped
