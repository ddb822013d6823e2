"""Makes single iterator calls for any group and client id, and keeps no state between two calls.

An iterator is a token that contains position and topic id. The broker compares the id with its topic, so an iterator of
a deleted topic reads nothing of a new topic with the same name, and the feeds here need no topic id.

All calls to a broker share one connection. A read that waits for messages uses a connection of its own, so that it does
not delay the others.
"""

from typing import NamedTuple, TypeVar

from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.sdk.admin.groups import Coordinators
from millstream.sdk.arguments import INT32_MAX
from millstream.sdk.connection.address import PartitionLeader
from millstream.sdk.connection.read_memory import held
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.chunk_opener import ChunkOpener
from millstream.sdk.feed.leader_call import ask_leader
from millstream.sdk.feed.partition_feed import NO_EPOCH, FetchAt, PartitionFeed
from millstream.sdk.iterating import requests
from millstream.sdk.iterating.requests import (
    GroupIterator,
    IteratorBatch,
    IteratorCommit,
    IteratorMembership,
    ListedIterator,
)
from millstream.sdk.metrics import count_read
from millstream.wire.client_connection import ApiRequest

T = TypeVar("T")


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
    ) -> IteratorBatch:
        """Read an iterator's messages from the server that it names, waiting up to `wait_s` for the first one.

        If the iterator names no server, or that server fails, the partition's leader is used. The result ends before a
        batch that cannot be decoded, and has no following iterator then. If the batch is the first, it raises
        UNDECODABLE_BATCH.
        """
        cluster, deadline = self._asking.cluster, Deadline(timeout_s + wait_s)
        request = requests.read(iterator, max_bytes=max_bytes, max_wait_ms=int(wait_s * 1000))
        feed = PartitionFeed(TopicPartition(iterator.topic, iterator.partition), iterator.offset)
        if iterator.server.port:
            feed.led_by(PartitionLeader(iterator.server, NO_EPOCH), NO_TOPIC_ID)

        async def ask(step: FetchAt) -> IteratorBatch:
            if not wait_s:
                connection = await cluster.to(step.leader, deadline)
                closed = await connection.request(request, cluster.timeout_s(deadline))
            else:
                async with cluster.polling(step.leader, deadline) as connection:
                    closed = await connection.request(request, cluster.timeout_s(deadline, wait_s))
            chunk = closed.chunk(feed)
            with held(self._asking.memory, chunk.size_bytes):
                messages, end = await self._opener.open(
                    [chunk],
                    messages_max=INT32_MAX,
                    bytes_max=self._asking.memory.unpacked_bytes_max,
                    skips_bad_batches=skips_bad_batches,
                )
            if messages:
                count_read(self._asking.metrics, iterator.topic, messages=len(messages), size_bytes=chunk.size_bytes)
            if end is None or end == closed.end_offset:
                return IteratorBatch(closed.iterator, messages, closed.end_offset, closed.following)
            return IteratorBatch(closed.iterator, messages, end, None)

        return await ask_leader(self._asking, feed, ask, deadline)

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
