"""Defines the request that a handler receives and the results that it may return."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.broker.dispatch.open_changes import OpenChange
from millstream.broker.net.client_info import ClientInfo
from millstream.model.authorization import FULL_ACCESS, Access, Principal
from millstream.model.errors import MillstreamError
from millstream.wire.framing import Piece, read_request_header

if TYPE_CHECKING:
    from millstream.broker.net.push_channel import PushChannel

Answer = bytes | list[Piece]
"""The body of a response, in one piece or in several pieces, which are sent in order without being joined."""


class CloseConnectionError(MillstreamError):
    """A failed request that must not be answered. Closing the connection is the only way to report the failure."""


class BrokerRequest:
    """One request frame with its header decoded. The body begins at `body` in `frame`; `peer` is the client."""

    __slots__ = ("_push_channel", "body", "correlation_id", "frame", "peer", "version")

    access: Access = FULL_ACCESS
    """The rights on the resources that the request names. Full access, unless the dispatch table limits it."""

    def __init__(
        self,
        version: int,
        *,
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
        """The connection's push channel, for a request that sends frames after its response."""
        assert self._push_channel is not None, "a push subscription needs a connection"
        return self._push_channel

    @property
    def principal(self) -> Principal:
        return self.peer.principal

    def limited_to(self, access: Access) -> "BrokerRequest":
        """Return the same request with this access."""
        return _LimitedRequest(self, access)

    @property
    def client_id(self) -> str:
        """The client id in the request header. It is decoded on each access, since few handlers need it."""
        return read_request_header(self.frame, flexible=False)[0] or ""


class _LimitedRequest(BrokerRequest):
    __slots__ = ("access",)

    def __init__(self, request: BrokerRequest, access: Access) -> None:
        super().__init__(
            request.version,
            correlation_id=request.correlation_id,
            frame=request.frame,
            body=request.body,
            peer=request.peer,
            push_channel=request._push_channel,
        )
        self.access = access


class Work(NamedTuple):
    """A coroutine that produces the response. It runs as a task."""

    run: Coroutine[Any, Any, Answer | None]
    hurry: Callable[[], None] | None = None
    change: OpenChange | None = None
    """As in `DeferredResponse`."""


class DeferredResponse:
    """A response that is not ready yet and that a callback will finish. It costs less than a task.

    Invariant: only the first `finish` has an effect. A later one, such as a timeout after the data, is ignored.
    """

    __slots__ = ("_hurry", "_start", "_when_done", "answer", "change", "error", "is_done")

    def __init__(self, hurry: Callable[[], None] | None = None, change: OpenChange | None = None) -> None:
        """Register `hurry`: it should call `finish` with the available data.

        The connection calls it when it drains, and when the client has disconnected. Later requests of the connection
        that read what `change` changes wait for this response.
        """
        self.change = change
        """None once the response is ready."""
        self.answer: Answer | None = None
        self.error: Exception | None = None
        """The unexpected failure because of which there is no response."""
        self.is_done = False
        self._hurry = hurry
        self._when_done: Callable[[], None] | None = None
        self._start: Callable[[Work, DeferredResponse], None] | None = None

    @classmethod
    def done(cls, answer: Answer) -> "DeferredResponse":
        """Return a response that is ready, but must wait for the responses before it."""
        later = cls()
        later.answer = answer
        later.is_done = True
        return later

    def finish(self, answer: Answer | None) -> None:
        """Complete the response. None means that the request gets no response."""
        if self.is_done:
            return
        assert self.answer is None, "a response is set once, when the request is finished"
        self.answer = answer
        self.is_done = True
        when_done = self._when_done
        # These callbacks refer back to this object. The cycle would keep the answer until a garbage collection.
        self._hurry = self._when_done = self._start = self.change = None
        if when_done is not None:
            when_done()

    def fail(self, error: Exception) -> None:
        """Report that there will be no response. The connection closes, since later responses cannot overtake it."""
        if not self.is_done:
            self.error = error
            self.finish(None)

    def on_hurry(self, hurry: Callable[[], None]) -> None:
        """Set the `hurry` of the constructor later, when it is known only after the work has started."""
        if not self.is_done:
            self._hurry = hurry

    def become(self, work: Work) -> None:
        """Continue as a task, because the response needs work. Call this only after the handler has returned."""
        self._hurry = work.hurry
        self.run(work, self)

    def run(self, work: Work, later: "DeferredResponse") -> None:
        """Run work whose result finishes `later`, which is this response or one that this response waits for."""
        assert self._start is not None, "`when_done` has set the function that starts work"
        self._start(work, later)

    def when_done(
        self, callback: Callable[[], None], start: "Callable[[Work, DeferredResponse], None] | None" = None
    ) -> None:
        """Register `callback` for the completion of the response. `start` runs the work that `become` passes on."""
        self._when_done = callback
        self._start = start

    def hurry(self) -> None:
        """Ask for an early response: the peer has disconnected or the broker stops. Some responses cannot be early."""
        if self._hurry is not None:
            self._hurry()


Result = Answer | DeferredResponse | Work | None
"""The result of a handler: a response, a deferred response, work that produces one, or None for no response."""

Handler = Callable[[BrokerRequest], Result]
