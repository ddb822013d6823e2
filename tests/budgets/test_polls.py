"""Tests the cost of a consumer's poll of many partitions of which few have new messages."""

import asyncio
from itertools import count
from typing import TypeVar, cast
from uuid import UUID

from budgets import table
from budgets.counting import count_calls
from millstream.model.errors import MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import TopicPartition
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.consuming.fetch_session import FetchSession, Poll
from millstream.sdk.feed.partition_feed import NO_EPOCH, FeedPosition
from millstream.wire.client_connection import ApiRequest
from millstream.wire.fetch import TOPIC_IDS_FROM, FetchedPartition, write_fetch_response

T = TypeVar("T")

TOPIC, TOPIC_ID = "orders", TopicId(UUID(int=7))
MANY = 1_000
_NEWS = write_fetch_response(TOPIC_IDS_FROM, [(TOPIC_ID, [FetchedPartition(5, 0, 1, 1, 0)])], session_id=9)


class HandConnection:
    """A connection whose answers always have news of one partition; `asked_bytes` is the size of the last request."""

    def __init__(self) -> None:
        self.asked_bytes = 0
        self._answer = memoryview(b"".join(cast(list[bytes], _NEWS)))

    async def request(self, request: ApiRequest[T], timeout_s: float) -> T:
        self.asked_bytes = sum(map(len, request.encode(TOPIC_IDS_FROM)))
        answer = request.decode(TOPIC_IDS_FROM, self._answer, 0)
        assert not isinstance(answer, MillstreamError)
        return answer


def test_the_cost_of_a_poll_depends_on_changed_partitions_only() -> None:
    async def story() -> None:
        connection, session = HandConnection(), FetchSession()
        positions = {TopicPartition(TOPIC, number): FeedPosition(0, NO_EPOCH) for number in range(MANY)}
        numbers = count(1)

        async def step() -> int:
            nonlocal positions
            positions = positions | {TopicPartition(TOPIC, 5): FeedPosition(next(numbers), NO_EPOCH)}
            poll = Poll(positions, {TOPIC: TOPIC_ID}, 2**20, 2**16, 5_000)
            return len(await session.poll(poll, cast(BrokerConnection, connection), 1.0))

        await step()
        calls = await count_calls(step)
        table.check(table.POLL_MANY, {table.REQUEST_BYTES: connection.asked_bytes, table.CALLS: calls})

    asyncio.run(story())
