"""Takes Arrow record batches, numbers their rows in each partition, and sees them stored once.

The rows' order and the columns decide where each goes and which number it has there, never chance or time: a writer of
the same name and epoch that is given the same rows gives them the same numbers, and stores what is missing. Rows that
nothing else decides for go to one partition for `BLOCK_ROWS` rows, then to the next.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.numbered.numbered_partition import NumberedPartition
from millstream.sdk.numbered.options import NumberedOptions, producer_id_of
from millstream.sdk.numbered.row_packing import Packer
from millstream.sdk.producing.leader_route import ask_identity
from millstream.sdk.responses import ProducerIdentity
from millstream.seams.clock import Clock

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS = 65_536
PIECE_BYTES = 8 * 1024 * 1024
"""About so much is gathered before it is divided among partitions, so that each gets batches worth sending."""
HELD_BYTES_MAX = 32 * 1024 * 1024
"""While so much is under way, no more is taken."""

_log = logging.getLogger("millstream.sdk.numbered")


class NumberedEngine:
    """One writer, used by one caller at a time."""

    def __init__(self, asking: RetryingCaller, clock: Clock, topic: str, options: NumberedOptions) -> None:
        self._asking = asking
        self._clock = clock
        self._topic = topic
        self._options = options
        self._packer: Packer | None = None
        self._lanes: list[NumberedPartition] = []
        self._rows = 0
        self._parts: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0
        self._changed = asyncio.Event()

    async def write(self, batch: "pa.RecordBatch") -> None:
        """Take these rows; waits while too much is under way. Raises what an earlier batch failed with, too."""
        step = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, min(step, BLOCK_ROWS - (self._rows + self._gathered_rows) % BLOCK_ROWS))
            self._parts.append(part)
            self._gathered_rows += part.num_rows
            self._gathered_bytes += part.nbytes
            at += part.num_rows
            if self._gathered_bytes >= PIECE_BYTES or (self._rows + self._gathered_rows) % BLOCK_ROWS == 0:
                await self._send()

    async def finish(self) -> int:
        """Wait until all rows are stored; how many they are."""
        if self._parts:
            await self._send()
        await self._until(lambda: all(lane.is_idle for lane in self._lanes))
        surplus = sum(lane.surplus for lane in self._lanes)
        if surplus:
            _log.warning(
                "%s: %d more rows are stored under this name and epoch than were given now; a repeated writer must be "
                "given the same rows in the same order",
                self._topic,
                surplus,
            )
        return self._rows

    async def close(self) -> None:
        """Give up what is under way; what was sent may be stored."""
        for lane in self._lanes:
            lane.cancel()

    async def _send(self) -> None:
        """Number what was gathered, and hand it to the lanes."""
        if not self._lanes:
            await self._open()
        turn = (self._options.turn + self._rows // BLOCK_ROWS) % len(self._lanes)
        numbers = [lane.numbers for lane in self._lanes]
        assert self._packer is not None
        work = partial(self._packer.pack, self._parts, numbers, turn, self._clock.wall_ms())
        packed, counts = await self._asking.workers.run(work)
        for lane, count in zip(self._lanes, counts, strict=True):
            lane.next_number += count
        self._rows += self._gathered_rows
        self._parts, self._gathered_rows, self._gathered_bytes = [], 0, 0
        for each in packed:
            self._lanes[each.partition].add(each)
        await self._until(lambda: sum(lane.held_bytes for lane in self._lanes) < HELD_BYTES_MAX)

    async def _open(self) -> None:
        deadline = Deadline(self._options.timeout_s)
        name, count = self._options.name, self._options.partitions
        if name is None:
            identity = await ask_identity(self._asking, deadline)
        else:
            identity = ProducerIdentity(producer_id_of(name), self._options.epoch)
        packer = self._packer = Packer(identity, self._options)
        if count is None:

            async def ask() -> int:
                view = await self._asking.cluster.topic(self._topic, deadline, auto_create=True)
                return len(view.partitions)

            count = await self._asking.retrying(ask, deadline, self._topic)
        self._lanes = [
            NumberedPartition(
                TopicPartition(self._topic, number), self._asking, packer, self._options, self._changed.set
            )
            for number in range(count)
        ]

    async def _until(self, is_reached: Callable[[], bool]) -> None:
        while True:
            self._changed.clear()
            failed = next((lane.error for lane in self._lanes if lane.error is not None), None)
            if isinstance(failed, MillstreamError):
                raise MillstreamError(failed.code, failed.detail) from failed
            if failed is not None:
                raise client_failed(_log, "the numbered writer", failed) from failed
            if is_reached():
                return
            await self._changed.wait()
