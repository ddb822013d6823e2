"""Tests that the operator port serves its pages, refuses other requests, and limits connections."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millstream.node import operator_http
from millstream.node.operator_http import OperatorPort, Page, Response, text_response
from millstream.seams.network import TcpNetwork

WAIT_S = 60.0


def failing() -> Response:
    raise RuntimeError("planned")


async def slow() -> Response:
    await asyncio.sleep(0.01)
    return text_response(200, "slow")


async def failing_later() -> Response:
    await asyncio.sleep(0)
    raise RuntimeError("planned")


PAGES: dict[str, Page] = {
    "/health": lambda: text_response(200, "fine"),
    "/ready": lambda: text_response(503, "not yet"),
    "/bad": failing,
    "/metrics": slow,
    "/bad/later": failing_later,
}


def with_port(work: Callable[[OperatorPort], Awaitable[None]]) -> None:
    async def whole() -> None:
        port = OperatorPort(PAGES)
        await port.start(TcpNetwork(), "127.0.0.1", 0)
        try:
            await asyncio.wait_for(work(port), WAIT_S)
        finally:
            port.stop()

    asyncio.run(whole())


async def ask(port: OperatorPort, *parts: bytes) -> bytes:
    """Returns everything that the port sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK", b"fine\n"),
        (b"GET /health?verbose=1 HTTP/1.0\r\n\r\n", b"200 OK", b"fine\n"),
        (b"GET /ready HTTP/1.1\r\n\r\n", b"503 Service Unavailable", b"not yet\n"),
        (
            b"GET /nothing HTTP/1.1\r\n\r\n",
            b"404 Not Found",
            b"not found; available: " + ", ".join(PAGES).encode() + b"\n",
        ),
        (b"POST /health HTTP/1.1\r\n\r\n", b"405 Method Not Allowed", b"only GET and HEAD are supported\n"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"200 OK", b"slow\n"),
        (b"GET /bad/later HTTP/1.1\r\n\r\n", b"500 Internal Server Error", b"internal error; see the broker's log\n"),
        (b"GET /bad HTTP/1.1\r\n\r\n", b"500 Internal Server Error", b"internal error; see the broker's log\n"),
        (b"\x00\x00\x00\x2a\x00\x12\r\n\r\n", b"400 Bad Request", b"this is not an HTTP/1.1 request\n"),
        (b"GET /health\r\n\r\n", b"400 Bad Request", b"this is not an HTTP/1.1 request\n"),
    ],
)
def test_a_request_gets_a_response_and_the_connection_is_closed(request_: bytes, status: bytes, body: bytes) -> None:
    async def work(port: OperatorPort) -> None:
        head, _, got = (await ask(port, request_)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status)
        assert b"Connection: close" in head
        assert f"Content-Length: {len(body)}".encode() in head
        assert got == body

    with_port(work)


def test_head_returns_the_length_and_no_body() -> None:
    async def work(port: OperatorPort) -> None:
        answer = await ask(port, b"HEAD /health HTTP/1.1\r\n\r\n")
        assert answer.endswith(b"\r\n\r\n")
        assert b"Content-Length: 5\r\n" in answer

    with_port(work)


def test_a_request_may_arrive_in_pieces() -> None:
    async def work(port: OperatorPort) -> None:
        assert b"fine" in await ask(port, b"GET /hea", b"lth HTTP/1.1\r\n", b"\r", b"\n")

    with_port(work)


def test_a_request_head_that_is_too_long_is_refused() -> None:
    async def work(port: OperatorPort) -> None:
        try:
            answer = await ask(port, b"GET /health HTTP/1.1\r\nX: " + b"x" * operator_http.HEAD_BYTES_MAX)
        except ConnectionResetError:
            return
        assert answer.startswith(b"HTTP/1.1 431")

    with_port(work)


def test_a_silent_connection_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_http, "LIFETIME_S", 0.05)

    async def work(port: OperatorPort) -> None:
        try:
            assert await ask(port, b"GET /hea") == b""
        except ConnectionResetError:
            pass
        assert port.connections == {}

    with_port(work)


def test_a_connection_over_the_maximum_is_refused_and_the_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_http, "CONNECTIONS_MAX", 2)

    async def work(port: OperatorPort) -> None:
        held = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(2)]
        assert (await ask(port)).startswith(b"HTTP/1.1 503")
        for reader, writer in held:
            writer.write(b"GET /health HTTP/1.1\r\n\r\n")
            assert b"fine" in await reader.read()
            writer.close()

    with_port(work)


def test_stopping_drops_connections_and_frees_the_port() -> None:
    async def work(port: OperatorPort) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        # Connections are accepted in order: once a later one is answered, this one is open.
        await ask(port, b"GET /health HTTP/1.1\r\n\r\n")
        port.stop()
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
        assert port.port == -1

    with_port(work)
