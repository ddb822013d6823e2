"""Makes the calls of one group consumer at one member of a cluster. The group coordinator keeps all of its state.

An iterator can end in normal operation: the partition moved to another consumer, the iterator expired, another request
committed it, or its topic was deleted. Such a call returns None instead of raising.
"""

import asyncio
from collections.abc import Awaitable, Collection, Iterable
from typing import TypeVar

from millstream.gateway.operations.clusters import ClusterMember
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.feed.partition_feed import MISSING
from millstream.sdk.feed.undecodable_batches import SKIP
from millstream.sdk.iterating.call_engine import OVER
from millstream.sdk.iterating.requests import GroupIterator, IteratorCommit, IteratorMembership, ListedIterator

T = TypeVar("T")

ITERATOR_MESSAGES = 100_000
"""Requested size of each iterator. It is an upper bound; a poll delivers far fewer messages of it."""

_OVER = OVER | MISSING


class ClusterConsumer:
    """Makes calls for one group and consumer name. It lives for one request."""

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
        """Get an iterator. Returns None while the consumer does not own the partition.

        Raises UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist.
        """
        wanted = self._calls.get(
            *self._names, *where, max_messages=ITERATOR_MESSAGES, start=start, timeout=self.timeout_s
        )
        return await _unless(OVER, wanted)

    async def placed(self, iterator: GroupIterator, offset: int | None = None) -> GroupIterator | None:
        """Resolve the iterator's start to an offset.

        Returns None if the iterator has ended, or if its offset differs from `offset`.
        """
        if iterator.offset < 0 or iterator.offset != offset:
            # The messages are not used, so it does not matter whether they can be decoded.
            read = self._calls.read(iterator, max_bytes=1, on_bad_batch=SKIP, timeout=self.timeout_s)
            batch = await _unless(_OVER, read)
            if batch is None or offset not in (None, batch.iterator.offset):
                return None
            return batch.iterator
        return iterator

    async def deliver(self, iterator: GroupIterator, count: int) -> bool:
        """Record that `count` offsets were delivered. Returns false if the iterator has ended."""
        delivered = self._calls.deliver(*self._names, iterator, count, timeout=self.timeout_s)
        return await _unless(_OVER, delivered) is not None

    async def commit(self, iterator: GroupIterator, count: int | None = None) -> IteratorCommit | None:
        """Commit the first `count` offsets of the iterator; by default, all delivered ones.

        Returns None if the iterator has ended.
        """
        return await _unless(_OVER, self._calls.commit(*self._names, iterator, count, timeout=self.timeout_s))

    async def commit_delivered(self, listed: Iterable[ListedIterator]) -> dict[TopicPartition, IteratorCommit]:
        """Commit the delivered offsets of each iterator. The result leaves out ended iterators."""
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
