"""Tests that readers get the messages before and after batches that cannot be decoded, and report or skip these."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from builders.sdk.bad_batches import COUNT, KINDS, bad_batch
from builders.sdk.simulated_consumers import GROUP, TOPIC, Ground, every, place, play, read, values
from millstream.model.errors import ErrorCode, InvalidArgumentError, MillstreamError, UnreadableError
from millstream.sdk.feed.batch_opening import HEAVY_BYTES

BEFORE = [b"0", b"1"]
AFTER = [b"2", b"3"]
BAD = len(BEFORE)
"""The offset of the bad batch."""

FOLLOWING = BAD + COUNT
SIZES = (200, 4 * HEAVY_BYTES)
"""Sizes of bad batches: opened by the caller, and unpacked by a worker."""


async def write(ground: Ground, kind: str = "inner", size_bytes: int = 200) -> None:
    """Write messages, a bad batch, and more messages."""
    await ground.write(2)
    await ground.writer.produce(TOPIC, 0, bad_batch(kind, size_bytes))
    await ground.write(2)


def check(error: MillstreamError, *, offset: int = BAD, next_offset: int = FOLLOWING) -> None:
    assert isinstance(error, UnreadableError)
    assert error.code is ErrorCode.UNDECODABLE_BATCH
    assert not error.retriable
    assert (error.topic, error.partition, error.offset, error.next_offset) == (TOPIC, 0, offset, next_offset)
    assert f"offset {offset} cannot be decoded" in str(error)
    assert f"continue at offset {next_offset}" in str(error)


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_consumer_raises_a_bad_batch_after_the_messages_before_it_until_a_seek(kind: str, size_bytes: int) -> None:
    async def story(ground: Ground) -> None:
        await write(ground, kind, size_bytes)
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            assert values(await consumer.poll()) == BEFORE
            for _ in range(3):
                with pytest.raises(UnreadableError) as raised:
                    await consumer.poll()
                check(raised.value)
                assert consumer.position(TOPIC, 0) == BAD
            await consumer.seek({place(): raised.value.next_offset})
            assert values(await consumer.poll()) == AFTER

    play(story)


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_consumer_skips_a_bad_batch_and_logs_it(kind: str, size_bytes: int, caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        await write(ground, kind, size_bytes)
        options: Any = {"start": "beginning", "stop": "latest", "on_bad_batch": "skip"}
        async with ground.client.consumer(TOPIC, **options) as consumer:
            assert values(await every(consumer)) == BEFORE + AFTER
            assert consumer.position(TOPIC, 0) == FOLLOWING + len(AFTER)

    with caplog.at_level(logging.WARNING, "millstream.sdk.reader"):
        play(story)
    found = [record.getMessage() for record in caplog.records if "undecodable batch skipped" in record.getMessage()]
    assert len(found) == 1
    assert f"topic={TOPIC} partition=0 offset={BAD} next_offset={FOLLOWING}" in found[0]


async def _iterated(consumer: Any) -> list[bytes]:
    found: list[bytes] = []
    try:
        async for message in consumer:
            found.append(message.value)
    except UnreadableError as error:
        check(error)
    return found


async def _batches(consumer: Any) -> list[bytes]:
    found: list[bytes] = []
    try:
        async for batch in consumer.batches():
            found += values(batch.messages)
    except UnreadableError as error:
        check(error)
    return found


async def _arrow(consumer: Any) -> list[bytes]:
    found: list[bytes] = []
    try:
        async for batch in consumer.arrow():
            found += batch.column("value").to_pylist()
    except UnreadableError as error:
        check(error)
    return found


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("ways", [_iterated, _batches, _arrow])
def test_each_way_to_consume_passes_a_bad_batch_after_a_seek(
    ways: Callable[[Any], Awaitable[list[bytes]]], size_bytes: int
) -> None:
    async def story(ground: Ground) -> None:
        await write(ground, "inner", size_bytes)
        async with ground.client.consumer(TOPIC, start="beginning", stop="latest") as consumer:
            assert await ways(consumer) == BEFORE
            assert await ways(consumer) == []
            await consumer.seek({place(): FOLLOWING})
            assert await ways(consumer) == AFTER
        async with ground.client.consumer(TOPIC, start="beginning", stop="latest", on_bad_batch="skip") as consumer:
            assert await ways(consumer) == BEFORE + AFTER

    play(story)


def test_group_consumer_commits_up_to_a_bad_batch_and_past_it_after_a_seek() -> None:
    async def story(ground: Ground) -> None:
        await write(ground)
        options: Any = {"group": GROUP, "start": "beginning"}
        async with ground.client.consumer(TOPIC, **options) as consumer:
            assert values(await consumer.poll()) == BEFORE
            with pytest.raises(UnreadableError):
                await consumer.poll()
        assert await ground.committed() == {0: BAD}
        async with ground.client.consumer(TOPIC, **options) as consumer:
            with pytest.raises(UnreadableError) as raised:
                await consumer.poll()
            await consumer.seek({place(): raised.value.next_offset})
            assert values(await consumer.poll()) == AFTER
        assert await ground.committed() == {0: FOLLOWING + len(AFTER)}

    play(story)


def test_consumer_reads_other_partitions_while_one_with_a_bad_batch_is_paused() -> None:
    async def story(ground: Ground) -> None:
        await write(ground)
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            assert values(await consumer.poll()) == BEFORE
            with pytest.raises(UnreadableError):
                await consumer.poll()
            await consumer.pause(place())
            await ground.write(2, [1])
            assert values(await consumer.poll()) == ground.written[1]
            await consumer.resume(place())
            with pytest.raises(UnreadableError) as raised:
                await consumer.poll()
            check(raised.value)

    play(story, partitions=2)


def test_a_seek_in_another_partition_keeps_the_position_at_a_bad_batch() -> None:
    async def story(ground: Ground) -> None:
        await write(ground)
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            assert values(await consumer.poll()) == BEFORE
            await consumer.seek("latest", place(1))
            with pytest.raises(UnreadableError) as raised:
                await consumer.poll()
            check(raised.value)

    play(story, partitions=2)


def test_bad_batches_in_a_row_and_at_the_ends_are_each_raised() -> None:
    async def story(ground: Ground) -> None:
        for kind in KINDS:
            await ground.writer.produce(TOPIC, 0, bad_batch(kind))
        await ground.write(2)
        await ground.writer.produce(TOPIC, 0, bad_batch())
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            for offset in (0, COUNT):
                with pytest.raises(UnreadableError) as raised:
                    await consumer.poll()
                check(raised.value, offset=offset, next_offset=offset + COUNT)
                await consumer.seek({place(): raised.value.next_offset})
            assert values(await consumer.poll()) == BEFORE
            with pytest.raises(UnreadableError):
                await consumer.poll()
        async with ground.client.consumer(TOPIC, start="beginning", stop="latest", on_bad_batch="skip") as consumer:
            assert values(await every(consumer)) == BEFORE

    play(story)


@pytest.mark.parametrize("kind", KINDS)
def test_get_returns_the_messages_before_a_bad_batch_and_then_raises_it(kind: str) -> None:
    async def story(ground: Ground) -> None:
        await write(ground, kind)
        async with ground.client.consumer(TOPIC) as consumer:
            assert values(await consumer.get(TOPIC, 0, 0)) == BEFORE
            with pytest.raises(UnreadableError) as raised:
                await consumer.get(TOPIC, 0, BAD)
            check(raised.value)
            assert values(await consumer.get(TOPIC, 0, FOLLOWING)) == AFTER

    play(story)


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_subscription_raises_a_bad_batch_until_reopened_after_it_or_skips_it(kind: str, size_bytes: int) -> None:
    async def story(ground: Ground) -> None:
        await write(ground, kind, size_bytes)
        async with ground.client.subscription(TOPIC, start="beginning") as subscription:
            assert values(await subscription.poll()) == BEFORE
            for _ in range(2):
                with pytest.raises(UnreadableError) as raised:
                    await subscription.poll()
                check(raised.value)
        async with ground.client.subscription(TOPIC, start={place(): raised.value.next_offset}) as subscription:
            assert values(await subscription.poll()) == AFTER
        async with ground.client.subscription(TOPIC, start="beginning", on_bad_batch="skip") as subscription:
            assert values(await read(subscription, 4)) == BEFORE + AFTER  # type: ignore[arg-type]
            assert subscription.position(TOPIC, 0) == FOLLOWING + len(AFTER)

    play(story)


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_read_returns_the_messages_before_a_bad_batch_and_then_raises_it(kind: str, size_bytes: int) -> None:
    async def story(ground: Ground) -> None:
        await write(ground, kind, size_bytes)
        client = ground.client
        for wait in (0.0, 1.0):
            found = await client.read(TOPIC, 0, 0, wait=wait)
            assert (values(found.messages), found.next_offset) == (BEFORE, BAD)
            with pytest.raises(UnreadableError) as raised:
                await client.read(TOPIC, 0, BAD, wait=wait)
            check(raised.value)
            found = await client.read(TOPIC, 0, raised.value.next_offset, wait=wait)
            assert values(found.messages) == AFTER
            found = await client.read(TOPIC, 0, 0, wait=wait, on_bad_batch="skip")
            assert (values(found.messages), found.next_offset) == (BEFORE + AFTER, FOLLOWING + len(AFTER))

    play(story)


def test_a_waiting_read_raises_or_skips_a_bad_batch_that_arrives() -> None:
    async def story(ground: Ground) -> None:
        raising = asyncio.ensure_future(ground.client.read(TOPIC, 0, 0, wait=60.0))
        skipping = asyncio.ensure_future(ground.client.read(TOPIC, 0, 0, wait=60.0, on_bad_batch="skip"))
        await asyncio.sleep(1.0)
        await ground.writer.produce(TOPIC, 0, bad_batch())
        with pytest.raises(UnreadableError) as raised:
            await raising
        check(raised.value, offset=0, next_offset=COUNT)
        await asyncio.sleep(1.0)
        await ground.write(2)
        assert values((await skipping).messages) == BEFORE

    play(story)


@pytest.mark.parametrize("kind", KINDS)
def test_iterators_return_the_messages_before_a_bad_batch_and_then_raise_it(kind: str) -> None:
    async def story(ground: Ground) -> None:
        await write(ground, kind)
        async with ground.client.iterators(TOPIC, group=GROUP) as iterators:
            batch = await iterators.poll()
            assert batch is not None
            assert (values(batch.messages), batch.end_offset, batch.following) == (BEFORE, BAD, None)
            for _ in range(2):
                with pytest.raises(UnreadableError) as raised:
                    await iterators.poll()
                check(raised.value)
            iterator = await iterators.get(TOPIC, 0)
            await iterators.commit(iterator, raised.value.next_offset - iterator.offset)
            batch = await iterators.poll()
            assert batch is not None
            assert values(batch.messages) == AFTER

    play(story)


@pytest.mark.parametrize("kind", KINDS)
def test_iterators_skip_a_bad_batch(kind: str) -> None:
    async def story(ground: Ground) -> None:
        await write(ground, kind)
        async with ground.client.iterators(TOPIC, group=GROUP, on_bad_batch="skip") as iterators:
            batch = await iterators.poll()
            assert batch is not None
            assert values(batch.messages) == BEFORE + AFTER
            assert batch.following is not None

    play(story)


def test_an_unknown_reaction_to_bad_batches_is_refused() -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(InvalidArgumentError, match="on_bad_batch"):
            ground.client.consumer(TOPIC, on_bad_batch="ignore")
        with pytest.raises(InvalidArgumentError, match="on_bad_batch"):
            await ground.client.read(TOPIC, 0, 0, on_bad_batch="ignore")

    play(story)
