"""Issues producer ids from blocks, so that a new producer rarely needs the catalog."""

import asyncio

from millstream.catalog.catalog import Catalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId, ProducerId
from millstream.model.limits import FIRST_SELF_NAMED_PRODUCER

BLOCK = 1_000
BOUND_MAX = 1_000_000
"""Number of ids for which the catalog remembers the producer group; there may be up to one block more."""


class ProducerIds:
    """Issues producer ids that are unique in the cluster.

    A block is committed to the catalog before its first id is issued. So a crash loses the rest of a block, but no id
    is ever issued twice. An id for a producer group is bound to the group before it is issued, so the group of every
    batch with this id is known. Issued ids are always lower than those that writers choose themselves.
    """

    def __init__(self, catalog: Catalog, node_id: BrokerId, *, block: int = BLOCK, bound_max: int = BOUND_MAX) -> None:
        self._catalog = catalog
        self._node_id = node_id
        self._block = block
        self._bound_max = bound_max
        self._next = 0
        self._end = 0
        self._refill: asyncio.Task[None] | None = None

    async def next(self, producer_group: str | None = None) -> ProducerId:
        """Returns a new producer id, bound to `producer_group` if one is given.

        Raises KAFKA_STORAGE_ERROR if a new block is needed and the catalog cannot provide it, or if the group cannot be
        bound.
        """
        given = await self._next_id()
        if producer_group is not None:
            await self._catalog.bind_producer(given, producer_group, self._node_id)
        return given

    async def _next_id(self) -> ProducerId:
        while self._next == self._end:
            if self._refill is None:
                self._refill = asyncio.create_task(self._take_block())
            # Many callers may wait for one block: the cancellation of one must not affect the others.
            await asyncio.shield(self._refill)
        given = ProducerId(self._next)
        self._next += 1
        return given

    async def _take_block(self) -> None:
        try:
            ids = await self._catalog.next_producer_ids(self._block, self._node_id)
            if ids.stop > FIRST_SELF_NAMED_PRODUCER:
                text = f"no producer ids are left: the next block would end at {ids.stop}"
                raise MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, text)
            await self._catalog.trim_producers(self._bound_max)
            self._next, self._end = ids.start, ids.stop
        finally:
            self._refill = None
