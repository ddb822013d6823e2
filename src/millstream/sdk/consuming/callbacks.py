"""Calls the user's callbacks, with a timeout and with their exceptions logged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from millstream.sdk.consuming.health import Health
from millstream.sdk.consuming.partition_source import Change

log = logging.getLogger("millstream.sdk.consumer")


async def bounded(callback: Awaitable[None], change: Change, timeout_s: float) -> None:
    """Await a callback's awaitable. After the timeout it is cancelled, and the consumer continues."""
    try:
        async with asyncio.timeout(timeout_s):
            await callback
    except TimeoutError:
        partitions = ",".join(map(str, change.places))
        log.error(
            "callback cancelled callback=on_%s partitions=%s timeout_s=%g", change.kind.value, partitions, timeout_s
        )


def report(on_health: Callable[[Health], None], health: Health) -> None:
    """Call `on_health`; an exception of the callback is logged and does not affect the consumer."""
    try:
        on_health(health)
    except BaseException:  # The thread runs everything of this client, so no exception may end it.
        log.exception('callback failed callback=on_health health="%s"', health)
