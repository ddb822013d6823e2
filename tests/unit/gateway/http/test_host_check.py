"""Tests that requests with the name of another host are refused, as browsers send them in a DNS rebinding attack."""

import asyncio
import json

import pytest

from millstream.gateway.gateway import Gateway
from millstream.gateway.settings import GatewaySettings

OTHERS = [
    "rebound.example",
    "rebound.example:8080",
    "localhost.example",
    "localhost:8080.example",
    "127.0.0.1:80:80",
    "",
]
OWN = ["localhost", "LocalHost:1", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "localhost:", "127.0.0.2:80"]


def answer_to(host: bytes, path: str = "/health", *, listen: str = "127.0.0.2", allowed: tuple[str, ...] = ()) -> bytes:
    """The answer of a gateway on the address `listen` to a request with these header lines."""

    async def story() -> bytes:
        gateway = Gateway(GatewaySettings(host=listen, http_port=0, grpc_port=-1, allowed_hosts=allowed))
        try:
            await gateway.start()
            reader, writer = await asyncio.open_connection("127.0.0.2", gateway.http_port)
            writer.write(b"GET %b HTTP/1.1\r\n%bConnection: close\r\n\r\n" % (path.encode(), host))
            answer = await reader.read()
            writer.close()
            return answer
        finally:
            await gateway.close()

    return asyncio.run(story())


@pytest.mark.parametrize("path", ["/metrics", "/health", "/v1/clusters", "/docs", "/nothing"])
@pytest.mark.parametrize("host", OTHERS)
def test_a_request_to_an_unknown_host_is_refused_on_loopback(host: str, path: str) -> None:
    head, _, body = answer_to(b"Host: %b\r\n" % host.encode(), path).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403")
    assert b"content-type: application/problem+json" in head
    problem = json.loads(body)
    assert (problem["code"], problem["field"]) == ("CLUSTER_AUTHORIZATION_FAILED", "Host")
    assert problem["title"] == "the Host header names an unknown host"


@pytest.mark.parametrize("host", OWN)
def test_loopback_names_and_the_listen_address_are_allowed_with_any_port(host: str) -> None:
    assert answer_to(b"Host: %b\r\n" % host.encode()).startswith(b"HTTP/1.1 200")


def test_a_second_host_header_does_not_hide_the_first() -> None:
    assert answer_to(b"Host: rebound.example\r\nHost: localhost\r\n").startswith(b"HTTP/1.1 403")


def test_a_request_without_a_host_header_is_allowed() -> None:
    assert answer_to(b"").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("allowed", ["stream.example", "*"])
def test_allowed_hosts_accepts_further_names(allowed: str) -> None:
    assert answer_to(b"Host: Stream.example:80\r\n", allowed=(allowed,)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(("allowed", "status"), [((), b"200"), (("stream.example",), b"403")])
def test_beyond_loopback_any_host_is_allowed_unless_some_are_configured(
    allowed: tuple[str, ...], status: bytes
) -> None:
    answer = answer_to(b"Host: machine.example\r\n", listen="0.0.0.0", allowed=allowed)
    assert answer.startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("host", [b"", b"Host: localhost\r\n"])
@pytest.mark.parametrize("target", ["http://evil/metrics", "http://evil:80/", "https://localhost@evil/health"])
def test_an_absolute_request_target_with_another_host_is_refused(target: str, host: bytes) -> None:
    answer = answer_to(host, target)
    assert b" 403 " in answer.splitlines()[0]
    assert b"CLUSTER_AUTHORIZATION_FAILED" in answer


@pytest.mark.parametrize(
    "target", ["http://localhost/health", "http://127.0.0.1:8080/health", "http://me@[::1]:1/health"]
)
def test_an_absolute_request_target_with_an_own_host_is_served(target: str) -> None:
    assert b" 200 " in answer_to(b"", target).splitlines()[0]
    assert b" 403 " in answer_to(b"Host: evil\r\n", target).splitlines()[0]
