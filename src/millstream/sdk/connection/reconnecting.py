"""Reconnects in the background to a broker whose connection was lost, until it is reached or not needed any more.

Without it, a producer that sends nothing would not notice an outage: `health()` would still report its brokers as
reachable, and no warning would be logged. Connections that stay open cost nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable

from millstream.sdk.connection.address import Address
from millstream.sdk.connection.retry_policy import backoff_s, chance
from millstream.seams.entropy import Entropy


class Reconnecting:
    """Runs at most one task per lost broker. `connect` returns True when no further attempt is needed."""

    def __init__(self, connect: Callable[[Address], Awaitable[bool]], entropy: Entropy) -> None:
        self._connect = connect
        self._entropy = entropy
        self._tasks: dict[Address, asyncio.Task[None]] = {}

    def begin(self, address: Address) -> None:
        """Reconnect to this broker, unless a task already does."""
        if address not in self._tasks:
            self._tasks[address] = asyncio.get_running_loop().create_task(self._run(address))

    def close(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _run(self, address: Address) -> None:
        try:
            attempts = 0
            while not await self._connect(address):
                await asyncio.sleep(backoff_s(attempts, chance(self._entropy)))
                attempts += 1
        finally:
            self._tasks.pop(address, None)
