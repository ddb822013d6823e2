"""Serves the operator port: metrics, health and readiness over minimal HTTP/1.1.

The port answers GET and HEAD requests for a few fixed paths, one request per connection, so it needs no framework.
Clients cannot make it use much memory: a request head has at most 8 KiB, a connection lives at most ten seconds, and at
most 64 connections are open.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, cast

from millstream.process.log_limiter import LogLimiter
from millstream.process.tls_detection import ADVICE as TLS_ADVICE
from millstream.process.tls_detection import EVENT as TLS_EVENT
from millstream.process.tls_detection import is_tls_handshake
from millstream.seams.network import Listening, Network

log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 8192
CONNECTIONS_MAX = 64
LIFETIME_S = 10.0
TLS_QUIET_S = 60.0

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Response(NamedTuple):
    status: int
    content_type: str
    body: bytes


Page = Callable[[], Response | Awaitable[Response]]
"""Returns a response. A page that takes long returns an awaitable, which runs in slices."""


def text_response(status: int, text: str) -> Response:
    return Response(status, "text/plain; charset=utf-8", (text + "\n").encode())


class OperatorPort:
    """Serves `pages` by path."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._listening: Listening | None = None
        self._tls_clients = LogLimiter(TLS_QUIET_S)
        self.connections: dict[_Connection, None] = {}

    async def start(self, network: Network, host: str, port: int) -> None:
        """Starts to listen. Raises OSError if the address cannot be bound."""
        self._listening = await network.listen(lambda: _Connection(self), host, port)

    @property
    def port(self) -> int:
        """The port that is listened on, or -1."""
        return self._listening.port if self._listening else -1

    def stop(self) -> None:
        """Stops listening and drops every connection."""
        if self._listening:
            self._listening.close()
            self._listening = None
        for connection in [*self.connections]:
            connection.drop()

    def note_tls_client(self, peer: Any) -> None:
        """Logs a TLS client, each host at most once a minute."""
        host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        if self._tls_clients.admit(host, asyncio.get_running_loop().time()) is not None:
            log.warning(TLS_EVENT, extra={"listener": "operator_port", "peer": host, "error": TLS_ADVICE})

    async def answer(self, head: bytes) -> bytes:
        """Returns the encoded response to a request head."""
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return encode(text_response(400, "this is not an HTTP/1.1 request"))
        if words[0] not in (b"GET", b"HEAD"):
            return encode(text_response(405, "only GET and HEAD are supported"))
        page = self._pages.get(words[1].partition(b"?")[0].decode("latin-1"))
        if page is None:
            return encode(text_response(404, "not found; available: " + ", ".join(self._pages)))
        try:
            made = page()
            response = made if isinstance(made, Response) else await made
        except Exception:
            log.exception("operator page failed", extra={"path": words[1].decode("latin-1")})
            response = text_response(500, "internal error; see the broker's log")
        return encode(response, body=words[0] == b"GET")


def encode(response: Response, *, body: bool = True) -> bytes:
    """Encodes a response. Content-Length is the length of the body, even if the body is left out (HEAD)."""
    head = (
        f"HTTP/1.1 {response.status} {REASONS[response.status]}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (response.body if body else b"")


class _Connection(asyncio.Protocol):
    """Serves one request per connection."""

    def __init__(self, port: OperatorPort) -> None:
        self._port = port
        self._head = bytearray()
        self._answering: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = asyncio.get_running_loop().call_later(LIFETIME_S, self.drop)
        self._port.connections[self] = None
        if len(self._port.connections) > CONNECTIONS_MAX:
            self._finish(encode(text_response(503, "too many connections")))

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self._answering:
            return
        self._head += data
        if is_tls_handshake(self._head):
            self._port.note_tls_client(self._transport.get_extra_info("peername"))
            self.drop()
            return
        end = self._head.find(b"\r\n\r\n")
        if end >= 0:
            self._answering = asyncio.get_running_loop().create_task(self._answer(bytes(self._head[:end])))
        elif len(self._head) > HEAD_BYTES_MAX:
            self._finish(encode(text_response(431, "request head too long")))

    def connection_lost(self, exc: Exception | None) -> None:
        self._port.connections.pop(self, None)
        self._transport = None
        if self._deadline:
            self._deadline.cancel()
        if self._answering:
            self._answering.cancel()

    def drop(self) -> None:
        if self._transport:
            self._transport.abort()

    async def _answer(self, head: bytes) -> None:
        answer = await self._port.answer(head)
        if self._transport is not None:
            self._finish(answer)

    def _finish(self, answer: bytes) -> None:
        assert self._transport is not None
        self._transport.write(answer)
        self._transport.close()
