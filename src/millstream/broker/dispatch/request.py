"""A request on its way to a handler, and the three ways in which it can be answered."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.broker.net.client_info import ClientInfo
from millstream.model.errors import MillstreamError
from millstream.wire.framing import Piece, read_request_header

if TYPE_CHECKING:
    from millstream.broker.net.push_channel import PushChannel

Answer = bytes | list[Piece]
"""An answer's body: in one piece, or in pieces that are sent one after the other without being joined."""


class CloseConnectionError(MillstreamError):
    """A request that must not be answered went wrong; closing the connection is the only way to say so."""


class BrokerRequest:
    """One frame, its header read; the body begins at `body` within `frame`. `peer` is who it came from."""

    __slots__ = ("_push_channel", "body", "correlation_id", "frame", "peer", "version")

    def __init__(
        self,
        version: int,
        correlation_id: int,
        frame: memoryview,
        body: int,
        peer: ClientInfo | None = None,
        push_channel: "PushChannel | None" = None,
    ) -> None:
        self.version = version
        self.correlation_id = correlation_id
        self.frame = frame
        self.body = body
        self.peer = ClientInfo() if peer is None else peer
        self._push_channel = push_channel

    @property
    def push_channel(self) -> "PushChannel":
        """The connection, for a request that is not over with its answer."""
        assert self._push_channel is not None, "who stands came over a connection"
        return self._push_channel

    @property
    def client_id(self) -> str:
        """What the client calls itself; read only when somebody wants to know."""
        return read_request_header(self.frame, flexible=False)[0] or ""


class Work(NamedTuple):
    """An answer that must be awaited; runs as a task."""

    run: Coroutine[Any, Any, Answer | None]
    hurry: Callable[[], None] | None = None
    """As for `DeferredResponse`."""


class DeferredResponse:
    """An answer that is not there yet; lighter than a task, for what waits on a callback.

    Invariant: `finish` has an effect once; whoever comes second (a timeout after the data, say) changes nothing.
    """

    __slots__ = ("_hurry", "_start", "_when_done", "answer", "error", "is_done")

    def __init__(self, hurry: Callable[[], None] | None = None) -> None:
        """`hurry` is called when nobody will wait any longer: it should call `finish` with what is there."""
        self.answer: Answer | None = None
        self.error: Exception | None = None
        """Why there is no answer, if it ended in a failure that nobody expected."""
        self.is_done = False
        self._hurry = hurry
        self._when_done: Callable[[], None] | None = None
        self._start: Callable[[Work, DeferredResponse], None] | None = None

    @classmethod
    def done(cls, answer: Answer) -> "DeferredResponse":
        """An answer that is there already, but must wait for its turn."""
        later = cls()
        later.answer = answer
        later.is_done = True
        return later

    def finish(self, answer: Answer | None) -> None:
        """The answer is there; None when the request is not to be answered."""
        if self.is_done:
            return
        self.answer = answer
        self.is_done = True
        when_done = self._when_done
        # Those hold this one in turn: kept, they would leave the answer in memory until garbage is looked for.
        self._hurry = self._when_done = self._start = None
        if when_done is not None:
            when_done()

    def fail(self, error: Exception) -> None:
        """There will be no answer, so the connection ends: those behind it could not be answered either."""
        self.error = error
        self.finish(None)

    def on_hurry(self, hurry: Callable[[], None]) -> None:
        """As in the constructor, for what is known only after the work was begun."""
        if not self.is_done:
            self._hurry = hurry

    def become(self, work: Work) -> None:
        """The answer takes work after all; only once the handler has returned."""
        assert self._start is not None, "who waits has told how to work"
        self._hurry = work.hurry
        self._start(work, self)

    def when_done(
        self, callback: Callable[[], None], start: "Callable[[Work, DeferredResponse], None] | None" = None
    ) -> None:
        """Have `callback` called once the answer is there; `start` runs the work that it turned out to take."""
        self._when_done = callback
        self._start = start

    def hurry(self) -> None:
        """The peer has gone or the broker stops: answer with what is there, if that is a matter of choice."""
        if self._hurry is not None:
            self._hurry()


Result = Answer | DeferredResponse | Work | None
"""What a handler returns: an answer at once, one that comes later, work to be awaited, or None for no answer."""

Handler = Callable[[BrokerRequest], Result]
