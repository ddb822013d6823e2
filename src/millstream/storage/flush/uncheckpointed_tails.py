"""How much a start after a crash would have to read: what was appended behind the last checkpoint."""

import asyncio
from collections.abc import Mapping

from millstream.model.names import PartitionKey
from millstream.storage.log.log import Log

TAIL_BYTES_MAX = 256 * 1024 * 1024
"""Of all logs of a directory together. A start reads it, checks it and writes it once more."""

_COUNTED_AT_ONCE = 256


class UncheckpointedTails:
    """Watches logs grow; asked about once a second."""

    def __init__(self, logs: Mapping[PartitionKey, Log]) -> None:
        self._logs = logs
        self._settled_bytes: int | None = None

    async def are_long(self) -> bool:
        """Whether so much was appended since this was last true that a checkpoint is due."""
        size_bytes = 0
        for number, log in enumerate(list(self._logs.values())):
            if number % _COUNTED_AT_ONCE == _COUNTED_AT_ONCE - 1:
                await asyncio.sleep(0)
            size_bytes += log.size_bytes
        if self._settled_bytes is None or size_bytes < self._settled_bytes:
            self._settled_bytes = size_bytes
        is_long = size_bytes - self._settled_bytes > TAIL_BYTES_MAX
        if is_long:
            self._settled_bytes = size_bytes
        return is_long
