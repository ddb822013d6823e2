"""Requests that a browser was talked into sending here, under the name of another host, are refused."""

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


def asked(host: bytes, path: str = "/health", *, listen: str = "127.0.0.2", allowed: tuple[str, ...] = ()) -> bytes:
    """The answer of a gateway on this address, to a request with these header lines."""

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
def test_on_this_machine_a_request_to_another_host_is_a_problem(host: str, path: str) -> None:
    head, _, body = asked(b"Host: %b\r\n" % host.encode(), path).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403")
    assert b"content-type: application/problem+json" in head
    problem = json.loads(body)
    assert (problem["code"], problem["field"]) == ("CLUSTER_AUTHORIZATION_FAILED", "Host")


@pytest.mark.parametrize("host", OWN)
def test_its_own_names_and_address_are_known_with_any_port(host: str) -> None:
    assert asked(b"Host: %b\r\n" % host.encode()).startswith(b"HTTP/1.1 200")


def test_a_second_host_does_not_hide_the_first() -> None:
    assert asked(b"Host: rebound.example\r\nHost: localhost\r\n").startswith(b"HTTP/1.1 403")


def test_who_names_no_host_is_no_browser() -> None:
    assert asked(b"").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("allowed", ["stream.example", "*"])
def test_other_names_can_be_allowed(allowed: str) -> None:
    assert asked(b"Host: Stream.example:80\r\n", allowed=(allowed,)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(("allowed", "status"), [((), b"200"), (("stream.example",), b"403")])
def test_where_others_can_ask_any_name_will_do_unless_some_are_chosen(allowed: tuple[str, ...], status: bytes) -> None:
    answer = asked(b"Host: machine.example\r\n", listen="0.0.0.0", allowed=allowed)
    assert answer.startswith(b"HTTP/1.1 " + status)
