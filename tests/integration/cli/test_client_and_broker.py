"""Tests the client in this process against a real broker in another process."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from builders.sdk.writing_client import WritingClient
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.producing.row_partitioning import partition_for
from millstream.testing.real_broker import RealBroker

PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    with RealBroker(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


def test_librdkafka_with_murmur2_chooses_the_same_partitions(broker: RealBroker) -> None:
    keys = [b"key-%d" % number for number in range(200)]

    async def create() -> None:
        async with WritingClient(broker.bootstrap) as client:
            await client.create_topic("shared", partitions=7)

    async def read() -> dict[bytes | None, int]:
        async with WritingClient(broker.bootstrap) as client:
            found = {}
            for partition in range(7):
                for record in (await client.fetch("shared", partition, 0, max_wait_ms=100)).records:
                    found[record.key] = partition
            return found

    asyncio.run(create())
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce("shared", key=key, value=b"x")
    assert producer.flush(PATIENCE_S) == 0
    assert asyncio.run(read()) == {key: partition_for(key, 7) for key in keys}


def test_a_fetch_beyond_the_end_waits_at_the_broker(broker: RealBroker) -> None:
    async def body() -> None:
        async with WritingClient(broker.bootstrap) as client:
            await client.put("ahead", [b"0"])
            nothing = await client.fetch("ahead", 0, 2, max_wait_ms=10)
            assert (nothing.records, nothing.next_offset) == ([], 2)
            waiting = asyncio.ensure_future(client.fetch("ahead", 0, 2, max_wait_ms=int(PATIENCE_S * 1000)))
            await client.put("ahead", [b"1"])
            await client.put("ahead", [b"2"])
            fetched = await waiting
            assert [(record.offset, record.value) for record in fetched.records] == [(2, b"2")]

    asyncio.run(asyncio.wait_for(body(), PATIENCE_S / 2))


def test_a_refused_batch_raises_the_brokers_error(broker: RealBroker) -> None:
    async def body() -> None:
        async with WritingClient(broker.bootstrap) as client:
            await client.create_topic("small", settings={"max.message.bytes": "1000"})
            places = await client.put("small", [b"x" * 300] * 10)
            assert [place.offset for place in places] == list(range(10))
            with pytest.raises(MillstreamError) as caught:
                await client.put("small", [b"x" * 2000])
            assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
            with pytest.raises(MillstreamError) as caught:
                await client.put("small", [b"x"], timestamps_ms=2**61)
            assert caught.value.code is ErrorCode.INVALID_TIMESTAMP

    asyncio.run(body())


def test_puts_store_each_message_once_when_the_broker_is_killed(tmp_path: Path) -> None:
    async def write(bootstrap: str, writer: int, stop: asyncio.Event) -> list[bytes]:
        stored: list[bytes] = []
        async with WritingClient(bootstrap) as client:
            while not stop.is_set():
                value = b"%d-%d" % (writer, len(stored))
                await client.put("t", [value], timeout_s=PATIENCE_S)
                stored.append(value)
        return stored

    async def body(broker: RealBroker) -> None:
        stop = asyncio.Event()
        writers = [asyncio.ensure_future(write(broker.bootstrap, number, stop)) for number in range(3)]
        for _ in range(3):
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            async with WritingClient(broker.bootstrap) as client:
                await client.put("t", [b"mark"], timeout_s=PATIENCE_S)
        stop.set()
        stored = await asyncio.gather(*writers)
        async with WritingClient(broker.bootstrap) as client:
            found: list[bytes | None] = []
            offset = 0
            while fetched := await client.fetch("t", 0, offset, max_wait_ms=0):
                if not fetched.records:
                    break
                found += [record.value for record in fetched.records]
                offset = fetched.next_offset
        for number, values in enumerate(stored):
            assert [value for value in found if value and value.startswith(b"%d-" % number)] == values

    with RealBroker(tmp_path / "data") as broker:
        asyncio.run(body(broker))
