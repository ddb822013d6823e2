"""Tests that a fetch session names all partitions once and then only changes, also after the session is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

import pytest

from builders.sdk.simulated_consumers import TOPIC, Ground, every, place, play, read, values
from builders.simulated_node import HOST
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.address import parse_bootstrap
from millstream.sdk.connection.cluster import Cluster, ConnectionSettings
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.consuming.fetch_session import SESSION_PARTITIONS_MIN, FetchSession, Found, Poll, _request, _Step
from millstream.sdk.feed.partition_feed import NO_EPOCH, FeedPosition
from millstream.wire.client_connection import ApiRequest
from millstream.wire.fetch import (
    TOPIC_IDS_FROM,
    FetchedPartition,
    FetchRequest,
    parse_fetch_request,
    write_fetch_response,
)

T = TypeVar("T")
MANY = 40
TIMEOUT_S = 30.0


class NotedConnection:
    """A connection that records its fetch requests."""

    def __init__(self, connection: BrokerConnection, fetches: list[FetchRequest]) -> None:
        self._connection = connection
        self._fetches = fetches

    async def request(self, request: ApiRequest[T], timeout_s: float) -> T:
        body = b"".join(request.encode(TOPIC_IDS_FROM))
        self._fetches.append(parse_fetch_request(TOPIC_IDS_FROM, memoryview(body), 0))
        return await self._connection.request(request, timeout_s)


class Poller:
    """Polls a broker step by step; `named` and `forgotten` describe the last request."""

    def __init__(self, ground: Ground) -> None:
        self.session = FetchSession()
        self.epoch = NO_EPOCH
        self.fetches: list[FetchRequest] = []
        network = ground.machine.network.host("poller")
        self._cluster = Cluster(parse_bootstrap(f"{HOST}:9092"), network, ConnectionSettings())
        self._ids: dict[str, Any] = {}

    async def poll(self, offsets: Mapping[int, int], wait_ms: int = 0) -> Found:
        deadline = Deadline(TIMEOUT_S)
        address = await self._cluster.leader(TOPIC, 0, deadline)
        if not self._ids:
            self._ids = {TOPIC: (await self._cluster.topic(TOPIC, deadline)).topic_id}
        positions = {place(number): FeedPosition(offset, self.epoch) for number, offset in offsets.items()}
        poll = Poll(positions, self._ids, 2**20, 2**16, wait_ms)
        async with self._cluster.polling(address, deadline) as connection:
            noted = cast(BrokerConnection, NotedConnection(connection, self.fetches))
            return await self.session.poll(poll, noted, TIMEOUT_S)

    async def connection(self) -> BrokerConnection:
        return await self._cluster.anyone(Deadline(TIMEOUT_S))

    @property
    def named(self) -> dict[int, int]:
        return {want.partition: want.offset for _, wants in self.fetches[-1].topics for want in wants}

    @property
    def forgotten(self) -> list[int]:
        return [number for _, numbers in self.fetches[-1].forgotten for number in numbers]

    def close(self) -> None:
        self._cluster.close()


def play_polls(story: Callable[[Ground, Poller], Awaitable[None]]) -> None:
    async def whole(ground: Ground) -> None:
        poller = Poller(ground)
        try:
            await story(ground, poller)
        finally:
            poller.close()

    play(whole, partitions=MANY)


def at(offset: int, count: int = MANY) -> dict[int, int]:
    return dict.fromkeys(range(count), offset)


def found_values(found: Found) -> list[TopicPartition]:
    """Return the partitions with new batches."""
    return [where for where, each in found.items() if not isinstance(each, MillstreamError) and len(each.batches)]


def test_a_new_session_starts_after_the_old_one_was_closed() -> None:
    async def story(ground: Ground, poller: Poller) -> None:
        await poller.poll(at(0))
        poller.session.end(await poller.connection())
        assert len(await poller.poll(at(0))) == MANY
        assert poller.named == at(0)
        assert len(poller.fetches) == 2

    play_polls(story)


def test_a_request_names_only_moved_partitions() -> None:
    async def story(ground: Ground, poller: Poller) -> None:
        assert len(await poller.poll(at(0))) == MANY
        assert poller.named == at(0)
        assert await poller.poll(at(0)) == {}
        assert (poller.named, poller.forgotten) == ({}, [])
        await ground.write(3, [5, 17])
        assert found_values(await poller.poll(at(0))) == [place(5), place(17)]
        assert poller.named == {}
        assert found_values(await poller.poll(at(0) | {5: 3})) == [place(17)]
        assert poller.named == {5: 3}

    play_polls(story)


def test_removed_partitions_are_forgotten_and_can_be_added_again() -> None:
    async def story(ground: Ground, poller: Poller) -> None:
        await poller.poll(at(0))
        without = at(0)
        del without[3], without[9]
        await ground.write(1, [3])
        assert await poller.poll(without) == {}
        assert (poller.named, poller.forgotten) == ({}, [3, 9])
        assert found_values(await poller.poll(at(0))) == [place(3)]
        assert (poller.named, poller.forgotten) == ({3: 0, 9: 0}, [])

    play_polls(story)


def test_few_partitions_are_fetched_without_a_session() -> None:
    async def story(ground: Ground, poller: Poller) -> None:
        few = at(0, SESSION_PARTITIONS_MIN - 1)
        for _ in range(2):
            assert len(await poller.poll(few)) == len(few)
            assert (poller.named, poller.fetches[-1].session_epoch) == (few, -1)

    play_polls(story)


def test_a_session_lost_by_the_broker_is_recreated_in_the_same_poll() -> None:
    async def story(ground: Ground, poller: Poller) -> None:
        await poller.poll(at(0))
        await ground.restart()
        await ground.write(1, [7])
        assert found_values(await poller.poll(at(0))) == [place(7)]
        lost, anew = poller.fetches[-2:]
        assert (lost.session_epoch, anew.session_epoch) == (1, 0)
        assert poller.named == at(0)
        assert await poller.poll(at(0) | {7: 1}) == {}
        assert poller.named == {7: 1}

    play_polls(story)


def test_all_partitions_are_named_again_after_a_cancelled_poll() -> None:
    async def story(ground: Ground, poller: Poller) -> None:
        await poller.poll(at(0))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await poller.poll(at(0), wait_ms=20_000)
        await ground.write(1, [7])
        assert found_values(await poller.poll(at(0))) == [place(7)]
        assert (poller.named, poller.fetches[-1].session_epoch) == (at(0), 0)

    play_polls(story)


def test_a_concurrent_poll_does_not_use_the_session() -> None:
    async def story(ground: Ground, poller: Poller) -> None:
        await poller.poll(at(0))
        waiting = asyncio.create_task(poller.poll(at(0), wait_ms=20_000))
        await asyncio.sleep(1)
        assert len(await poller.poll(at(0))) == MANY
        assert poller.fetches[-1].session_epoch == -1
        await ground.write(1, [7])
        assert found_values(await waiting) == [place(7)]
        assert await poller.poll(at(0) | {7: 1}) == {}
        assert poller.named == {7: 1}

    play_polls(story)


class OldConnection:
    """A connection with a protocol version without sessions; its answers contain no partitions."""

    def __init__(self) -> None:
        self.named: list[int] = []

    async def request(self, request: ApiRequest[T], timeout_s: float) -> T:
        version = 6
        body = b"".join(request.encode(version))
        parsed = parse_fetch_request(version, memoryview(body), 0)
        self.named.append(sum(len(wants) for _, wants in parsed.topics))
        answer = request.decode(version, memoryview(bytes(8)), 0)
        assert not isinstance(answer, MillstreamError)
        return answer


def test_all_partitions_are_named_when_the_broker_has_no_sessions() -> None:
    async def story() -> None:
        connection, session = OldConnection(), FetchSession()
        for offset in (0, 0, 1):
            positions = {place(number): FeedPosition(offset, NO_EPOCH) for number in range(MANY)}
            assert (
                await session.poll(Poll(positions, {}, 2**20, 2**16, 0), cast(BrokerConnection, connection), 1.0) == {}
            )
        assert connection.named == [MANY] * 3

    asyncio.run(story())


class OtherConnection:
    """A connection whose answers contain a partition that was not requested."""

    async def request(self, request: ApiRequest[T], timeout_s: float) -> T:
        pieces = write_fetch_response(12, [(TOPIC, [FetchedPartition(MANY + 1)])], session_id=9)
        request.decode(12, memoryview(b"".join(cast(list[bytes], pieces))), 0)
        raise AssertionError("the answer was accepted")


def test_an_answer_with_an_unrequested_partition_is_refused() -> None:
    async def story() -> None:
        positions = {place(number): FeedPosition(0, NO_EPOCH) for number in range(MANY)}
        with pytest.raises(ValueError, match="which was not requested"):
            await FetchSession().poll(
                Poll(positions, {}, 2**20, 2**16, 0), cast(BrokerConnection, OtherConnection()), 1.0
            )

    asyncio.run(story())


async def session_error(ground: Ground, session_id: int) -> ErrorCode:
    """Return the broker's error for a request in this session with an invalid epoch."""
    poller = Poller(ground)
    try:
        request = _request(Poll({place(): FeedPosition(0, NO_EPOCH)}, {}, 1, 1, 0), _Step(session_id, 1_000, {}))
        with pytest.raises(MillstreamError) as caught:
            await (await poller.connection()).request(request, TIMEOUT_S)
        return caught.value.code
    finally:
        poller.close()


def test_closing_a_consumer_closes_its_session_at_the_broker() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(2, range(MANY))
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            await read(consumer, 2 * MANY)
            (session,) = consumer._engine._reading._sessions.values()
            session_id = session._id
            assert await session_error(ground, session_id) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert await session_error(ground, session_id) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    play(story, partitions=MANY)


def test_consumer_reads_each_message_once_when_sessions_are_lost() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            for round_ in range(6):
                await ground.write(2, range(round_, MANY, 3))
                if round_ == 2:
                    await ground.restart()
                if round_ == 3:
                    ground.network.cut("reader")
                if round_ == 4:
                    await consumer.pause(place(1), place(2))
                    await consumer.resume(place(1), place(2))
                found = await read(consumer, 2 * len(range(round_, MANY, 3)))
                assert len(set(values(found))) == len(found)
        again = await every(ground.client.consumer(TOPIC, start="beginning", stop="latest"))
        assert sorted(values(again)) == sorted(each for written in ground.written.values() for each in written)

    play(story, partitions=MANY)
