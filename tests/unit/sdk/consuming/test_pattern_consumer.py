"""Tests consumers of all topics whose names match a pattern, with and without a group."""

import re
from typing import Any

import pytest

from builders.sdk.message_values import values_of
from builders.sdk.simulated_consumers import GROUP, LONG_S, Ground, play
from millstream.model.errors import ErrorCode, InvalidArgumentError, MillstreamError
from millstream.sdk.aio.consumer import AsyncConsumer


async def make(ground: Ground, *topics: str) -> None:
    for topic in topics:
        await ground.client.create_topic(topic, partitions=2)
        await ground.writer.put(topic, [topic.encode()], partition=1)


async def read_values(consumer: AsyncConsumer[bytes], count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        messages = await consumer.poll(LONG_S)
        assert messages, found
        found += values_of(messages)
    return sorted(found)


@pytest.mark.parametrize("options", [{}, {"group": GROUP}])
@pytest.mark.parametrize("pattern", ["logs-.*", re.compile("LOGS-.*", re.IGNORECASE)])
def test_a_pattern_reads_matching_topics_and_those_created_later(options: dict[str, Any], pattern: Any) -> None:
    async def story(ground: Ground) -> None:
        await make(ground, "logs-a", "logs-b", "my-logs-c", "logs")
        async with ground.client.consumer(pattern=pattern, start="beginning", **options) as consumer:
            assert await read_values(consumer, 2) == [b"logs-a", b"logs-b"]
            await make(ground, "other", "logs-d")
            assert await read_values(consumer, 1) == [b"logs-d"]
            assert {each.topic for each in consumer.assignment} == {"logs-a", "logs-b", "logs-d"}
            assert await consumer.poll(1.0) == []

    play(story)


@pytest.mark.parametrize("options", [{}, {"group": GROUP}])
def test_a_new_topic_is_read_from_its_beginning_after_a_start_at_the_end(options: dict[str, Any]) -> None:
    async def story(ground: Ground) -> None:
        await make(ground, "logs-a")
        async with ground.client.consumer(pattern="logs-.*", start="latest", **options) as consumer:
            assert await consumer.poll(5.0) == []
            await make(ground, "logs-b")
            assert await read_values(consumer, 1) == [b"logs-b"]

    play(story)


@pytest.mark.parametrize("options", [{}, {"group": GROUP}])
def test_a_pattern_without_matching_topics_waits_for_one(options: dict[str, Any]) -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.consumer(pattern="none-.*", start="beginning", **options) as consumer:
            assert await consumer.poll(1.0) == []
            await make(ground, "none-yet")
            assert await read_values(consumer, 1) == [b"none-yet"]

    play(story)


@pytest.mark.parametrize("options", [{}, {"group": GROUP}])
def test_a_deleted_topic_leaves_the_pattern_and_returns_when_it_is_recreated(options: dict[str, Any]) -> None:
    async def story(ground: Ground) -> None:
        await make(ground, "logs-a", "logs-b")
        async with ground.client.consumer(pattern="logs-.*", start="beginning", **options) as consumer:
            assert await read_values(consumer, 2) == [b"logs-a", b"logs-b"]
            await ground.client.delete_topic("logs-a")
            await ground.writer.put("logs-b", [b"more"], partition=0)
            assert await read_values(consumer, 1) == [b"more"]
            while "logs-a" in {each.topic for each in consumer.assignment}:
                assert await consumer.poll(1.0) == []
            await make(ground, "logs-a")
            assert await read_values(consumer, 1) == [b"logs-a"]

    play(story)


@pytest.mark.parametrize(
    "options",
    [
        {"pattern": "["},
        {"pattern": ""},
        {"pattern": 7},
        {"pattern": re.compile(b"logs")},
        {"pattern": re.compile("logs # a comment", re.VERBOSE)},
        {"pattern": "logs-.*", "topics": "orders"},
        {"pattern": "logs-.*", "partitions": [0]},
    ],
)
def test_an_unusable_pattern_is_refused(options: dict[str, Any]) -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(InvalidArgumentError, match="pattern"):
            ground.client.consumer(**options)

    play(story)


def test_the_broker_refuses_an_expression_that_it_cannot_match() -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(MillstreamError, match="logs") as caught:
            async with ground.client.consumer(pattern="(?=logs)", group=GROUP):
                pass
        assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION

    play(story)
