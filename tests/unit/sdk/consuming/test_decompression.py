"""What is compressed is unpacked in workers before a consumer opens it, and the event loop goes on meanwhile."""

import asyncio
from random import Random
from uuid import UUID

import pytest

from builders.held_workers import HeldWorkers
from builders.sdk.simulated_consumers import TOPIC, Ground, every, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import encode_batch
from millstream.sdk.consuming.batch_opening import HEAVY_BYTES
from millstream.sdk.consuming.partition_reader import PIECE_BYTES, FetchedChunk, PartitionReader
from millstream.sdk.responses import FetchedBatches

COMPRESSIONS = ["gzip", "snappy", "lz4", "zstd"]
VALUES = [Random(number).randbytes(100) for number in range(200)]
LONG_S = 5.0
"""Of simulated time."""


async def written(ground: Ground, compression: str, lots: int = 1) -> list[bytes]:
    async with ground.client.producer(compression=compression) as producer:
        for _ in range(lots):
            await producer.put_many(TOPIC, VALUES, partition=0)
    return VALUES * lots


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_consumer_waits_for_a_worker_while_its_event_loop_goes_on(compression: str) -> None:
    async def story(ground: Ground) -> None:
        values = await written(ground, compression)
        workers = HeldWorkers()
        async with await ground.machine.connect("held", workers=workers) as client:
            consumer = client.consumer(TOPIC, start="beginning")
            assert await consumer.poll(LONG_S) == []
            assert workers.held == workers.begun == 1
            polling = asyncio.create_task(consumer.poll(LONG_S))
            await asyncio.sleep(1)
            assert not polling.done()
            await workers.release()
            assert [message.value for message in await polling] == values
            assert workers.begun == 1

    play(story)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_subscription_waits_for_a_worker_no_longer_than_it_may_and_takes_up_what_it_made(compression: str) -> None:
    async def story(ground: Ground) -> None:
        values = await written(ground, compression)
        workers = HeldWorkers()
        async with await ground.machine.connect("held", workers=workers) as client:
            subscription = client.subscription(TOPIC, start="beginning")
            assert await subscription.poll(LONG_S) == []
            assert await subscription.poll(0) == []
            assert workers.held == workers.begun == 1
            await workers.release()
            assert [message.value for message in await subscription.poll(LONG_S)] == values
            assert workers.begun == 1

    play(story)


def test_what_comes_again_while_it_is_opened_is_handed_out_once() -> None:
    async def story(ground: Ground) -> None:
        values = await written(ground, "zstd")
        workers = HeldWorkers()
        async with await ground.machine.connect("held", workers=workers) as client:
            subscription = client.subscription(TOPIC, start="beginning")
            assert await subscription.poll(LONG_S) == []
            ground.network.cut("held")
            await asyncio.sleep(1)
            polling = asyncio.create_task(subscription.poll(LONG_S))
            await workers.release()
            assert (workers.held, workers.begun) == (1, 2)
            await workers.release()
            assert [message.value for message in await polling] == values
            assert await subscription.poll(LONG_S) == []

    play(story)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_single_reads_and_iterators_have_it_unpacked_by_a_worker(compression: str) -> None:
    async def story(ground: Ground) -> None:
        values = await written(ground, compression)
        workers = HeldWorkers()
        async with await ground.machine.connect("held", workers=workers) as client:
            reading = asyncio.create_task(client.consumer(TOPIC).get(TOPIC, 0, 0))
            await asyncio.sleep(1)
            assert (workers.held, reading.done()) == (1, False)
            await workers.release()
            assert [message.value for message in await reading] == values
            iterators = client.iterators(TOPIC, group="g")
            polling = asyncio.create_task(iterators.poll(LONG_S))
            await asyncio.sleep(1)
            assert (workers.held, polling.done()) == (1, False)
            await workers.release()
            batch = await polling
            assert batch is not None
            assert [message.value for message in batch.messages] == values

    play(story)


def test_no_worker_is_asked_for_what_is_not_compressed() -> None:
    async def story(ground: Ground) -> None:
        values = await written(ground, "none")
        workers = HeldWorkers()
        async with await ground.machine.connect("held", workers=workers) as client:
            found = await every(client.consumer(TOPIC, start="beginning", stop="latest"))
            assert [message.value for message in found] == values
            assert workers.begun == 0

    play(story)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(("start", "stop"), [(0, 1000), (150, 850), (199, 201), (0, 1)])
def test_a_range_of_what_is_compressed_is_read_in_order_and_no_further(compression: str, start: int, stop: int) -> None:
    async def story(ground: Ground) -> None:
        values = await written(ground, compression, lots=5)
        consumer = ground.client.consumer(TOPIC, start=start, stop=stop)
        assert [message.value for message in await every(consumer)] == values[start:stop]
        assert consumer.position(TOPIC, 0) == stop
        table = await ground.client.consumer(TOPIC, start=start, stop=stop).arrow_table()
        assert table.column("value").to_pylist() == values[start:stop]

    play(story)


def test_what_is_sought_away_from_while_it_is_unpacked_is_not_handed_out() -> None:
    async def story(ground: Ground) -> None:
        values = await written(ground, "zstd", lots=2)
        workers = HeldWorkers()
        async with await ground.machine.connect("held", workers=workers) as client:
            consumer = client.consumer(TOPIC, start="beginning")
            assert await consumer.poll(LONG_S) == []
            await consumer.seek(300)
            await workers.release()
            assert await consumer.poll(LONG_S) == []
            await workers.release()
            assert [message.value for message in await consumer.poll(LONG_S)] == values[300:]

    play(story)


def portions(batches: bytes | bytearray) -> list[FetchedChunk]:
    reader = PartitionReader(TopicPartition("t", 0), 0, 0, UUID(int=1))
    return list(FetchedChunk.each(reader, FetchedBatches(0, 0, memoryview(batches)), PIECE_BYTES))


def test_a_large_portion_is_unpacked_into_several_that_are_opened_one_by_one() -> None:
    batches = bytearray()
    for number in range(4):
        batches += encode_batch([b"x" * 1000] * 700, timestamps=1, compression="gzip", base_offset=700 * number)
    (portion,) = portions(batches)
    assert portion.is_packed == (len(batches) >= HEAVY_BYTES) is True
    pieces = portion.unpacked(PIECE_BYTES, PIECE_BYTES)
    assert all(piece.size_bytes <= PIECE_BYTES and not piece.is_packed for piece in pieces)
    assert [piece.offset for piece in pieces] == [0, 700, 1400, 2100]
    assert [message.offset for piece in pieces for message in piece.open()] == list(range(2800))
    assert pieces[-1].next_offset == portion.next_offset == 2800


def test_what_is_damaged_is_told_by_who_opens_it() -> None:
    batch = encode_batch(VALUES, timestamps=1, compression="zstd")
    batch[-1] ^= 1
    (portion,) = portions(batch)
    for attempt in (lambda: portion.unpacked(PIECE_BYTES, PIECE_BYTES), portion.open):
        with pytest.raises(MillstreamError) as raised:
            attempt()
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_what_grows_out_of_all_proportion_is_refused_unpacked_or_not() -> None:
    batch = encode_batch([None] * 1_000_000, timestamps=1, compression="zstd")
    (portion,) = portions(batch)
    portion.is_packed = True
    with pytest.raises(MillstreamError, match="more memory as objects"):
        portion.open()
    (piece,) = portion.unpacked(PIECE_BYTES, PIECE_BYTES)
    with pytest.raises(MillstreamError, match="more memory as objects"):
        piece.open()
