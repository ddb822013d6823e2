"""Runs a numbered writer: takes Arrow record batches, numbers their rows per partition, and stores each row once.

Partition and number of a row depend only on the order of the rows and on their columns, not on chance or time. A writer
with the same name and epoch that gets the same rows therefore numbers them equally, and stores only the missing ones.
Rows without key and partition go to one partition in blocks of `BLOCK_ROWS` rows, then to the next.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.process.log_event import LogEvent
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.numbered.numbered_partition import NumberedPartition
from millstream.sdk.numbered.options import NumberedOptions, producer_id_of
from millstream.sdk.numbered.row_packing import Packer
from millstream.sdk.producing.leader_route import request_identity
from millstream.sdk.responses import ProducerIdentity
from millstream.seams.clock import Clock

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS = 65_536
PIECE_BYTES = 8 * 1024 * 1024
"""Approximate number of bytes that are buffered before they are split by partition, so that batches are large."""
HELD_BYTES_MAX = 32 * 1024 * 1024
"""Maximum number of bytes in flight; `write` waits beyond it."""

_log = logging.getLogger("millstream.sdk.numbered")


class NumberedEngine:
    """The engine of one numbered writer, for one caller at a time."""

    def __init__(self, caller: RetryingCaller, clock: Clock, topic: str, options: NumberedOptions) -> None:
        self._caller = caller
        self._clock = clock
        self._topic = topic
        self._options = options
        self._packer: Packer | None = None
        self._partitions: list[NumberedPartition] = []
        self._rows = 0
        self._parts: list[pa.RecordBatch] = []
        self._buffered_rows = 0
        self._buffered_bytes = 0
        self._changed = asyncio.Event()

    async def write(self, batch: "pa.RecordBatch") -> None:
        """Add rows. Waits while too many bytes are in flight. Raises the error of a failed earlier batch."""
        step = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, min(step, BLOCK_ROWS - (self._rows + self._buffered_rows) % BLOCK_ROWS))
            self._parts.append(part)
            self._buffered_rows += part.num_rows
            self._buffered_bytes += part.nbytes
            at += part.num_rows
            if self._buffered_bytes >= PIECE_BYTES or (self._rows + self._buffered_rows) % BLOCK_ROWS == 0:
                await self._send()

    async def finish(self) -> int:
        """Wait until all rows are stored; returns their number."""
        if self._parts:
            await self._send()
        await self._until(lambda: all(partition.is_idle for partition in self._partitions))
        surplus = sum(partition.surplus for partition in self._partitions)
        if surplus:
            event = "numbered writer has fewer rows than stored under its name and epoch"
            advice = "a repeated writer must get the same rows in the same order"
            _log.warning(LogEvent(event, topic=self._topic, surplus_rows=surplus, advice=advice))
        return self._rows

    async def close(self) -> None:
        """Stop sending. Rows that were already sent may still be stored."""
        for partition in self._partitions:
            partition.cancel()

    async def _send(self) -> None:
        """Number the buffered rows, queue them for sending as batches, and wait while too much is in flight."""
        if not self._partitions:
            await self._open()
        turn = (self._options.turn + self._rows // BLOCK_ROWS) % len(self._partitions)
        numbers = [partition.numbers for partition in self._partitions]
        assert self._packer is not None
        work = partial(self._packer.pack, self._parts, numbers, turn=turn, time_ms=self._clock.wall_ms())
        packed, counts = await self._caller.workers.run(work)
        for partition, count in zip(self._partitions, counts, strict=True):
            partition.next_number += count
        self._rows += self._buffered_rows
        self._parts, self._buffered_rows, self._buffered_bytes = [], 0, 0
        for each in packed:
            self._partitions[each.partition].add(each)
        await self._until(lambda: sum(partition.held_bytes for partition in self._partitions) < HELD_BYTES_MAX)

    async def _open(self) -> None:
        deadline = Deadline(self._options.timeout_s)
        name, count = self._options.name, self._options.partitions
        if name is None:
            identity = await request_identity(self._caller, deadline)
        else:
            identity = ProducerIdentity(producer_id_of(name), self._options.epoch)
        packer = self._packer = Packer(identity, self._options)
        if count is None:

            async def ask() -> int:
                view = await self._caller.cluster.topic(self._topic, deadline, auto_create=True)
                return len(view.partitions)

            count = await self._caller.retrying(ask, deadline, self._topic)
        self._partitions = [
            NumberedPartition(
                TopicPartition(self._topic, number), self._caller, packer, self._options, self._changed.set
            )
            for number in range(count)
        ]

    async def _until(self, is_reached: Callable[[], bool]) -> None:
        while True:
            self._changed.clear()
            failed = next((partition.error for partition in self._partitions if partition.error is not None), None)
            if isinstance(failed, MillstreamError):
                raise MillstreamError(failed.code, failed.detail) from failed
            if failed is not None:
                raise client_failed(_log, "the numbered writer", failed) from failed
            if is_reached():
                return
            await self._changed.wait()
