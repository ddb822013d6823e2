"""Tests subscriptions that decode values, with each reaction to undecodable ones."""

import asyncio
import logging
from typing import Any

import pytest

from builders.sdk.recorded_metrics import RecordedMetrics
from builders.sdk.simulated_consumers import GROUP, TOPIC, Ground, play
from millstream.model.errors import InvalidArgumentError
from millstream.records.message import Message
from millstream.sdk.consuming.decoding import UndecodableError


@pytest.mark.parametrize("way", ["poll", "iterate", "batches"])
def test_a_subscription_skips_undecodable_values_and_counts_them(caplog: pytest.LogCaptureFixture, way: str) -> None:
    async def story(ground: Ground) -> None:
        await ground.writer.put(TOPIC, [b"oh", b"1", b"no", b"3", b"bad"], partition=0)
        recorded = RecordedMetrics()
        client = await ground.machine.connect("counted", metrics=recorded)
        options: Any = {"group": GROUP, "values": "json", "on_bad_value": "skip"}
        async with client.subscription(TOPIC, **options) as subscription:
            if way == "poll":
                found = [message.value for message in await subscription.poll()]
                assert await subscription.poll(1.0) == []
            elif way == "iterate":
                found = [(await anext(aiter(subscription))).value for _ in range(2)]
                assert await subscription.poll(1.0) == []
            else:
                batch = await subscription.poll_batch()
                assert batch is not None
                found = [message.value for message in batch.messages]
            assert subscription.position(TOPIC, 0) == 5
        await client.close()
        assert (found, recorded.counted["messages_undecodable", TOPIC]) == ([1, 3], 3)
        assert await ground.committed() == {0: 5}

    with caplog.at_level(logging.WARNING, "millstream.sdk.consumer"):
        play(story)
    assert "undecodable messages skipped" in caplog.text


def test_a_poll_waits_until_its_timeout_when_all_messages_are_skipped() -> None:
    async def story(ground: Ground) -> None:
        await ground.writer.put(TOPIC, [b"oh", b"no"], partition=0)
        options: Any = {"start": "beginning", "values": "json", "on_bad_value": "skip"}
        async with ground.client.subscription(TOPIC, **options) as subscription:
            started_s = asyncio.get_running_loop().time()
            assert await subscription.poll(10.0) == []
            assert asyncio.get_running_loop().time() - started_s == pytest.approx(10.0)

    play(story)


def test_a_function_gets_each_undecodable_message_of_a_subscription() -> None:
    async def story(ground: Ground) -> None:
        await ground.writer.put(TOPIC, [b"oh", b"1", b"no"], partition=0)
        bad: list[tuple[bytes | None, int]] = []

        def note(message: "Message[bytes]", error: UndecodableError) -> None:
            bad.append((message.value, error.message.offset))

        options: Any = {"start": "beginning", "values": "json", "on_bad_value": note}
        async with ground.client.subscription(TOPIC, **options) as subscription:
            assert [message.value for message in await subscription.poll()] == [1]
        assert bad == [(b"oh", 0), (b"no", 2)]

    play(story)


def test_an_unknown_reaction_to_undecodable_values_of_a_subscription_is_refused() -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(InvalidArgumentError, match="on_bad_value="):
            ground.client.subscription(TOPIC, values="json", on_bad_value="ignore")

    play(story)
