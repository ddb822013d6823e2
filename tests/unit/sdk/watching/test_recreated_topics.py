"""Tests that waiting reads notice a topic that was deleted and created again."""

import asyncio

import pytest

from builders.sdk.simulated_consumers import TOPIC, Ground, play, values
from millstream.model.errors import ErrorCode, MillstreamError
from unit.sdk.watching.test_reads import wait_until_waiting


async def recreate(ground: Ground) -> None:
    """Delete and create the topic with another client, whose metadata the reader does not see."""
    other = await ground.machine.connect("other")
    await other.delete_topic(TOPIC)
    await other.create_topic(TOPIC, partitions=1)
    await other.close()


def test_a_waiting_read_raises_when_its_topic_was_recreated_during_a_disconnect() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(5)
        waiting = asyncio.ensure_future(ground.client.read(TOPIC, 0, 5, wait=600))
        await wait_until_waiting(ground)
        ground.network.block("reader")
        ground.network.cut("reader")
        await asyncio.sleep(5)
        await recreate(ground)
        ground.network.unblock("reader")
        with pytest.raises(MillstreamError, match="created again") as raised:
            await waiting
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await ground.write(1)
        assert len((await ground.client.read(TOPIC, 0, 0, wait=600)).messages) == 1

    play(story)


def test_a_read_finds_the_recreated_topic_despite_cached_metadata() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(5)
        await ground.client.read(TOPIC, 0, 0)
        await recreate(ground)
        waiting = asyncio.ensure_future(ground.client.read(TOPIC, 0, 0, wait=600))
        await asyncio.sleep(1)
        await wait_until_waiting(ground)
        await ground.writer.put(TOPIC, [b"new"], partition=0)
        assert values((await waiting).messages) == [b"new"]

    play(story)
