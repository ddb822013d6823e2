"""Makes single iterator calls for any group and client id, and keeps no state between two calls.

An iterator is a token that contains position and topic id. The broker compares the id with its topic, so an iterator of
a deleted topic reads nothing of a new topic with the same name, and the feeds of iterators need no topic id.

The caller may pass a feed that it keeps for the partition. Each read then goes to the leader that answered the last
one. Without a feed, the following iterator names the server that answered.

All calls to a broker share one connection. A read that waits for messages uses a connection of its own, so that it does
not delay the others.
"""

from typing import NamedTuple, TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.sdk.admin.groups import Coordinators
from millstream.sdk.arguments import INT32_MAX
from millstream.sdk.connection.address import Address, PartitionLeader
from millstream.sdk.connection.read_memory import held
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.chunk_opener import ChunkOpener
from millstream.sdk.feed.leader_call import ask_leader
from millstream.sdk.feed.partition_feed import NO_EPOCH, FetchAt, PartitionFeed
from millstream.sdk.iterating import requests
from millstream.sdk.iterating.requests import (
    ClosedBatch,
    GroupIterator,
    IteratorBatch,
    IteratorCommit,
    IteratorMembership,
    ListedIterator,
)
from millstream.sdk.metrics import count_read
from millstream.wire.client_connection import ApiRequest

T = TypeVar("T")

OVER = frozenset(
    {
        ErrorCode.NOT_OWNER,
        ErrorCode.ITERATOR_EXPIRED,
        ErrorCode.FENCED_ITERATOR,
        ErrorCode.ITERATOR_SETTLED,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)
"""Errors by which an iterator ends in normal operation; the client requests another one."""


class _Ended(NamedTuple):
    """The answer of a leader whose partition is readable, to an iterator that is over."""

    error: MillstreamError


class IteratorRequest(NamedTuple):
    """The parameters of a requested iterator."""

    max_messages: int
    in_flight_ms: int
    start: int


class IteratorCallEngine:
    def __init__(self, asking: RetryingCaller) -> None:
        self._asking = asking
        self._coordinators = Coordinators(asking)
        self._opener = ChunkOpener(asking)

    async def close(self) -> None:
        """Do nothing: the connections belong to the client, which closes them."""

    async def join(self, group_id: str, client_id: str, timeout_s: float) -> IteratorMembership:
        return await self._ask(group_id, requests.join(group_id, client_id), timeout_s)

    async def heartbeat(self, group_id: str, client_id: str, timeout_s: float) -> IteratorMembership:
        return await self._ask(group_id, requests.heartbeat(group_id, client_id), timeout_s)

    async def leave(self, group_id: str, client_id: str, timeout_s: float) -> None:
        await self._ask(group_id, requests.leave(group_id, client_id), timeout_s)

    async def get(
        self, group_id: str, client_id: str, where: TopicPartition, wanted: IteratorRequest, timeout_s: float
    ) -> GroupIterator:
        return await self._ask(group_id, requests.get(group_id, client_id, where, **wanted._asdict()), timeout_s)

    async def in_flight(self, group_id: str, client_id: str | None, timeout_s: float) -> list[ListedIterator]:
        return await self._ask(group_id, requests.in_flight(group_id, client_id), timeout_s)

    async def read(
        self,
        iterator: GroupIterator,
        max_bytes: int,
        timeout_s: float,
        wait_s: float = 0.0,
        *,
        skips_bad_batches: bool = False,
        feed: PartitionFeed | None = None,
    ) -> IteratorBatch:
        """Read an iterator's messages from the leader that `feed` knows, waiting up to `wait_s` for the first one.

        A new feed asks the server that the iterator names. If there is none, or it fails, the partition's leader is
        looked up. The result ends before a batch that cannot be decoded, and has no following iterator then. If the
        batch is the first, it raises UNDECODABLE_BATCH.
        """
        feed = feed or PartitionFeed(TopicPartition(iterator.topic, iterator.partition), iterator.offset)
        if feed.leader is None and feed.error is None and iterator.server.port:
            feed.led_by(PartitionLeader(iterator.server, NO_EPOCH), NO_TOPIC_ID)
        feed.seek(iterator.offset)
        deadline = Deadline(timeout_s + wait_s)

        async def ask(step: FetchAt) -> IteratorBatch | _Ended:
            request = requests.read(
                iterator._replace(server=step.leader), max_bytes=max_bytes, max_wait_ms=int(wait_s * 1000)
            )
            try:
                closed = await self._read_at(step.leader, request, wait_s, deadline)
            except MillstreamError as error:
                if error.code not in OVER:
                    raise
                return _Ended(error)
            return await self._opened(closed, feed, skips_bad_batches=skips_bad_batches)

        try:
            found = await ask_leader(self._asking, feed, ask, deadline)
        except MillstreamError:
            feed.retry()
            raise
        feed.answered()
        if isinstance(found, _Ended):
            raise found.error
        feed.decoded()
        return found

    async def _read_at(
        self, server: Address, request: ApiRequest[ClosedBatch], wait_s: float, deadline: Deadline
    ) -> ClosedBatch:
        cluster = self._asking.cluster
        if not wait_s:
            connection = await cluster.to(server, deadline)
            return await connection.request(request, cluster.timeout_s(deadline))
        async with cluster.polling(server, deadline) as connection:
            return await connection.request(request, cluster.timeout_s(deadline, wait_s))

    async def _opened(self, closed: ClosedBatch, feed: PartitionFeed, *, skips_bad_batches: bool) -> IteratorBatch:
        chunk = closed.chunk(feed)
        with held(self._asking.memory, chunk.size_bytes):
            messages, end = await self._opener.open(
                [chunk],
                messages_max=INT32_MAX,
                bytes_max=self._asking.memory.unpacked_bytes_max,
                skips_bad_batches=skips_bad_batches,
            )
        if messages:
            topic = feed.where.topic
            count_read(self._asking.metrics, topic, messages=len(messages), size_bytes=chunk.size_bytes)
        if end is None or end == closed.end_offset:
            return IteratorBatch(closed.iterator, messages, closed.end_offset, closed.following)
        return IteratorBatch(closed.iterator, messages, end, None)

    async def deliver(
        self, group_id: str, client_id: str, iterator: GroupIterator, count: int, timeout_s: float
    ) -> float:
        return await self._ask(group_id, requests.deliver(group_id, client_id, iterator, count), timeout_s)

    async def commit(
        self, group_id: str, client_id: str, iterator: GroupIterator, count: int, timeout_s: float
    ) -> IteratorCommit:
        return await self._ask(group_id, requests.commit(group_id, client_id, iterator, count), timeout_s)

    async def _ask(self, group_id: str, request: ApiRequest[T], timeout_s: float) -> T:
        return await self._coordinators.ask(group_id, request, Deadline(timeout_s))
