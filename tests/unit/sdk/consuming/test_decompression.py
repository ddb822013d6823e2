"""Tests that compressed batches are decompressed in workers, without blocking the event loop."""

import asyncio
from random import Random

import pytest

from builders.held_workers import HeldWorkers
from builders.sdk.simulated_consumers import TOPIC, Ground, every, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import encode_batch
from millstream.sdk.feed.batch_opening import HEAVY_BYTES
from millstream.sdk.feed.fetched_chunk import PIECE_BYTES, FetchedChunk
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.responses import FetchedBatches

COMPRESSIONS = ["gzip", "snappy", "lz4", "zstd"]
VALUES = [Random(number).randbytes(100) for number in range(200)]
LONG_S = 5.0
"""Seconds of simulated time."""


async def written(ground: Ground, compression: str, repeats: int = 1) -> list[bytes]:
    async with ground.client.producer(compression=compression) as producer:
        for _ in range(repeats):
            await producer.put_many(TOPIC, VALUES, partition=0)
    return VALUES * repeats


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_consumer_decompresses_in_a_worker_without_blocking_the_loop(compression: str) -> None:
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
def test_subscription_poll_times_out_during_decompression_and_continues_later(compression: str) -> None:
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


def test_a_chunk_redelivered_during_decompression_is_delivered_once() -> None:
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
def test_get_and_iterators_decompress_in_a_worker(compression: str) -> None:
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


def test_uncompressed_batches_use_no_worker() -> None:
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
def test_a_range_of_compressed_batches_is_read_exactly(compression: str, start: int, stop: int) -> None:
    async def story(ground: Ground) -> None:
        values = await written(ground, compression, repeats=5)
        consumer = ground.client.consumer(TOPIC, start=start, stop=stop)
        assert [message.value for message in await every(consumer)] == values[start:stop]
        assert consumer.position(TOPIC, 0) == stop
        table = await ground.client.consumer(TOPIC, start=start, stop=stop).arrow_table()
        assert table.column("value").to_pylist() == values[start:stop]

    play(story)


def test_a_chunk_is_discarded_when_a_seek_leaves_it_during_decompression() -> None:
    async def story(ground: Ground) -> None:
        values = await written(ground, "zstd", repeats=2)
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


def chunks(batches: bytes | bytearray) -> list[FetchedChunk]:
    feed = PartitionFeed(TopicPartition("t", 0), 0)
    return list(FetchedChunk.each(feed, FetchedBatches(0, 0, memoryview(batches)), PIECE_BYTES))


def test_a_large_chunk_is_decompressed_into_several_chunks() -> None:
    batches = bytearray()
    for number in range(4):
        batches += encode_batch([b"x" * 1000] * 700, timestamps=1, compression="gzip", base_offset=700 * number)
    (chunk,) = chunks(batches)
    assert chunk.is_packed == (len(batches) >= HEAVY_BYTES) is True
    pieces = chunk.unpacked(piece_bytes=PIECE_BYTES, read_bytes=PIECE_BYTES)
    assert all(piece.size_bytes <= PIECE_BYTES and not piece.is_packed for piece in pieces)
    assert [piece.offset for piece in pieces] == [0, 700, 1400, 2100]
    assert [message.offset for piece in pieces for message in piece.open()] == list(range(2800))
    assert pieces[-1].next_offset == chunk.next_offset == 2800


def test_a_damaged_compressed_chunk_raises_corrupt_message() -> None:
    batch = encode_batch(VALUES, timestamps=1, compression="zstd")
    batch[-1] ^= 1
    (chunk,) = chunks(batch)
    for attempt in (lambda: chunk.unpacked(piece_bytes=PIECE_BYTES, read_bytes=PIECE_BYTES), chunk.open):
        with pytest.raises(MillstreamError) as raised:
            attempt()
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_decompression_bomb_is_refused() -> None:
    batch = encode_batch([None] * 1_000_000, timestamps=1, compression="zstd")
    (chunk,) = chunks(batch)
    chunk.is_packed = True
    with pytest.raises(MillstreamError, match="more memory as objects"):
        chunk.open()
    (piece,) = chunk.unpacked(piece_bytes=PIECE_BYTES, read_bytes=PIECE_BYTES)
    with pytest.raises(MillstreamError, match="more memory as objects"):
        piece.open()
