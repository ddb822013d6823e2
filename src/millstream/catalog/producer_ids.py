"""Producer ids, handed out from blocks so that a new producer seldom touches the catalog."""

import asyncio

from millstream.catalog.catalog import Catalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import FIRST_SELF_NAMED_PRODUCER

BLOCK = 1_000
BOUND_MAX = 1_000_000
"""So many ids, and one block more at most, are remembered with the producer group that they were given to."""


class ProducerIds:
    """Gives each producer an id that nobody else ever had.

    A block is committed to the catalog before its first id leaves, so a crash wastes the rest of a block and never
    gives an id twice. An id for a producer group is noted as that group's before it leaves, so whoever finds it in a
    batch knows whose it is. None is of those that writers make for themselves.
    """

    def __init__(self, catalog: Catalog, node_id: int, *, block: int = BLOCK, bound_max: int = BOUND_MAX) -> None:
        self._catalog = catalog
        self._node_id = node_id
        self._block = block
        self._bound_max = bound_max
        self._next = 0
        self._end = 0
        self._refill: asyncio.Task[None] | None = None

    async def next(self, producer_group: str | None = None) -> int:
        """A new producer id, of this producer group where one is named.

        KAFKA_STORAGE_ERROR when a new block is needed and the catalog cannot give one, or cannot note the group.
        """
        given = await self._next_id()
        if producer_group is not None:
            await self._catalog.bind_producer(given, producer_group, self._node_id)
        return given

    async def _next_id(self) -> int:
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
            if ids.stop > FIRST_SELF_NAMED_PRODUCER:
                text = f"the catalog's producer ids have reached {ids.stop}; those are not given out"
                raise MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, text)
            await self._catalog.trim_producers(self._bound_max)
            self._next, self._end = ids.start, ids.stop
        finally:
            self._refill = None
