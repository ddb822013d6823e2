"""Implements one HTTP connection: uvicorn's protocol with timeouts and limits against slow or hostile clients.

- The head and the body of a request each have a timeout, and so has the client's reading of the answer.
- The size of a head is limited, and so is the data after a body or between its chunks.
- The number of connections is limited; a connection over the limit gets a 503.
- A lost connection cancels the handler's task (`task`).
- The host of an absolute request target counts as a Host header.
- A client that closes only its sending side still gets its answer.
"""

import asyncio
import logging
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from millstream.gateway.http.endpoint import CONNECTION
from millstream.gateway.http.responses import problem_answer, problem_of
from millstream.gateway.traffic import Traffic
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.log_limiter import LogLimiter
from millstream.process.tls_detection import ADVICE as TLS_ADVICE
from millstream.process.tls_detection import EVENT as TLS_EVENT
from millstream.process.tls_detection import is_tls_handshake

log = logging.getLogger(__name__)

TLS_QUIET_S = 60.0


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """Timeouts of a client and limits of its connections."""

    head_s: float = 10.0
    """Timeout for receiving the head of a request. It starts with the first byte, or with the connection."""
    body_s: float = 60.0
    """Timeout for receiving the body of a request. It starts at the end of the head."""
    take_s: float = 30.0
    """Timeout for the client to read a response."""
    head_bytes: int = 64 * 1024
    connections: int = 20_000


class Refusal(NamedTuple):
    """The reason phrase of a status, and the title of its problem response."""

    reason: bytes
    title: str


REFUSALS = {
    400: Refusal(b"Bad Request", "the request is malformed"),
    408: Refusal(b"Request Timeout", "the request was not received in time"),
    431: Refusal(b"Request Header Fields Too Large", "the request head is too large"),
    503: Refusal(b"Service Unavailable", "too many connections are open"),
}


_TARGET_END = re.compile(rb"[/?#]")


class GatewayProtocol(HttpToolsProtocol):
    """One connection with a single request timer. When it fires, it checks the current deadline and re-arms itself."""

    timeouts = ClientTimeouts()
    tls_clients = LogLimiter(TLS_QUIET_S)
    """Limits the log lines about TLS clients. It is shared by all connections of a server."""
    traffic = Traffic("http")
    """Counts the refused requests of all connections of a server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_lost = False
        self.task: asyncio.Task[Any] | None = None
        self._deadline_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._taking_timer: asyncio.TimerHandle | None = None
        self._answered_s = 0.0
        self._is_paused = False
        self._head_bytes = 0
        self._is_in_head = True

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.timeouts.connections:
            self._refuse(503, ErrorCode.GATEWAY_FULL, f"{len(self.connections)} connections are open; retry later")
        else:
            self._expect_within(self.timeouts.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        for timer in (self._timer, self._taking_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        if self.task is not None:
            self.task.cancel()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open for the response if a whole request has arrived."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._head_bytes += len(data)  # The parser's callbacks reset this for body data.
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._stay_with_http(data[upgrade.args[0] :])
            return
        except HttpParserError:
            if is_tls_handshake(data):
                self._note_tls_client()
            self._refuse(400, ErrorCode.INVALID_REQUEST, "this is not an HTTP/1.1 request")
            return
        if self._head_bytes > self.timeouts.head_bytes and not self.transport.is_closing():
            text = f"the request head, or the data after the body, exceeds {self.timeouts.head_bytes} bytes"
            self._refuse(431, ErrorCode.INVALID_REQUEST, text)

    def _note_tls_client(self) -> None:
        """Log a TLS client, each host at most once a minute."""
        host = self.client[0] if self.client else ""
        if self.tls_clients.admit(host, self.loop.time()) is not None:
            log.warning(TLS_EVENT, extra={"listener": "http_port", "peer": host, "error": TLS_ADVICE})

    def _stay_with_http(self, rest: bytes) -> None:
        """Handle a request that offers an upgrade, as HTTP/2 clients send, as plain HTTP/1.1.

        Without this, the parser would take the body for data of the other protocol.
        """
        kept = [b"%b: %b\r\n" % each for each in self.headers if each[0] != b"upgrade"]
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        is_tunnel = self.parser.get_method() == b"CONNECT"
        self.parser = HttpRequestParser(self)
        if is_tunnel:
            self._refuse(400, ErrorCode.INVALID_REQUEST, "CONNECT is not supported")
        else:
            self.data_received(b"".join([line, *kept, b"\r\n", rest]))

    # The request.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_within(self.timeouts.head_s)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._is_in_head = False
        self._head_bytes = 0
        self._expect_within(self.timeouts.body_s)
        if not self.url.startswith((b"/", b"*")):
            self.headers.append((b"host", _authority(self.url)))  # The Host check examines each Host header.
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
        self._deadline_s = None
        super().on_message_complete()

    def _expect_within(self, seconds: float) -> None:
        self._deadline_s = self.loop.time() + seconds
        if self._timer is None:
            self._timer = self.loop.call_at(self._deadline_s, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._deadline_s is None or self.transport.is_closing():
            return
        if self.loop.time() < self._deadline_s:
            self._timer = self.loop.call_at(self._deadline_s, self._check_deadline)
        elif not self._head_bytes and self._is_in_head:
            self.transport.close()  # No byte of a request has arrived.
        else:
            self._refuse(408, ErrorCode.REQUEST_TIMED_OUT, "the request was not received completely in time")

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
        if self._taking_timer is None and not self.is_lost:
            self._taking_timer = self.loop.call_later(self.timeouts.take_s, self._check_taken)

    def _check_taken(self) -> None:
        """Abort the connection if the client does not read its response.

        The check also runs for closing connections, until they are gone.
        """
        self._taking_timer = None
        if not self.transport.get_write_buffer_size():
            return
        deadline_s = self._answered_s + self.timeouts.take_s
        if self.loop.time() < deadline_s:
            self._taking_timer = self.loop.call_at(deadline_s, self._check_taken)
        elif self._is_paused or self.transport.is_closing() or self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    async def taken(self) -> None:
        """Wait until the client has read most of the response, or is gone."""
        if self.flow.write_paused:
            await self.flow.drain()

    def _refuse(self, status: int, code: ErrorCode, detail: str) -> None:
        """Write a problem response directly and close; no parsed request exists to answer."""
        reason, title = REFUSALS[status]
        answer = problem_answer(problem_of(MillstreamError(code, detail), status, title=title))
        head = b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        if not (self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete):
            self.transport.write(head % (status, reason, answer.content_type, len(answer.body)) + answer.body)
            self.traffic.refused(status, client=self.client)
        self.transport.close()
        self._expect_taken()


def _authority(url: bytes) -> bytes:
    """Return host and port of an absolute request target, such as `http://host:8080/path`."""
    return _TARGET_END.split(url.partition(b"://")[2], maxsplit=1)[0].rpartition(b"@")[2]


def protocol_with(timeouts: ClientTimeouts, traffic: Traffic | None = None) -> type[GatewayProtocol]:
    """Make the protocol class for connections with these timeouts. `traffic` counts the requests that it refuses."""
    shared = {"timeouts": timeouts, "tls_clients": LogLimiter(TLS_QUIET_S), "traffic": traffic or Traffic("http")}
    return type("ConfiguredProtocol", (GatewayProtocol,), shared)
