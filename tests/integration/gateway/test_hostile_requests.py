"""Tests invalid requests: each is answered or disconnected, costs little and does not delay other clients."""

import gzip
import json
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from builders.gateways.processes import RealGateway, ask, gateway, put
from builders.gateways.raw_http import answered, connected, everything, post
from millstream.testing.real_broker import RealBroker

LIMITS = ("--head-ms", "300", "--body-ms", "300", "--take-ms", "300", "--body-bytes-max", "1MiB")
MEMORY_BYTES_MAX = 64 * 2**20
DEEP = 200_000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGateway]:
    with (
        RealBroker(tmp_path_factory.mktemp("broker") / "data", flush="os") as broker,
        gateway(broker.bootstrap, *LIMITS) as started,
    ):
        assert put(started.url, "known", "x" * 50_000).status == 200
        yield started


def resident_bytes(running: RealGateway) -> int:
    return int(Path(f"/proc/{running.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()


def problem(said: bytes) -> tuple[int, str]:
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["code"]


def dripped(connection: socket.socket, data: bytes) -> bytes:
    """The answer to a client that sends byte by byte."""
    connection.settimeout(0.02)
    for at in range(len(data)):
        try:
            connection.sendall(data[at : at + 1])
            first = connection.recv(1)
        except TimeoutError:
            continue
        except OSError:
            first = b""
        return first + everything(connection)
    pytest.fail("the slow client was never cut off")


@pytest.mark.parametrize(
    ("at_once", "slowly"),
    [
        (b"", b"GET /v1/info HTTP/1.1\r\nX: " + b"x" * 1_000),
        (b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000\r\n\r\n", b"x" * 1_000),
        (b"POST /events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 200),
    ],
    ids=["head", "body", "chunks"],
)
def test_a_client_that_sends_byte_by_byte_times_out(running: RealGateway, at_once: bytes, slowly: bytes) -> None:
    with connected(running.http_port) as slow:
        slow.sendall(at_once)
        assert problem(dripped(slow, slowly)) == (408, "REQUEST_TIMED_OUT")


def request(line: str, *fields: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join([f"{line}\r\nHost: localhost".encode("latin-1"), *fields, b"", body])


ODD = {
    "an older version": (request("GET /v1/info HTTP/1.0"), 200),
    "an absolute address": (request("GET http://localhost/v1/info HTTP/1.1", b"Connection: close"), 200),
    "an absolute address of another host": (
        request("GET http://elsewhere/v1/info HTTP/1.1", b"Connection: close"),
        403,
    ),
    "thousands of headers": (request("GET /v1/info HTTP/1.1", *[b"a: b"] * 9_000, b"Connection: close"), 200),
    "no path": (request("OPTIONS * HTTP/1.1", b"Connection: close"), 404),
    "a tunnel": (request("CONNECT elsewhere:80 HTTP/1.1"), 400),
    "a method that is none": (request("BREW /v1/info HTTP/1.1"), 400),
    "a method that is another's": (request("PUT /events HTTP/1.1", b"Connection: close"), 405),
    "a NUL in the path": (request("GET /v1/\0 HTTP/1.1"), 400),
    "a NUL in a header": (request("GET /v1/info HTTP/1.1", b"X: \0"), 400),
    "a NUL in a name": (request("GET /v1/topics/a%00b HTTP/1.1", b"Connection: close"), 422),
    "no UTF-8 in the query": (request("GET /events?topic=%ff HTTP/1.1", b"Connection: close"), 422),
    "no UTF-8 in a name": (request("GET /v1/topics/%ff HTTP/1.1", b"Connection: close"), 422),
    "other signs in the path": (request("GET /v1/\xe9 HTTP/1.1"), 400),
    "a path that leads up": (request("GET /docs/assets/../../../etc/passwd HTTP/1.1", b"Connection: close"), 404),
    "two lengths": (request("POST /events HTTP/1.1", b"Content-Length: 2", b"Content-Length: 3", body=b"{}"), 400),
    "a length and chunks": (
        request("POST /events HTTP/1.1", b"Content-Length: 2", b"Transfer-Encoding: chunked", body=b"{}"),
        400,
    ),
    "less than nothing": (request("POST /events HTTP/1.1", b"Content-Length: -2"), 400),
}


@pytest.mark.parametrize(("sent", "status"), ODD.values(), ids=ODD)
def test_an_unusual_request_is_answered_and_its_connection_closed(
    running: RealGateway, sent: bytes, status: int
) -> None:
    with connected(running.http_port) as odd:
        odd.sendall(sent)
        said = everything(odd)
    assert said.startswith(b"HTTP/1.1 %d " % status), said[:300]
    if status != 200:
        assert problem(said)[1] in (
            "INVALID_REQUEST",
            "INVALID_TOPIC",
            "RESOURCE_NOT_FOUND",
            "CLUSTER_AUTHORIZATION_FAILED",
        )


def test_an_upgrade_offer_is_ignored(running: RealGateway) -> None:
    """HTTP/2 clients offer an upgrade in the first request of a connection, of any method."""
    offer = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk")
    body = b'{"topic": "offered", "value": "%d"}'
    with connected(running.http_port) as modern:
        for number in range(3):
            data = body % number
            modern.sendall(request("POST /events HTTP/1.1", *offer, b"Content-Length: %d" % len(data), body=data))
            status, said = answered(modern)
            assert (status, json.loads(said)["offset"]) == (200, number)
        modern.sendall(request("GET /v1/info HTTP/1.1", *offer))
        assert answered(modern)[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/events", b'{"topic": "known", "value": %b}'),
        ("POST", "/events", b'{"topic": "known", "events": [{"value": 1, "key": %b}]}'),
        ("POST", "/events", b"%b"),
        ("POST", "/topic", b'{"name": "deep", "settings": %b}'),
        ("GET", "/events", b'{"topic": "known", "offset": %b}'),
        ("DELETE", "/v1/topics/known/messages", b'{"before": {"0": %b}}'),
    ],
)
@pytest.mark.parametrize("depth", [600, DEEP])
def test_deeply_nested_json_is_refused(running: RealGateway, method: str, path: str, body: bytes, depth: int) -> None:
    data = body % (b"[" * depth + b"]" * depth)
    with connected(running.http_port) as deep:
        deep.sendall(request(f"{method} {path} HTTP/1.1", b"Content-Length: %d" % len(data), body=data))
        status, said = answered(deep)
    assert status in (200, 400, 422), said
    assert status != 200 or depth != DEEP


def test_trailers_after_a_body_are_limited_like_heads(running: RealGateway) -> None:
    before_bytes = resident_bytes(running)
    with connected(running.http_port) as endless:
        endless.sendall(
            b"POST /events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"
        )
        try:
            for _ in range(10_000):
                endless.sendall(b"X: " + b"x" * 20_000 + b"\r\n")
        except OSError:
            pass  # The gateway has closed the connection.
        else:
            pytest.fail("200 MB were taken")
    assert resident_bytes(running) - before_bytes < MEMORY_BYTES_MAX


def test_decompression_bombs_are_refused_while_others_are_served(running: RealGateway) -> None:
    bomb = gzip.compress(b" " * 50_000_000, 9)
    sent = request("POST /events HTTP/1.1", b"Content-Encoding: gzip", b"Content-Length: %d" % len(bomb), body=bomb)
    before_bytes = resident_bytes(running)

    def explode(_: int) -> int:
        with connected(running.http_port) as connection:
            connection.sendall(sent)
            return answered(connection)[0]

    with ThreadPoolExecutor(8) as pool:
        statuses = pool.map(explode, range(40))
        assert put(running.url, "others", "served").status == 200
        assert set(statuses) == {413}
    assert resident_bytes(running) - before_bytes < MEMORY_BYTES_MAX


@pytest.mark.parametrize("answers", [1, 3, 4, 5, 30])
def test_unread_answers_are_dropped_after_the_timeout(running: RealGateway, answers: int) -> None:
    """With few answers, all of them fit into socket buffers, and no write blocks that could time out."""
    target = "GET /events?topic=known&offset=0 HTTP/1.1"
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        lazy.connect(("127.0.0.1", running.http_port))
        lazy.sendall(request(target) * (answers - 1) + request(target, b"Connection: close"))
        while b"\nmillstream_gateway_connections 1\n" not in ask(f"{running.url}/metrics").body:
            time.sleep(0.01)


def test_the_gateway_serves_after_hostile_requests(running: RealGateway) -> None:
    with connected(running.http_port) as good:
        good.sendall(post(b'{"topic": "after", "value": "all"}'))
        assert answered(good)[0] == 200
    assert running.process.poll() is None
