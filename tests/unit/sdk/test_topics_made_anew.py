"""A topic that was deleted and made again is another topic: no place in the old one is a place in the new."""

import asyncio
from typing import Any

import pytest

from builders.simulated_consumers import GROUP, LONG_S, TOPIC, Ground, place, play, read, values
from penstock.model.errors import ErrorCode, PenstockError


async def make_anew(ground: Ground, count: int) -> None:
    await ground.client.delete_topic(TOPIC)
    await ground.client.create_topic(TOPIC, partitions=1)
    ground.written.clear()
    await ground.write(count)


@pytest.mark.parametrize("pause", [False, True], ids=["while it polls", "while it is paused"])
@pytest.mark.parametrize("kind", ["consumer", "subscription"])
def test_a_reader_without_a_group_is_told(kind: str, pause: bool) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        make: Any = getattr(ground.client, kind)
        async with make(TOPIC, start="beginning") as reader:
            assert len(await read(reader, 10)) == 10
            if pause and kind == "consumer":
                await reader.pause()
                await asyncio.sleep(LONG_S)
            await make_anew(ground, 20)
            if pause and kind == "consumer":
                await reader.resume()
            for _ in range(2):
                with pytest.raises(PenstockError, match="made again") as caught:
                    await reader.poll(LONG_S)
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


@pytest.mark.parametrize("in_hand", [0, 5])
def test_a_group_begins_at_its_start_in_the_new_topic(in_hand: int) -> None:
    async def story(ground: Ground) -> None:
        gone: list[Any] = []
        await ground.write(10 + in_hand)
        options: Any = {"group": GROUP, "start": "beginning", "on_lost": gone.extend, "on_revoked": gone.extend}
        async with ground.client.consumer(TOPIC, auto_commit=0.1, **options) as consumer:
            await read(consumer, 10)
            await make_anew(ground, 20)
            found = values(await consumer.poll(LONG_S))
            while not found or found[-1] != ground.written[0][-1]:
                found += values(await consumer.poll(LONG_S))
            assert found[-20:] == ground.written[0]
            assert consumer.position(TOPIC, 0) == 20
        assert gone == [place()]
        assert await ground.committed() == {0: 20}

    play(story)
