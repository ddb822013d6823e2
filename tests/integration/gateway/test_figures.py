"""Tests the metrics of a gateway: traffic by interface, and memory held by requests."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from builders.gateways.processes import RealGateway, ask, gateway, put
from millstream.gateway.grpc.v1 import events_pb2, messages_pb2
from millstream.gateway.grpc.v1.messages_pb2_grpc import MessageServiceStub
from millstream.testing.real_broker import RealBroker

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
        ("requests_total", "http", "messages:write", "200"): 1,
        ("requests_total", "http", "messages:read", "200"): 1,
        ("requests_total", "http", "messages:read", "404"): 1,
        ("events_written_total", "grpc"): 1,
        ("events_read_total", "grpc"): 4,
        ("requests_total", "grpc", "messages:write", "OK"): 1,
        ("requests_total", "grpc", "messages:read", "OK"): 1,
        ("requests_total", "grpc", "messages:read", "NOT_FOUND"): 1,
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
