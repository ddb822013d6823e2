"""Defines the request that a handler receives and the results that it may return."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, field

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


class BrokerRequest(Struct, eq=False):
    """One request frame with its header decoded. The body begins at `body` in `frame`; `peer` is the client."""

    version: int
    correlation_id: int
    frame: memoryview
    body: int
    peer: ClientInfo = field(default_factory=ClientInfo)
    _push_channel: "PushChannel | None" = None
    access: Access = FULL_ACCESS
    """The rights on the resources that the request names. Full access, unless the dispatch table limits it."""

    @property
    def push_channel(self) -> "PushChannel":
        """The connection's push channel, for a request that sends frames after its response."""
        assert self._push_channel is not None, "a push subscription needs a connection"
        return self._push_channel

    @property
    def principal(self) -> Principal:
        return self.peer.principal

    def limit(self, access: Access) -> None:
        """Limit what the handler may do to this access."""
        assert access.is_limited, "the check of a right is left out if everything is allowed"
        self.access = access

    @property
    def client_id(self) -> str:
        """The client id in the request header. It is decoded on each access, since few handlers need it."""
        return read_request_header(self.frame, flexible=False)[0] or ""


class Work(NamedTuple):
    """A coroutine that produces the response. It runs as a task."""

    run: Coroutine[Any, Any, Answer | None]
    hurry: Callable[[], None] | None = None
    change: OpenChange | None = None
    """As in `DeferredResponse`."""


def _ignore_duration(duration_s: float) -> None:
    """Do not count a response that is not queued yet."""


class DeferredResponse(Struct, eq=False):
    """A response that is not ready yet and that a callback will finish. It costs less than a task.

    Invariant: only the first `finish` has an effect. A later one, such as a timeout after the data, is ignored.
    """

    _hurry: Callable[[], None] | None = None
    """Should call `finish` with the available data. The connection calls it when it drains, and when the client has
    disconnected."""
    change: OpenChange | None = None
    """The change that the request makes. Later requests of the connection that read it wait for this response.

    None once the response is ready.
    """
    answer: Answer | None = None
    error: Exception | None = None
    """The unexpected failure because of which there is no response."""
    is_done: bool = False
    correlation_id: int = 0
    flexible: bool = False
    frame_bytes: int = 0
    """Memory of the request that the response holds until it is sent."""
    held_bytes: int = 0
    """Memory of the response itself, while it waits for earlier ones."""
    begun_s: float = 0
    """The time when the request was dispatched."""
    observe: Callable[[float], None] = _ignore_duration
    """Counts the answered request with its duration in seconds."""
    _when_done: "Callable[[DeferredResponse], None] | None" = None
    _start: "Callable[[Work, DeferredResponse], None] | None" = None

    @classmethod
    def done(cls, answer: Answer) -> "DeferredResponse":
        """Return a response that is ready, but must wait for the responses before it."""
        return cls(answer=answer, is_done=True)

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
            when_done(self)

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

    def queued(
        self,
        correlation_id: int,
        flexible: bool,
        frame_bytes: int,
        when_done: "Callable[[DeferredResponse], None]",
        start: "Callable[[Work, DeferredResponse], None]",
        observe: Callable[[float], None],
        begun_s: float,
    ) -> None:
        """Note the request that this response answers. Have `when_done` called with this response once it is complete.

        `start` runs the work of `become`.
        """
        self.correlation_id = correlation_id
        self.flexible = flexible
        self.frame_bytes = frame_bytes
        self._when_done = when_done
        self._start = start
        self.observe = observe
        self.begun_s = begun_s

    def when_done(
        self,
        callback: "Callable[[DeferredResponse], None]",
        start: "Callable[[Work, DeferredResponse], None] | None" = None,
    ) -> None:
        """Have `callback` called with this response once it is complete. `start` runs the work of `become`."""
        self._when_done = callback
        self._start = start

    def held(self, size_bytes: int) -> None:
        """Note the memory of the finished response, which waits for earlier ones."""
        self.held_bytes = size_bytes

    def hurry(self) -> None:
        """Ask for an early response: the peer has disconnected or the broker stops. Some responses cannot be early."""
        if self._hurry is not None:
            self._hurry()


Result = Answer | DeferredResponse | Work | None
"""The result of a handler: a response, a deferred response, work that produces one, or None for no response."""

Handler = Callable[[BrokerRequest], Result]
