"""Limits the simulated time in which a run must end."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

SETTLING_S = 200.0
"""The time after the last fault in which everything must end on its own."""


class UnsettledError(Exception):
    """Some work did not end although all faults were over."""


async def within(timeout_s: float, work: Awaitable[T], what: str) -> T:
    """Await work. Raise UnsettledError if it takes longer in simulated time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError:
        raise UnsettledError(f"{what} did not end within {timeout_s:g} s of simulated time") from None
