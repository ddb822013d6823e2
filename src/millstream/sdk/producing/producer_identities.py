"""Keeps the producer identity (producer id and epoch) that the partitions of one producer share."""

import asyncio
from collections.abc import Awaitable, Callable

from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.responses import ProducerIdentity


class ProducerIdentities:
    """The current identity of one producer. A partition retires it to send no new batch under it."""

    def __init__(self, request: Callable[[Deadline], Awaitable[ProducerIdentity]]) -> None:
        self._request = request
        self._lock = asyncio.Lock()
        self._current: ProducerIdentity | None = None

    async def current(self, deadline: Deadline) -> ProducerIdentity:
        """Return the current identity; requests one from a broker if there is none."""
        async with self._lock:
            if self._current is None:
                self._current = await self._request(deadline)
        return self._current

    def retire(self, identity: ProducerIdentity) -> None:
        """Request another identity the next time that one is needed."""
        if identity == self._current:
            self._current = None
