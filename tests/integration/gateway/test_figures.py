"""Tests the metrics of a gateway: traffic by interface, and memory held by requests."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from builders.gateways.processes import RealGateway, ask, gateway, put
from millstream.gateway.grpc.v1 import events_pb2, messages_pb2
from millstream.gateway.grpc.v1.messages_pb2_grpc import MessageServiceStub
from millstream.testing.real_broker import RealBroker

SERVICE = "/" + messages_pb2.DESCRIPTOR.services_by_name["MessageService"].full_name
Samples = dict[tuple[str, ...], float]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RealGateway]:
    with RealBroker(tmp_path / "data") as broker, gateway(broker.bootstrap, grpc=True) as started:
        yield started


def samples(running: RealGateway) -> Samples:
    """Every sample by its name and label values."""
    text = ask(f"{running.url}/metrics").body.decode()
    return {
        (sample.name.removeprefix("millstream_gateway_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_events_bytes_and_requests_are_counted_by_interface(running: RealGateway) -> None:
    before = samples(running)
    assert put(running.url, "orders", "a", "b", "c").status == 200
    assert len(ask(f"{running.url}/events?topic=orders&offset=1&wait=0").json["events"]) == 2
    assert ask(f"{running.url}/events?topic=none&wait=0").status == 404
    with grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}") as channel:
        messages = MessageServiceStub(channel)
        messages.Put(messages_pb2.PutRequest(topic="orders", event=events_pb2.Event(value=b"d")))
        assert len(messages.Get(messages_pb2.GetRequest(topic="orders", wait_ms=0)).messages) == 4
        with pytest.raises(grpc.RpcError):
            messages.Get(messages_pb2.GetRequest(topic="none"))
    after = samples(running)
    grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    expected: Samples = {
        ("events_written_total", "http"): 3,
        ("events_read_total", "http"): 2,
        ("requests_total", "http", "messages:write", "/events", "200"): 1,
        ("requests_total", "http", "messages:read", "/events", "200"): 1,
        ("requests_total", "http", "messages:read", "/events", "404"): 1,
        ("request_seconds_count", "http", "/events"): 3,
        ("events_written_total", "grpc"): 1,
        ("events_read_total", "grpc"): 4,
        ("requests_total", "grpc", "messages:write", f"{SERVICE}/Put", "OK"): 1,
        ("requests_total", "grpc", "messages:read", f"{SERVICE}/Get", "OK"): 1,
        ("requests_total", "grpc", "messages:read", f"{SERVICE}/Get", "NOT_FOUND"): 1,
        ("request_seconds_count", "grpc", f"{SERVICE}/Get"): 2,
    }
    assert {name: grown.get(name) for name in expected} == expected
    assert {name for name in grown if name[0] == "requests_total"} <= set(expected)
    for interface in ("http", "grpc"):
        assert grown["received_bytes_total", interface] > 10
        assert grown["sent_bytes_total", interface] > 10
    assert after["polls_waiting",] == 0
    while samples(running)["held_bytes",]:  # It is given back a moment after the answer was taken.
        time.sleep(0.01)


def test_held_bytes_include_an_unread_response_until_its_client_disconnects(running: RealGateway) -> None:
    for _ in range(20):
        assert put(running.url, "much", "x" * 900_000).status == 200
    with socket.create_connection(("127.0.0.1", running.http_port)) as lazy:
        lazy.sendall(b"GET /events?topic=much&max_bytes=16000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while samples(running)["held_bytes",] < 10_000_000:
            time.sleep(0.01)
    while samples(running)["held_bytes",]:
        time.sleep(0.01)


def raw_answer(running: RealGateway, request: bytes) -> bytes:
    """Send bytes, and return what the gateway sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", running.http_port), 60) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def test_refused_requests_are_counted_without_a_route(tmp_path: Path) -> None:
    limits = ("--head-ms", "200ms", "--connections-max", "2")
    with RealBroker(tmp_path / "data") as broker, gateway(broker.bootstrap, *limits, grpc=True) as running:
        assert ask(f"{running.url}/nothing/here").status == 404
        assert ask(f"{running.url}/v1/topics/orders", method="PUT").status == 405
        assert ask(f"{running.url}/docs", headers={"Host": "elsewhere.example"}).status == 403
        assert b" 400 " in raw_answer(running, b"garbage\r\n\r\n")
        assert b" 408 " in raw_answer(running, b"GET / HT")
        assert b" 431 " in raw_answer(running, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000)
        while b" 503 " not in crowded(running):
            time.sleep(0.01)
        with grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}") as channel:
            call: Any = channel.unary_unary("/unknown.Service/Method", lambda _: b"", lambda _: None)
            with pytest.raises(grpc.RpcError):
                call(b"")
        found = samples(running)
    for status in ("404", "403", "400", "408", "431"):
        assert found["requests_total", "http", "nothing", "", status] == 1
    assert found["requests_total", "http", "nothing", "", "503"] >= 1
    assert found["requests_total", "http", "nothing", "/v1/topics/{topic}", "405"] == 1
    assert found["requests_total", "grpc", "nothing", "", "UNIMPLEMENTED"] == 1


def crowded(running: RealGateway) -> bytes:
    """Open as many connections as are allowed, and return the answer to one more."""
    address = ("127.0.0.1", running.http_port)
    with (
        socket.create_connection(address),
        socket.create_connection(address),
        socket.create_connection(address, 60) as third,
    ):
        return third.recv(65536)


def test_the_lag_of_the_event_loop_is_observed(running: RealGateway) -> None:
    name = "millstream_event_loop_lag_seconds_count"
    while not samples(running)[name,]:
        time.sleep(0.01)
