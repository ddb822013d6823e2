"""One connection of the web API: uvicorn's protocol, with time limits for whoever is slow, or pretends to be.

A request's head and its body must come within their times, what was answered must be taken within its time, and a head
has so many bytes at most, as has what comes behind or between the parts of a body. There are so many connections at
most, and one too many is told so. A connection that is lost wakes whoever still works for it (`task`). One that is only
half closed, by a caller that has nothing more to say, gets its answer.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from millstream.gateway.http.endpoint import CONNECTION
from millstream.gateway.http.responses import problem_answer, problem_of
from millstream.model.errors import ErrorCode, MillstreamError


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """How slow a caller may be, and how many of them there may be."""

    head_s: float = 10.0
    """From the first byte of a request, or of a connection, to the end of its head."""
    body_s: float = 60.0
    """From there to the end of the body."""
    take_s: float = 30.0
    """How long an answer may lie untaken."""
    head_bytes: int = 64 * 1024
    connections: int = 20_000


REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}


class GatewayProtocol(HttpToolsProtocol):
    """One timer serves a connection: it looks, when it goes off, by when what is awaited must have come."""

    patience = ClientTimeouts()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_lost = False
        self.task: asyncio.Task[Any] | None = None
        self._due_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None
        self._answered_s = 0.0
        self._is_paused = False
        self._head_bytes = 0
        self._is_in_head = True

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.patience.connections:
            self._refuse(503, ErrorCode.GATEWAY_FULL, f"{len(self.connections)} connections are open; try again later")
        else:
            self._expect_within(self.patience.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        for timer in (self._timer, self._taking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        if self.task is not None:
            self.task.cancel()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Stay open, for the answer, where all of a request has come."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._head_bytes += len(data)  # What turns out to be something else is taken off again.
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._stay_with_http(data[upgrade.args[0] :])
            return
        except HttpParserError:
            self._refuse(400, ErrorCode.INVALID_REQUEST, "this is not an HTTP/1.1 request")
            return
        if self._head_bytes > self.patience.head_bytes and not self.transport.is_closing():
            text = f"a request's head, or what follows its body, has {self.patience.head_bytes} bytes at most"
            self._refuse(431, ErrorCode.INVALID_REQUEST, text)

    def _stay_with_http(self, rest: bytes) -> None:
        """Read a request that offers another protocol, as clients for HTTP/2 do, as if it did not.

        Its body would be taken for that protocol otherwise.
        """
        kept = [b"%b: %b\r\n" % each for each in self.headers if each[0] != b"upgrade"]
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        is_tunnel = self.parser.get_method() == b"CONNECT"
        self.parser = HttpRequestParser(self)
        if is_tunnel:
            self._refuse(400, ErrorCode.INVALID_REQUEST, "there are no tunnels here")
        else:
            self.data_received(b"".join([line, *kept, b"\r\n", rest]))

    # The request.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_within(self.patience.head_s)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._is_in_head = False
        self._head_bytes = 0
        self._expect_within(self.patience.body_s)
        self.scope[CONNECTION] = self  # type: ignore[literal-required]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._is_in_head = True
        self._head_bytes = 0
        self._due_s = None
        super().on_message_complete()

    def _expect_within(self, seconds: float) -> None:
        self._due_s = self.loop.time() + seconds
        if self._timer is None:
            self._timer = self.loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._due_s is None or self.transport.is_closing():
            return
        if self.loop.time() < self._due_s:
            self._timer = self.loop.call_at(self._due_s, self._look)
        elif not self._head_bytes and self._is_in_head:
            self.transport.close()  # It never said anything.
        else:
            self._refuse(408, ErrorCode.REQUEST_TIMED_OUT, "the request did not come whole in time")

    # The answer.

    def pause_writing(self) -> None:
        super().pause_writing()
        self._is_paused = True
        self._expect_taken()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_paused = False
        self._answered_s = self.loop.time()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_taken()

    def _expect_taken(self) -> None:
        self._answered_s = self.loop.time()
        if self._taking is None and not self.is_lost:
            self._taking = self.loop.call_later(self.patience.take_s, self._look_whether_taken)

    def _look_whether_taken(self) -> None:
        """Also of connections that are closed: they are not gone before the last of an answer is."""
        self._taking = None
        if not self.transport.get_write_buffer_size():
            return
        due_s = self._answered_s + self.patience.take_s
        if self.loop.time() < due_s:
            self._taking = self.loop.call_at(due_s, self._look_whether_taken)
        elif self._is_paused or self.transport.is_closing() or self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    async def taken(self) -> None:
        """Wait until the caller has taken what was answered, or nearly all; or is gone."""
        if self.flow.write_paused:
            await self.flow.drain()

    def _refuse(self, status: int, code: ErrorCode, detail: str) -> None:
        """Answer by hand, and end: there is no request that could be answered."""
        answer = problem_answer(problem_of(MillstreamError(code, detail), status))
        head = b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        if not (self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete):
            self.transport.write(head % (status, REASONS[status], answer.content_type, len(answer.body)) + answer.body)
        self.transport.close()
        self._expect_taken()


def protocol_with(patience: ClientTimeouts) -> type[GatewayProtocol]:
    """The protocol for connections that are met with this patience."""
    return type("PatientProtocol", (GatewayProtocol,), {"patience": patience})
