"""What all public classes that block are made of: `aio/facade.py`, with the waiting done on the client's own thread."""

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
    """A public class, or a part of one, that lives as long as `lifecycle`."""

    def __init__(self, portal: Portal, context: ClientContext, lifecycle: Lifecycle) -> None:
        self._portal = portal
        self._context = context
        self._lifecycle = lifecycle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._context}, {self._lifecycle}>"

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the engine's work; CLIENT_CLOSED or CLIENT_MISUSED when this may not be used any more."""
        if self._lifecycle.over is not None:
            work.close()
            raise self._lifecycle.refusal()
        return self._portal.run(work)

    def _call(self, make: Callable[[], T]) -> T:
        """What `make` gives, called on the event loop; for what does not wait."""
        self._lifecycle.check()
        return self._portal.call(make)

    def _span_s(self, span: Time, name: str = "timeout") -> float:
        return self._context.times.span_s(span, name)

    @property
    def closed(self) -> bool:
        return self._lifecycle.over is not None


class Facade(EngineHandle):
    """A public class with an end of its own: a client, or something that a client made."""

    def close(self) -> None:
        """End it, and what it made, after what is under way; a second time only waits for the first to be through."""
        if self._lifecycle.over is None:
            self._portal.run(self._lifecycle.close())
        elif not self._lifecycle.has_ended:
            with suppress(MillstreamError):  # The client may end in the same moment, and with it whoever waits.
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
    """What is opened by a call that blocks can be used with `with` as it is."""
    return make
