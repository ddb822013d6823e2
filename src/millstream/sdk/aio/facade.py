"""What all public classes with `async` and `await` are made of; `sync/facade.py` is the same for those that block.

A public class is thin. What it does is plain asyncio code in an engine, and every wait goes through `_do`: here it
awaits, there it hands the coroutine to an event loop in a thread of its own and blocks. So engines are written once,
and the classes that block can be generated from those that do not.
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
    """Where a client's work runs: on the event loop of whoever used it first, and on no other."""

    callers_wait = False
    """Whether callers may be held up where they are: not on an event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work; CLIENT_MISUSED on another event loop than the first."""
        try:
            self._enter()
        except BaseException:
            work.close()
            raise
        return await work

    def call(self, make: Callable[[], T]) -> T:
        """What `make` gives, called where an event loop runs."""
        self._enter()
        return make()

    def at_end(self, farewell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The event loop ends when its owner wants it to, who closes the client before."""

    async def close(self) -> None:
        """The event loop is its owner's."""

    def _enter(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            text = "an async client works within a running event loop; millstream.connect gives one that needs none"
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, text) from None
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            text = "this client belongs to another event loop; make one per event loop"
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, text)


class AsyncEngineHandle:
    """A public class, or a part of one, that lives as long as `lifecycle`."""

    def __init__(self, portal: AsyncPortal, context: ClientContext, lifecycle: Lifecycle) -> None:
        self._portal = portal
        self._context = context
        self._lifecycle = lifecycle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._context}, {self._lifecycle}>"

    async def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the engine's work; CLIENT_CLOSED or CLIENT_MISUSED when this may not be used any more."""
        if self._lifecycle.over is not None:
            work.close()
            raise self._lifecycle.refusal()
        return await self._portal.run(work)

    def _call(self, make: Callable[[], T]) -> T:
        """What `make` gives, called on the event loop; for what does not wait."""
        self._lifecycle.check()
        return self._portal.call(make)

    def _span_s(self, span: Time, name: str = "timeout") -> float:
        return self._context.times.span_s(span, name)

    @property
    def closed(self) -> bool:
        return self._lifecycle.over is not None


class AsyncFacade(AsyncEngineHandle):
    """A public class with an end of its own: a client, or something that a client made."""

    async def close(self) -> None:
        """End it, and what it made, after what is under way; a second time only waits for the first to be through."""
        if self._lifecycle.over is None:
            await self._portal.run(self._lifecycle.close())
        elif not self._lifecycle.has_ended:
            with suppress(MillstreamError):  # The client may end in the same moment, and with it whoever waits.
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
    """Something that is being opened: `await` it, or use it with `async with`, which closes it too."""

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
    """Let what a coroutine function opens be awaited, or used with `async with` at once."""

    def wrapped(*args: P.args, **kwargs: P.kwargs) -> PendingOpen[F]:
        return PendingOpen(make(*args, **kwargs))

    wrapped.__doc__ = make.__doc__
    wrapped.__name__ = make.__name__
    return wrapped
