"""Consumers that make values of bytes: what comes of a value that is not what it was said to be."""

import pytest

from builders.sdk.simulated_consumers import TOPIC, Ground, every, play, read
from millstream.model.errors import MillstreamError


def test_a_consumer_hands_out_what_comes_before_and_goes_on_behind_what_cannot_be_decoded() -> None:
    async def story(ground: Ground) -> None:
        await ground.writer.put(TOPIC, [b"1", b"2", b"oh", b"no", b"5"], partition=0)
        consumer = ground.client.consumer(TOPIC, start="beginning", values="json")
        assert [message.value for message in await consumer.poll()] == [1, 2]
        for offset in (2, 3):
            with pytest.raises(MillstreamError, match=f"at offset {offset}"):
                await consumer.poll()
        assert [message.value for message in await consumer.poll()] == [5]

        consumer = ground.client.consumer(TOPIC, start="beginning", values="json")
        assert [message.value for message in await read(consumer, 2)] == [1, 2]
        for offset in (2, 3):
            with pytest.raises(MillstreamError, match=f"at offset {offset}"):
                await read(consumer, 1)
            assert consumer.position(TOPIC, 0) == offset + 1
        assert [message.value for message in await read(consumer, 1)] == [5]

    play(story)


def test_batches_are_decoded_too() -> None:
    async def story(ground: Ground) -> None:
        await ground.writer.put(TOPIC, [b"1", b"2"], partition=0)
        consumer = ground.client.consumer(TOPIC, start="beginning", stop="latest", values=int)
        batches = [batch async for batch in consumer.batches()]
        assert [message.value for batch in batches for message in batch.messages] == [1, 2]
        consumer = ground.client.consumer(TOPIC, start="beginning", stop="latest", values=lambda value: value * 2)
        assert [message.value for message in await every(consumer)] == [b"11", b"22"]

    play(story)
