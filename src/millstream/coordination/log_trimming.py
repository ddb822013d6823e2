"""Trims the log of a shard below the snapshot of its machine.

Invariant: one trim runs at a time, and none beyond the high watermark. A failed trim leaves more records in the log
than necessary, until the machine trims again.
"""

import asyncio
import logging

from millstream.model.errors import MillstreamError
from millstream.model.ids import Offset
from millstream.partition.leadership import Leadership

_log = logging.getLogger(__name__)


class LogTrimming:
    """Trims the log of one shard in the background, one trim at a time."""

    def __init__(self, partition: Leadership) -> None:
        self._partition = partition
        self._below: Offset | None = None
        """The highest offset below which the log is to be trimmed next; None if nothing is to be done."""
        self._trimming: asyncio.Task[None] | None = None

    def trim(self, below: Offset) -> None:
        """Removes all records below an offset, in the background. Everything before `below` was replaced by records
        that are durable."""
        self._below = below if self._below is None else max(below, self._below)
        if self._trimming is None:
            self._trimming = asyncio.get_running_loop().create_task(self._run(), name="trimming a coordinator log")

    async def settled(self) -> None:
        """Waits until no trim runs."""
        while self._trimming is not None:
            await asyncio.wait([self._trimming])

    async def _run(self) -> None:
        partition = self._partition
        try:
            while (below := self._below) is not None:
                self._below = None
                assert below <= partition.high_watermark, "durable records replace those that are trimmed"
                try:
                    await partition.trim(below)
                except MillstreamError as error:
                    fields = {"topic": partition.topic, "partition": partition.number, "offset": below}
                    _log.warning("coordinator log not trimmed", extra={**fields, "error": str(error)})
        finally:
            self._trimming = None
