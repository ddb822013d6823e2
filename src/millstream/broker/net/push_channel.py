"""Defines the part of a connection that push subscriptions use: send frames, wait for a slow reader, end."""

from typing import Protocol

from millstream.broker.dispatch.request import Answer, DeferredResponse, Work
from millstream.model.errors import MillstreamError


class StreamingRequest(Protocol):
    """A request that sends further frames with its correlation id after its response.

    The responses of other requests are sent between these frames, in the order of the requests.
    """

    def begin(self) -> None:
        """Start sending frames. Called once the response is in the outbox; later calls have no effect."""
        ...

    def go_on(self) -> None:
        """Continue sending, because the peer takes data again."""
        ...

    def end(self, error: MillstreamError) -> None:
        """Send the peer a last frame with this error."""
        ...

    def drop(self) -> None:
        """Stop without a last frame, because the connection is closed."""
        ...


class PushChannel(Protocol):
    open_requests: dict[int, StreamingRequest]
    """The open streaming requests by correlation id. A request removes itself when it ends."""

    @property
    def is_paused(self) -> bool:
        """True while the peer takes no more data."""
        ...

    def hold(self, request: StreamingRequest) -> None:
        """Call `go_on` of this request once the peer takes data again. Requests that are not held are not called."""
        ...

    def push(self, correlation_id: int, flexible: bool, answer: Answer) -> None:
        """Send a frame now."""
        ...

    def start(self, work: Work, later: DeferredResponse) -> None:
        """Run work as a task. An unexpected failure closes the connection."""
        ...

    def fail(self, error: BaseException) -> None:
        """Close the connection because of an unexpected failure."""
        ...
