"""Tests slow, oversized, malformed and half-closed clients: each hits a limit and does not delay other clients."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.gateways.raw_http import answered, connected, everything, post
from millstream.testing.real_broker import RealBroker

LIMITS = {
    "MILLSTREAM_GATEWAY_HEAD_MS": "300",
    "MILLSTREAM_GATEWAY_BODY_MS": "300",
    "MILLSTREAM_GATEWAY_TAKE_MS": "300",
    "MILLSTREAM_GATEWAY_BODY_BYTES_MAX": "1MiB",
    "MILLSTREAM_GATEWAY_CONNECTIONS_MAX": "50",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    with RealBroker(Path(tmp_path_factory.mktemp("broker")) / "data", gateway=True, env=LIMITS) as started:
        yield started


def opened(broker: RealBroker) -> socket.socket:
    return connected(broker.http_port)


def test_a_head_that_does_not_arrive_in_time_is_answered_with_408(broker: RealBroker) -> None:
    with opened(broker) as silent, opened(broker) as slow:
        slow.sendall(b"POST /events HTTP/1.1\r\nHost: localhost\r\n")
        assert everything(silent) == b""
        said = everything(slow)
        assert said.startswith(b"HTTP/1.1 408 ")
        problem = json.loads(said.partition(b"\r\n\r\n")[2])
        assert (problem["code"], problem["title"]) == ("REQUEST_TIMED_OUT", "the request was not received in time")


def test_a_body_that_does_not_arrive_in_time_is_answered_with_408(broker: RealBroker) -> None:
    with opened(broker) as slow:
        slow.sendall(b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert everything(slow).startswith(b"HTTP/1.1 408 ")


def test_an_endless_head_is_cut_off(broker: RealBroker) -> None:
    with opened(broker) as endless:
        endless.sendall(b"GET /v1/topics HTTP/1.1\r\n")
        try:
            for _ in range(100):
                endless.sendall(b"X-Filler: " + b"x" * 2_000 + b"\r\n")
        except OSError:
            pass  # The gateway has closed the connection.
        said = everything(endless)
        assert said == b"" or said.startswith(b"HTTP/1.1 431 ")


def test_a_body_over_the_limit_is_refused_before_it_is_received(broker: RealBroker) -> None:
    with opened(broker) as large:
        large.sendall(b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
        status, body = answered(large)
        assert (status, json.loads(body)["code"]) == (413, "MESSAGE_TOO_LARGE")
    with opened(broker) as chunked:
        chunked.sendall(b"POST /events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(17):
            chunked.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        status, body = answered(chunked)
        assert (status, json.loads(body)["code"]) == (413, "MESSAGE_TOO_LARGE")


def test_a_request_that_is_not_http_is_answered_with_400(broker: RealBroker) -> None:
    with opened(broker) as odd:
        odd.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        said = everything(odd)
        assert said.startswith(b"HTTP/1.1 400 ")
        assert json.loads(said.partition(b"\r\n\r\n")[2])["code"] == "INVALID_REQUEST"


def test_a_half_closed_connection_gets_its_answer(broker: RealBroker) -> None:
    with opened(broker) as half:
        half.sendall(post(b'{"topic": "half", "value": "closed"}'))
        half.shutdown(socket.SHUT_WR)
        status, body = answered(half)
        assert (status, json.loads(body)["offset"]) == (200, 0)
        assert everything(half) == b""


def test_an_incomplete_body_is_not_stored(broker: RealBroker) -> None:
    with opened(broker) as half:
        half.sendall(
            b"POST /events?topic=middle HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
            b"Content-Length: 9\r\n\r\nhal"
        )
        half.shutdown(socket.SHUT_WR)
        assert everything(half) == b""
    with opened(broker) as other:
        other.sendall(b"GET /events?topic=middle&wait=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answered(other)[0] == 404


def test_pipelined_requests_are_answered_in_order(broker: RealBroker) -> None:
    with opened(broker) as eager:
        bodies = [b'{"topic": "order", "value": "%d"}' % number for number in range(20)]
        eager.sendall(b"".join(post(body) for body in bodies))
        said = b""
        while said.count(b"HTTP/1.1 200") < 20 or not said.endswith(b"}"):
            said += eager.recv(65536)
        offsets = [json.loads(b"{" + part.partition(b"{")[2])["offset"] for part in said.split(b"HTTP/1.1 ")[1:]]
        assert offsets == list(range(20))


def test_a_client_that_does_not_read_its_answer_is_cut_off(broker: RealBroker) -> None:
    with opened(broker) as writer:
        for _ in range(30):
            writer.sendall(post(b'{"topic": "much", "value": "%b"}' % (b"x" * 900_000)))
            assert answered(writer)[0] == 200
    with opened(broker) as lazy:
        lazy.sendall(b"GET /events?topic=much&max_bytes=16000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with opened(broker) as other:
            while True:  # The metrics report when the connection is gone.
                other.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                _, figures = answered(other)
                lines = dict(line.rsplit(b" ", 1) for line in figures.splitlines() if not line.startswith(b"#"))
                if int(lines[b"millstream_gateway_connections"]) == 1:
                    break


def test_a_connection_over_the_limit_is_refused_with_503(broker: RealBroker) -> None:
    held = [opened(broker) for _ in range(50)]
    try:
        with opened(broker) as more:
            said = everything(more)
            assert said.startswith(b"HTTP/1.1 503 ")
            assert json.loads(said.partition(b"\r\n\r\n")[2])["code"] == "GATEWAY_FULL"
    finally:
        for each in held:
            each.close()
    with opened(broker) as after:
        after.sendall(b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answered(after)[0] == 200
