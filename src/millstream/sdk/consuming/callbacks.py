"""Tells users' functions what happens, so that nobody gets stuck in them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from millstream.sdk.consuming.health import Health
from millstream.sdk.consuming.partition_source import Change

log = logging.getLogger("millstream.sdk.consumer")


async def bounded(told: Awaitable[None], change: Change, timeout_s: float) -> None:
    """Await what a callback returned, for so long; then it is cancelled, and the group goes on."""
    try:
        async with asyncio.timeout(timeout_s):
            await told
    except TimeoutError:
        places = ", ".join(map(str, change.places))
        log.error("on_%s of %s was given up: it took longer than %g s", change.kind.value, places, timeout_s)


def report(on_health: Callable[[Health], None], health: Health) -> None:
    """What it raises is logged, and changes nothing."""
    try:
        on_health(health)
    except BaseException:  # The thread belongs to everybody who uses the client.
        log.exception("on_health failed at: %s", health)
