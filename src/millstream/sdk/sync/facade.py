"""Defines the base classes of the public blocking classes. Waiting happens on the client's own thread.

`aio/facade.py` has the same classes for asyncio.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from millstream.model.errors import MillstreamError
from millstream.sdk.client_context import ClientContext
from millstream.sdk.lifecycle import Lifecycle, note_or_raise
from millstream.sdk.sync.portal import Portal
from millstream.sdk.time_arguments import Time

__all__ = ["Facade", "Portal", "opening"]

T = TypeVar("T")
Make = TypeVar("Make", bound=Callable[..., object])


class EngineHandle:
    """Base of public classes and their parts: passes calls to an engine while `lifecycle` is open."""

    def __init__(self, portal: Portal, context: ClientContext, lifecycle: Lifecycle) -> None:
        self._portal = portal
        self._context = context
        self._lifecycle = lifecycle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._context}, {self._lifecycle}>"

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the engine; raises CLIENT_CLOSED after close and CLIENT_MISUSED after a fork."""
        if self._lifecycle.over is not None:
            work.close()
            raise self._lifecycle.refusal()
        return self._portal.run(work)

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


class Facade(EngineHandle):
    """Base of public classes that can be closed: the client and the objects it creates."""

    def close(self) -> None:
        """Finish pending work and close this object and everything it created.

        A second call waits until the first call has finished.
        """
        if self._lifecycle.over is None:
            self._portal.run(self._lifecycle.close())
        elif not self._lifecycle.has_ended:
            with suppress(MillstreamError):  # The client may close at the same time, which ends this wait.
                self._portal.run(self._lifecycle.ended())

    def __enter__(self) -> Self:
        self._lifecycle.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except MillstreamError as failure:
            note_or_raise(failure, error)


def opening(make: Make) -> Make:
    """Return the function unchanged: the result of a blocking call can be used with `with` directly."""
    return make
