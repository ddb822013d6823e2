"""A connection as those see it who go on sending after their answer."""

from typing import Protocol

from millstream.broker.dispatch.request import Answer, DeferredResponse, Work
from millstream.model.errors import MillstreamError


class StreamingRequest(Protocol):
    """A request that is not over with its answer: further frames with its correlation id follow.

    Between frames everything else is answered as ever, in the order of the requests.
    """

    def begin(self) -> None:
        """The answer is on its way; what follows may follow. Called again, it changes nothing."""
        ...

    def go_on(self) -> None:
        """The peer takes data again."""
        ...

    def end(self, error: MillstreamError) -> None:
        """Tell the peer why nothing more comes."""
        ...

    def drop(self) -> None:
        """Nobody listens any more."""
        ...


class PushChannel(Protocol):
    open_requests: dict[int, StreamingRequest]
    """By correlation id; each leaves when it is over."""

    @property
    def is_paused(self) -> bool:
        """Whether the peer has enough for now."""
        ...

    def hold(self, request: StreamingRequest) -> None:
        """Tell it to go on when the peer takes data again; others are not told."""
        ...

    def push(self, correlation_id: int, flexible: bool, answer: Answer) -> None:
        """Send a frame now."""
        ...

    def start(self, work: Work, later: DeferredResponse) -> None:
        """Run something to be awaited; a failure that nobody expected ends the connection."""
        ...

    def fail(self, error: BaseException) -> None:
        """End the connection for a failure that nobody expected."""
        ...
