"""Parses broker addresses and bootstrap lists."""

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


class PartitionLeader(NamedTuple):
    """The address of a partition's leader and its leader epoch (-1: unknown)."""

    address: Address
    epoch: int


def parse_bootstrap(bootstrap: str | Sequence[str]) -> tuple[Address, ...]:
    """Parse a bootstrap list of `host`, `host:port` or `[v6]:port`; raises INVALID_SETTING."""
    parts = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
        text = f"bootstrap={bootstrap!r}: expected host:port, several separated by commas or in a list"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    seeds = tuple(_parse_one(part.strip()) for part in parts if part.strip())
    if not seeds:
        raise MillstreamError(ErrorCode.INVALID_SETTING, "bootstrap is empty; expected host:port")
    return seeds


def find_seeds(bootstrap: str | Sequence[str] | None) -> tuple[tuple[Address, ...], str]:
    """Return the bootstrap addresses and their source.

    The source of `bootstrap` is "". If it is None, the addresses come from MILLSTREAM_BOOTSTRAP or the CLI context.

    Raises INVALID_SETTING for an invalid address.
    """
    if bootstrap is not None:
        return parse_bootstrap(bootstrap), ""
    from millstream.process.contexts import find_bootstrap  # Imported only if no address is given.

    found = find_bootstrap()
    try:
        return parse_bootstrap(found.bootstrap), found.origin
    except MillstreamError as error:
        raise MillstreamError(error.code, f"{error.detail} (the address is from {found.origin})") from None


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
        raise MillstreamError(ErrorCode.INVALID_SETTING, f"{text!r} is not a broker address (expected host:port)")
    return Address(host, port)


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True
