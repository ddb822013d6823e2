"""WatchMember: one of Millstream's own keys. Sends one further frame when a member should send a heartbeat now.

The response does not wait, so requests behind it on the connection are not delayed. The further frame has the
correlation id of the request and comes exactly once, unless the response has an error or the connection ends first.
"""

from millstream.broker.dispatch.request import BrokerRequest
from millstream.broker.group_requests import GroupCoordination
from millstream.broker.net.push_channel import PushChannel
from millstream.broker.push.subscriptions import check_further_frames
from millstream.groups.commands import WatchMember
from millstream.groups.responses import Answer, EmptyResponse
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.waiters import Cancel
from millstream.wire.messages import read_request, write_response

API = "WatchMember"


class WatchMemberHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> bytes:
        fields = read_request(API, request.version, request.frame, request.body)
        group_id = fields["group_id"]
        try:
            request.access.check_group(group_id)
            check_further_frames(request.push_channel, request.correlation_id)
            watch = _MemberWatch(request.push_channel, correlation_id=request.correlation_id, version=request.version)
            watch.open(self._groups, WatchMember(group_id, fields["member_id"]))
        except MillstreamError as error:
            return _encode(request.version, error.code, error.detail)
        return _encode(request.version, ErrorCode.NONE, "")


class _MemberWatch:
    """The streaming request of one watch.

    Invariant: it is among the open requests of its connection from `open` until it is over.
    """

    __slots__ = ("_cancel", "_channel", "_correlation_id", "_is_begun", "_is_over", "_outcome", "_version")

    def __init__(self, channel: PushChannel, *, correlation_id: int, version: int) -> None:
        self._channel = channel
        self._correlation_id = correlation_id
        self._version = version
        self._cancel: Cancel | None = None
        self._outcome: EmptyResponse | None = None
        self._is_begun = False
        self._is_over = False

    def open(self, groups: GroupCoordination, command: WatchMember) -> None:
        """Send the watch to the coordinator. Raises the error if the coordinator refuses immediately."""
        self._channel.open_requests[self._correlation_id] = self
        self._cancel = groups.ask(command.group_id, command, self._answered)
        outcome = self._outcome
        if outcome is not None and outcome.error is not ErrorCode.NONE:
            self.drop()
            raise MillstreamError(outcome.error, outcome.detail or outcome.error.meaning)

    def _answered(self, answer: Answer) -> None:
        assert isinstance(answer, EmptyResponse), f"a watch was answered with {answer}"
        if self._is_over:
            return
        self._outcome = answer
        if self._is_begun:
            self._finish(answer.error, answer.detail)

    # As a streaming request.

    def begin(self) -> None:
        self._is_begun = True
        if self._outcome is not None and not self._is_over:
            self._finish(self._outcome.error, self._outcome.detail)

    def go_on(self) -> None:
        """Do nothing: the single frame is sent even if the peer reads slowly."""

    def end(self, error: MillstreamError) -> None:
        if not self._is_over:
            self._finish(error.code, error.detail)

    def drop(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        removed = self._channel.open_requests.pop(self._correlation_id, None)
        assert removed is self, "a watch is among the open requests until it is over"
        if self._cancel is not None:
            self._cancel()

    def _finish(self, error: ErrorCode, detail: str) -> None:
        self.drop()
        self._channel.push(self._correlation_id, True, _encode(self._version, error, detail))


def _encode(version: int, error: ErrorCode, detail: str) -> bytes:
    if error is ErrorCode.NONE:
        return write_response(API, version, {})
    return write_response(API, version, {"error_code": error.number, "error_message": detail or error.meaning})
