"""Classifies listen addresses, and reports an address that cannot be bound."""

from collections.abc import Awaitable
from ipaddress import ip_address
from typing import TypeVar

from millstream.model.errors import ErrorCode, MillstreamError

T = TypeVar("T")

EVERY_ADDRESS = ("", "0.0.0.0", "::")


def reachable_host(host: str) -> str:
    """Returns the host at which a local process reaches one that listens on `host`."""
    return "127.0.0.1" if host in EVERY_ADDRESS else host


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a process that listens on `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def listening(setting: str, host: str, port: int, listen: Awaitable[T]) -> T:
    """Returns the result of `listen`. Raises ADDRESS_UNAVAILABLE, with the flag to change, if it cannot bind."""
    try:
        return await listen
    except OSError as problem:
        raise address_unavailable(setting, host, port, problem) from problem


def address_unavailable(setting: str, host: str, port: int, problem: OSError) -> MillstreamError:
    """Returns the error for an address that cannot be bound, with the flag to change."""
    flag = "--" + setting.replace("_", "-")
    why = problem.strerror or str(problem)
    text = f"cannot listen on {host}:{port}: {why}. Stop the process that uses it, or choose another with {flag}."
    return MillstreamError(ErrorCode.ADDRESS_UNAVAILABLE, text)
