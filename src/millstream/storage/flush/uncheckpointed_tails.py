"""Measures how much was appended since the last checkpoint, which recovery after a crash would have to read."""

import asyncio
from collections.abc import Mapping

from millstream.model.names import PartitionKey
from millstream.storage.log.log import Log

TAIL_BYTES_MAX = 256 * 1024 * 1024
"""The limit for all logs of a directory together. Recovery reads, verifies and rewrites these bytes."""

_COUNTED_AT_ONCE = 256


class UncheckpointedTails:
    """Watches how the logs of a directory grow. The store polls it about once a second."""

    def __init__(self, logs: Mapping[PartitionKey, Log]) -> None:
        self._logs = logs
        self._base_bytes: int | None = None

    async def are_long(self) -> bool:
        """Return True if enough was appended since the last True to require a checkpoint."""
        size_bytes = 0
        for number, log in enumerate(list(self._logs.values())):
            if number % _COUNTED_AT_ONCE == _COUNTED_AT_ONCE - 1:
                await asyncio.sleep(0)
            size_bytes += log.size_bytes
        if self._base_bytes is None or size_bytes < self._base_bytes:
            self._base_bytes = size_bytes
        is_long = size_bytes - self._base_bytes > TAIL_BYTES_MAX
        if is_long:
            self._base_bytes = size_bytes
        return is_long
