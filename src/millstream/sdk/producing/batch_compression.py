"""Batches that are to be compressed, made in workers: that takes milliseconds, for which an event loop is not held.

A batch is begun when it joins its line and stays in its place there, so the order is that of the lines; several are
made at once. What is not compressed, or small, takes less time to make than to hand over, and is made in its turn.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from millstream.sdk.producing.batches import claim_ids, encode, encoded_parts, keep, parts, with_own_ids
from millstream.sdk.producing.chunk import ProducerBatch
from millstream.sdk.producing.options import ProducerOptions
from millstream.seams.workers import Workers

T = TypeVar("T")

HEAVY_BYTES = 8 * 1024
"""From so many on, as the producer counts them, a batch is compressed in a worker."""


class BatchCompressor:
    """One producer's; used on its event loop."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._under_way: set[ProducerBatch] = set()

    def begin(self, batch: ProducerBatch, then: Callable[[], None]) -> None:
        """Make the batch's bytes, and call `then`; nothing for one that is made when its turn comes."""
        if not _is_heavy(batch):
            return
        claim_ids(batch)
        self._under_way.add(batch)
        made = self._workers.run(partial(encode, batch))
        made.add_done_callback(partial(self._made, batch, then))

    def holds(self, batch: ProducerBatch) -> bool:
        """Whether its bytes are being made."""
        return batch in self._under_way

    def _made(self, batch: ProducerBatch, then: Callable[[], None], made: "asyncio.Future[bytearray]") -> None:
        self._under_way.remove(batch)
        if made.exception() is None and not batch.is_settled:
            keep(batch, made.result())
        then()  # What cannot be encoded fails in its turn, when that is tried again.

    async def add_ids(self, batch: ProducerBatch) -> None:
        """Have the ids in the bytes that were asked for since those were made."""
        if _is_heavy(batch) and batch.encoded is not None and claim_ids(batch):
            batch.encoded = await self._workers.run(partial(with_own_ids, batch))

    async def halves(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Two batches in the place of one that its topic finds too large."""
        middle = batch.count // 2
        return await self.parts(batch, [range(middle), range(middle, batch.count)])

    async def parts(self, batch: ProducerBatch, positions: Sequence[Sequence[int]]) -> list[ProducerBatch]:
        """As `batches.parts`, where the batch went."""
        return parts(batch, positions, await self.run(batch, partial(encoded_parts, batch, positions)))

    async def run(self, batch: ProducerBatch, work: Callable[[], T]) -> T:
        """Work that opens the batch, or makes it: in a worker if that takes long."""
        return await self._workers.run(work) if _is_heavy(batch) else work()


def _is_heavy(batch: ProducerBatch) -> bool:
    options: ProducerOptions = batch.chunk.options
    return options.compression != "none" and int(batch.held_bytes) >= HEAVY_BYTES
