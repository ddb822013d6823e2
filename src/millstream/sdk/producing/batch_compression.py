"""Encodes and compresses large batches in worker threads, because that takes milliseconds.

Encoding starts when a batch joins its partition's queue. The batch keeps its place in the queue, so the order does not
change; several batches are encoded at once. Small and uncompressed batches are encoded on the event loop when they are
sent, which is faster than passing them to a worker.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from millstream.sdk.producing.batches import claim_ids, encode, encoded_parts, keep, parts, with_own_ids
from millstream.sdk.producing.chunk import ProducerBatch
from millstream.sdk.producing.options import ProducerSettings
from millstream.seams.workers import Workers

T = TypeVar("T")

HEAVY_BYTES = 8 * 1024
"""Minimum size (`held_bytes`) of a batch that is compressed in a worker."""


class BatchCompressor:
    """Encodes the batches of one producer. Used on its event loop."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._under_way: set[ProducerBatch] = set()

    def begin(self, batch: ProducerBatch, then: Callable[[], None]) -> None:
        """Start to encode a large batch, and call `then` afterwards. Other batches are left for later."""
        if not _is_heavy(batch):
            return
        claim_ids(batch)
        self._under_way.add(batch)
        made = self._workers.run(partial(encode, batch))
        made.add_done_callback(partial(self._made, batch, then))

    def holds(self, batch: ProducerBatch) -> bool:
        """Return True while the batch is being encoded."""
        return batch in self._under_way

    def _made(self, batch: ProducerBatch, then: Callable[[], None], made: "asyncio.Future[bytearray]") -> None:
        self._under_way.remove(batch)
        if made.exception() is None and not batch.is_settled:
            keep(batch, made.result())
        then()  # A batch that cannot be encoded fails when it is sent, where encoding is tried again.

    async def add_ids(self, batch: ProducerBatch) -> None:
        """Encode a large batch again if ids of its messages were read since it was encoded."""
        if _is_heavy(batch) and batch.encoded is not None and claim_ids(batch):
            batch.encoded = await self._workers.run(partial(with_own_ids, batch))

    async def halves(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Replace a batch that is too large for its topic by two halves."""
        middle = batch.count // 2
        return await self.parts(batch, [range(middle), range(middle, batch.count)])

    async def parts(self, batch: ProducerBatch, positions: Sequence[Sequence[int]]) -> list[ProducerBatch]:
        """Replace a batch by parts for the same partition; see `batches.parts`."""
        return parts(batch, positions, await self.run(batch, partial(encoded_parts, batch, positions)))

    async def run(self, batch: ProducerBatch, work: Callable[[], T]) -> T:
        """Run work that decodes or encodes the batch: in a worker for a large batch, otherwise here."""
        return await self._workers.run(work) if _is_heavy(batch) else work()


def _is_heavy(batch: ProducerBatch) -> bool:
    options: ProducerSettings = batch.chunk.options
    return options.compression != "none" and int(batch.held_bytes) >= HEAVY_BYTES
