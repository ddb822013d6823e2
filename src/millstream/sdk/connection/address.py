"""Broker addresses as people write them."""

from collections.abc import Sequence
from ipaddress import AddressValueError, IPv6Address
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError

KAFKA_PORT = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(bootstrap: str | Sequence[str]) -> tuple[Address, ...]:
    """The seed list: `host`, `host:port` or `[v6]:port`, several divided by commas; INVALID_SETTING otherwise."""
    parts = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
        text = f"bootstrap={bootstrap!r}: expected host:port, several divided by commas or in a list"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    seeds = tuple(_parse_one(part.strip()) for part in parts if part.strip())
    if not seeds:
        raise MillstreamError(ErrorCode.INVALID_SETTING, "the bootstrap list names no broker; give host:port")
    return seeds


def _parse_one(text: str) -> Address:
    host, port_text = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port_text = rest.removeprefix(":")
        if rest and not rest.startswith(":"):
            host = ""
    elif text.count(":") == 1:
        host, _, port_text = text.partition(":")
        if not port_text:
            host = ""
    port = KAFKA_PORT
    if port_text:
        port = int(port_text) if port_text.isascii() and port_text.isdigit() else 0
    if not host or not 0 < port < 65536 or (":" in host and not _is_ipv6(host)):
        raise MillstreamError(ErrorCode.INVALID_SETTING, f"{text!r} is no broker address; give host:port")
    return Address(host, port)


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True
