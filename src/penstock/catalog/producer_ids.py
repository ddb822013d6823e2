"""Producer ids, handed out from blocks so that a new producer seldom touches the catalog."""

import asyncio

from penstock.catalog.catalog import Catalog

BLOCK = 1_000


class ProducerIds:
    """Gives each producer an id that nobody else ever had.

    A block is committed to the catalog before its first id leaves, so a crash wastes the rest of a block and never
    gives an id twice.
    """

    def __init__(self, catalog: Catalog, node_id: int, *, block: int = BLOCK) -> None:
        self._catalog = catalog
        self._node_id = node_id
        self._block = block
        self._next = 0
        self._end = 0
        self._refill: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """A new producer id; KAFKA_STORAGE_ERROR when a new block is needed and the catalog cannot give one."""
        while self._next == self._end:
            if self._refill is None:
                self._refill = asyncio.create_task(self._take_block())
            # Many may wait for one block; one of them going away must not take it from the others.
            await asyncio.shield(self._refill)
        given = self._next
        self._next += 1
        return given

    async def _take_block(self) -> None:
        try:
            ids = await self._catalog.next_producer_ids(self._block, self._node_id)
            self._next, self._end = ids.start, ids.stop
        finally:
            self._refill = None
