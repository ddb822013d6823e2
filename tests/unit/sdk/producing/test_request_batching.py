"""Tests that batches for one broker share a request, and that each has its own outcome."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import pytest

from builders.sdk.simulated_consumers import TOPIC, Ground, every, play
from millstream.model.errors import MillstreamError
from millstream.sdk.aio.client import AsyncClient
from millstream.sdk.aio.producer import AsyncProducer
from millstream.sdk.producing.request_batching import REQUEST_BYTES_MAX

PARTITIONS = 16


class Requests:
    """Counts the answered requests by API."""

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()

    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        pass

    def observe(self, name: str, seconds: float, labels: Mapping[str, str]) -> None:
        self.answered[labels["api"]] += 1


async def begun(client: AsyncClient, topic: str = TOPIC, partitions: int = PARTITIONS) -> AsyncProducer:
    """Create a producer that all partitions know, so that no first batch is sent alone."""
    producer = client.producer()
    for number in range(partitions):
        await producer.put(topic, b"", partition=number)
    return producer


def test_concurrent_batches_for_one_broker_share_one_request() -> None:
    async def story(ground: Ground) -> None:
        requests = Requests()
        async with await ground.machine.connect("writer2", metrics=requests) as client:
            producer = await begun(client)
            requests.answered.clear()
            for round_ in range(3):
                receipts = [
                    producer.put(TOPIC, b"%d" % round_, partition=number % PARTITIONS)
                    for number in range(4 * PARTITIONS)
                ]
                assert [(await receipt).offset for receipt in receipts] == [
                    1 + 4 * round_ + number // PARTITIONS for number in range(4 * PARTITIONS)
                ]
            assert requests.answered["Puts"] == 3

    play(story, partitions=PARTITIONS)


def test_a_shared_request_stays_within_its_size_limit() -> None:
    async def story(ground: Ground) -> None:
        requests = Requests()
        value = bytes(REQUEST_BYTES_MAX // 4)
        async with await ground.machine.connect("writer2", metrics=requests) as client:
            producer = await begun(client, partitions=8)
            requests.answered.clear()
            places = await producer.put_many(TOPIC, [value] * 8, partition=list(range(8)))
            assert list(places.offsets) == [1] * 8
            assert 3 <= requests.answered["Puts"] <= 8

    play(story, partitions=8)


def test_an_error_of_one_partition_does_not_affect_the_others() -> None:
    async def story(ground: Ground) -> None:
        await ground.client.create_topic("small", settings={"max.message.bytes": "1000"})
        async with await ground.machine.connect("writer2") as client:
            producer = await begun(client, partitions=2)
            await producer.put("small", b"")
            stored = [producer.put(TOPIC, b"a", partition=number) for number in range(2)]
            refused = producer.put("small", bytes(5_000))
            assert [(await receipt).offset for receipt in stored] == [1, 1]
            with pytest.raises(MillstreamError, match="MESSAGE_TOO_LARGE"):
                await refused
            assert (await producer.put("small", b"after")).offset == 1

    play(story, partitions=2)


def test_batches_of_an_unanswered_shared_request_are_stored_once() -> None:
    async def story(ground: Ground) -> None:
        async with await ground.machine.connect("writer2") as client:
            producer = await begun(client)
            receipts = []
            for round_ in range(20):
                receipts += [producer.put(TOPIC, b"%d" % round_, partition=number) for number in range(PARTITIONS)]
                await asyncio.sleep(0.01)
                if round_ % 5 == 4:
                    ground.network.cut("writer2")
            for receipt in receipts:
                await receipt
        found = await every(ground.client.consumer(TOPIC, start="beginning", stop="latest"))
        for number in range(PARTITIONS):
            values = [message.value for message in found if message.partition == number]
            assert values == [b"", *(b"%d" % round_ for round_ in range(20))]

    play(story, partitions=PARTITIONS)
