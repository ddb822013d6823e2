"""Holds the streaming requests of one connection and sends their frames between responses."""

from collections.abc import Callable

from millstream.broker.dispatch.request import Answer, DeferredResponse, Work
from millstream.broker.dispatch.work_runner import WorkRunner
from millstream.broker.net.outbox import Outbox
from millstream.broker.net.push_channel import StreamingRequest
from millstream.model.errors import MillstreamError


class StreamChannel:
    """The `PushChannel` of a connection."""

    __slots__ = ("_fail", "_held", "_outbox", "_runner", "open_requests")

    def __init__(self, outbox: Outbox, runner: WorkRunner, fail: Callable[[BaseException], None]) -> None:
        self.open_requests: dict[int, StreamingRequest] = {}
        self._held: dict[StreamingRequest, None] = {}
        self._outbox = outbox
        self._runner = runner
        self._fail = fail

    @property
    def is_paused(self) -> bool:
        return self._outbox.is_paused

    def hold(self, request: StreamingRequest) -> None:
        self._held[request] = None

    def push(self, correlation_id: int, flexible: bool, answer: Answer) -> None:
        self._outbox.put(correlation_id, flexible, answer)
        self._outbox.send()

    def start(self, work: Work, later: DeferredResponse) -> None:
        self._runner.start(work, later)

    def fail(self, error: BaseException) -> None:
        self._fail(error)

    def resume(self) -> None:
        """Let the held requests continue, because the peer takes data again."""
        held, self._held = self._held, {}
        for each in held:
            each.go_on()

    def end(self, error: MillstreamError) -> None:
        """End all streaming requests with this error."""
        for request in list(self.open_requests.values()):
            request.end(error)

    def drop(self) -> None:
        """Drop all streaming requests, because the peer has disconnected."""
        for request in list(self.open_requests.values()):
            request.drop()
