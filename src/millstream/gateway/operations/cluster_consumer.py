"""One consumer of a group at one member of a cluster: calls in its name, whose state is all with the coordinator.

What becomes of iterators in the normal course of things is no failure here: the partition is another's by now, the time
was over, it was committed by another request, its topic is gone. Such a call gives None.
"""

import asyncio
from collections.abc import Awaitable, Collection, Iterable
from typing import TypeVar

from millstream.gateway.operations.clusters import ClusterMember
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.iterating.engine import GONE, OVER
from millstream.sdk.iterating.requests import GroupIterator, IteratorCommit, IteratorMembership, ListedIterator

T = TypeVar("T")

ITERATOR_MESSAGES = 100_000
"""What iterators are asked for stands for as many messages as there may be; what is handed out of them is less."""

_OVER = OVER | GONE


class ClusterConsumer:
    """For one request."""

    def __init__(self, member: ClusterMember, group: str, name: str) -> None:
        self.client = member.client
        self.group = group
        self.timeout_s = member.timeout_s
        self._calls = member.calls
        self._names = group, name

    async def join(self) -> IteratorMembership:
        return await self._calls.join(*self._names, timeout=self.timeout_s)

    async def heartbeat(self) -> IteratorMembership:
        return await self._calls.heartbeat(*self._names, timeout=self.timeout_s)

    async def in_flight(self) -> list[ListedIterator]:
        try:
            return await self._calls.list(*self._names, timeout=self.timeout_s)
        except MillstreamError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return []
            raise

    async def get(self, where: TopicPartition, start: str) -> GroupIterator | None:
        """None while it is not the consumer's; UNKNOWN_TOPIC_OR_PARTITION where there is none."""
        wanted = self._calls.get(
            *self._names, *where, max_messages=ITERATOR_MESSAGES, start=start, timeout=self.timeout_s
        )
        return await _unless(OVER, wanted)

    async def placed(self, iterator: GroupIterator, offset: int | None = None) -> GroupIterator | None:
        """The iterator with its offset in figures; None if that is over, or not the offset that is expected."""
        if iterator.offset < 0 or iterator.offset != offset:
            batch = await _unless(_OVER, self._calls.read(iterator, max_bytes=1, timeout=self.timeout_s))
            if batch is None or offset not in (None, batch.iterator.offset):
                return None
            return batch.iterator
        return iterator

    async def deliver(self, iterator: GroupIterator, count: int) -> bool:
        """False if it is over."""
        handed = self._calls.deliver(*self._names, iterator, count, timeout=self.timeout_s)
        return await _unless(_OVER, handed) is not None

    async def commit(self, iterator: GroupIterator, count: int | None = None) -> IteratorCommit | None:
        """So many places of it, or what was handed out; None if it is over."""
        return await _unless(_OVER, self._calls.commit(*self._names, iterator, count, timeout=self.timeout_s))

    async def commit_handed(self, listed: Iterable[ListedIterator]) -> dict[TopicPartition, IteratorCommit]:
        """Commit what was handed out, of all of them that are not over."""
        rows = [(each.where, each.iterator) for each in listed if each.iterator is not None]
        done = await asyncio.gather(*(self.commit(iterator) for _, iterator in rows))
        return {where: each for (where, _), each in zip(rows, done, strict=True) if each is not None}


async def _unless(codes: Collection[ErrorCode], work: Awaitable[T]) -> T | None:
    try:
        return await work
    except MillstreamError as error:
        if error.code not in codes:
            raise
        return None
