"""Single calls of clients of iterators, each with the names of whoever it is made for; nothing is kept between two.

All of them go over one connection to each broker, which none of them holds up: who waits has one of its own.
"""

from typing import NamedTuple, TypeVar

from millstream.model.names import TopicPartition
from millstream.sdk.admin.groups import Coordinators
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.batch_opening import opened
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
    """What an iterator is to be like that is asked for."""

    max_messages: int
    in_flight_ms: int
    start: int


class IteratorCallEngine:
    def __init__(self, asking: RetryingCaller) -> None:
        self._asking = asking
        self._coordinators = Coordinators(asking)

    async def close(self) -> None:
        """There is nothing to end but connections, which go with the client's."""

    async def join(self, group_id: str, client_id: str, timeout_s: float) -> IteratorMembership:
        return await self._ask(group_id, requests.join(group_id, client_id), timeout_s)

    async def heartbeat(self, group_id: str, client_id: str, timeout_s: float) -> IteratorMembership:
        return await self._ask(group_id, requests.heartbeat(group_id, client_id), timeout_s)

    async def leave(self, group_id: str, client_id: str, timeout_s: float) -> None:
        await self._ask(group_id, requests.leave(group_id, client_id), timeout_s)

    async def get(
        self, group_id: str, client_id: str, where: TopicPartition, wanted: IteratorRequest, timeout_s: float
    ) -> GroupIterator:
        return await self._ask(group_id, requests.get(group_id, client_id, where, *wanted), timeout_s)

    async def in_flight(self, group_id: str, client_id: str | None, timeout_s: float) -> list[ListedIterator]:
        return await self._ask(group_id, requests.in_flight(group_id, client_id), timeout_s)

    async def read(
        self, iterator: GroupIterator, max_bytes: int, timeout_s: float, wait_s: float = 0.0
    ) -> IteratorBatch:
        """From the server that the coordinator named; from the partition's leader, when that one is not, or where the
        iterator names none. With nothing there it is waited for the first message, on a connection of its own."""
        cluster, deadline = self._asking.cluster, Deadline(timeout_s + wait_s)
        request = requests.read(iterator, max_bytes, int(wait_s * 1000))
        servers = iter((iterator.server,) if iterator.server.port else ())

        async def ask() -> IteratorBatch:
            server = next(servers, None) or await cluster.leader(iterator.topic, iterator.partition, deadline)
            if not wait_s:
                connection = await cluster.to(server, deadline)
                closed = await connection.request(request, cluster.timeout_s(deadline))
            else:
                async with cluster.polling(server, deadline) as connection:
                    closed = await connection.request(request, cluster.timeout_s(deadline, wait_s))
            batch = await opened(self._asking.workers, closed.stored, closed.opened)
            if batch.messages:
                count_read(self._asking.metrics, iterator.topic, len(batch.messages), len(closed.stored))
            return batch

        return await self._asking.retrying(ask, deadline, iterator.topic)

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
