"""Turns the frames of one connection into responses: frame, header, route, role, right, open changes, handler.

A request whose handler answers at once is answered within the read that received it, without any await. While earlier
requests wait for a flush or for data, later requests are already handled. Their responses are held back to keep the
order (see `millstream.broker.dispatch.response_queue`). A request that reads what an earlier one still changes is not
handled yet (see `millstream.broker.dispatch.open_changes`). A request without the role or the right never waits, and
its body is decoded only to build the refusal.
"""

from collections.abc import Callable
from struct import Struct

from millstream.broker.dispatch.dispatch_table import DispatchTable
from millstream.broker.dispatch.request import BrokerRequest, CloseConnectionError
from millstream.broker.dispatch.response_queue import ResponseQueue
from millstream.broker.dispatch.roles import wrong_role
from millstream.broker.net.client_info import ClientInfo
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.push_channel import PushChannel
from millstream.model.errors import ErrorCode
from millstream.wire.error_counts import count_errors
from millstream.wire.framing import read_request_header
from millstream.wire.malformed import MalformedMessageError

_START = Struct(">hhih")
_START_BYTES = _START.size


class UnservedRequestError(CloseConnectionError):
    """Closes the connection: the request has an unsupported API key or version, and no error response exists for it."""


class Dispatcher:
    __slots__ = ("_channel", "_memory", "_now_s", "_peer", "_responses", "_routes", "_table", "_waiting_since_s")

    def __init__(
        self,
        table: DispatchTable,
        memory: MemoryLimits,
        peer: ClientInfo,
        channel: PushChannel,
        responses: ResponseQueue,
        now_s: Callable[[], float],
    ) -> None:
        """Store the connection's parts. `now_s` reads the monotonic clock, to measure the duration of requests."""
        self._table = table
        self._routes = table.routes
        self._memory = memory
        self._peer = peer
        self._channel = channel
        self._responses = responses
        self._now_s = now_s
        self._waiting_since_s = 0.0
        """The first dispatch of a request that waits for changes of earlier ones; 0 if there is none."""

    def dispatch(self, frame: bytearray) -> bool:
        """Handle a request and put its response into the queue.

        Returns False if the request must wait for changes of earlier requests. The caller keeps the frame, and calls
        again once responses have become ready.

        Raises MalformedMessageError, CloseConnectionError, or an unexpected error of a handler. The request then has no
        response, and the caller must close the connection.
        """
        size = len(frame)
        begun_s = self._waiting_since_s or self._now_s()
        self._waiting_since_s = 0.0
        try:
            if size < _START_BYTES:
                raise MalformedMessageError(f"a frame of {size} bytes is too short for a request header")
            key, version, correlation_id, client_bytes = _START.unpack_from(frame)
            view = memoryview(frame)
            body = _START_BYTES + client_bytes
            peer, responses = self._peer, self._responses
            if peer.client_id is None:
                peer.introduced(view[_START_BYTES : max(body, _START_BYTES)])
            route = self._routes.get((key, version)) or self._table.route(key, version=version)
            if route is None:
                refusal, observe = self._refusal(key, version=version), self._table.stats[key].durations.observe
                responses.add(correlation_id, False, size, refusal, observe, begun_s)
                return True
            if size > route.bytes_max:
                raise MalformedMessageError(f"a {route.api} request of {size} bytes exceeds {route.bytes_max} bytes")
            if client_bytes < 0 or body >= size or (route.flexible and frame[body]):
                _, body = read_request_header(view, route.flexible)
            elif route.flexible:
                body += 1  # The usual request has no tags.
            request = BrokerRequest(version, correlation_id, view, body, peer, self._channel)
            error = None if route.check is None else route.check(request)
            if peer.role is not None and route.role is not None and route.role is not peer.role:
                error = wrong_role(key, route.api, peer)
            if error is not None:
                result = self._table.refuse(route.api, request, error)
            elif responses.changing & route.waits_for and responses.must_wait(request, route.waits_for, route.targets):
                self._waiting_since_s = begun_s
                return False
            else:
                result = route.handle(request)
        except Exception:
            self._memory.give_back(size)
            raise
        responses.add(correlation_id, route.flexible_answer, size, result, route.observe, begun_s)
        return True

    def _refusal(self, key: int, *, version: int) -> bytes:
        """Return the response to a key or version that is not served.

        Raises UnservedRequestError if the protocol has no such response.
        """
        row = self._table.rows.get(key)
        if row is None or row.refusal is None:
            api = row.api if row else "?"
            raise UnservedRequestError(
                ErrorCode.UNSUPPORTED_VERSION, f"key {key} ({api}) version {version} is not served"
            )
        count_errors(row.api, ErrorCode.UNSUPPORTED_VERSION.number, count=1)
        return row.refusal
