"""Addresses to listen on."""

from collections.abc import Awaitable
from ipaddress import ip_address
from typing import TypeVar

from millstream.model.errors import ErrorCode, MillstreamError

T = TypeVar("T")

EVERY_ADDRESS = ("", "0.0.0.0", "::")


def reachable_host(host: str) -> str:
    """Where a process of this machine reaches one that listens on `host`."""
    return "127.0.0.1" if host in EVERY_ADDRESS else host


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def listening(setting: str, host: str, port: int, listen: Awaitable[T]) -> T:
    """What `listen` gives; ADDRESS_UNAVAILABLE, naming the flag that chooses another, when it cannot be had."""
    try:
        return await listen
    except OSError as problem:
        why = problem.strerror or str(problem)
        flag = "--" + setting.replace("_", "-")
        raise MillstreamError(
            ErrorCode.ADDRESS_UNAVAILABLE,
            f"cannot listen on {host}:{port}: {why}. Stop what uses it, or choose another with {flag}.",
        ) from problem
