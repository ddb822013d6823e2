"""Calls the user's callbacks, with a timeout and with their exceptions logged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from millstream.process.log_event import LogEvent
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
        callback_name = f"on_{change.kind.value}"
        log.error(LogEvent("callback cancelled", callback=callback_name, partitions=partitions, timeout_s=timeout_s))


def report(on_health: Callable[[Health], None], health: Health) -> None:
    """Call `on_health`; an exception of the callback is logged and does not affect the consumer."""
    try:
        on_health(health)
    except BaseException:  # The thread runs everything of this client, so no exception may end it.
        log.exception(LogEvent("callback failed", callback="on_health", health=health))
