"""Tests consumers that decode values, including undecodable ones."""

import asyncio
import logging
from typing import Any

import pytest

from builders.sdk.recorded_metrics import RecordedMetrics
from builders.sdk.simulated_consumers import TOPIC, Ground, every, play, read
from millstream.model.errors import InvalidArgumentError, MillstreamError
from millstream.process.logs import fields_of
from millstream.records.message import Message
from millstream.sdk.consuming.bad_values import LOG_INTERVAL_S
from millstream.sdk.consuming.decoding import UndecodableError


def test_an_undecodable_value_is_raised_in_order_and_then_skipped() -> None:
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


def test_values_in_batches_are_decoded() -> None:
    async def story(ground: Ground) -> None:
        await ground.writer.put(TOPIC, [b"1", b"2"], partition=0)
        consumer = ground.client.consumer(TOPIC, start="beginning", stop="latest", values=int)
        batches = [batch async for batch in consumer.batches()]
        assert [message.value for batch in batches for message in batch.messages] == [1, 2]
        consumer = ground.client.consumer(TOPIC, start="beginning", stop="latest", values=lambda value: value * 2)
        assert [message.value for message in await every(consumer)] == [b"11", b"22"]

    play(story)


def skipped_counts(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [fields_of(record)["count"] for record in caplog.records if "messages skipped" in record.getMessage()]


def test_skipped_values_are_logged_once_a_minute_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.consumer(TOPIC, start="beginning", values="json", on_bad_value="skip") as consumer:
            for number in range(3):
                await ground.writer.put(TOPIC, [b"oh", b"no", b"%d" % number, b"bad"], partition=0)
            found: list[Any] = []
            while len(found) < 3:
                found += await consumer.poll()
            assert [message.value for message in found] == [0, 1, 2]
            assert await consumer.poll(LOG_INTERVAL_S) == []
            assert skipped_counts(caplog) == [1]
            await ground.writer.put(TOPIC, [b"oh"], partition=0)
            assert await consumer.poll() == []
            assert consumer.position(TOPIC, 0) == 13
            assert skipped_counts(caplog) == [1, 9]
            await ground.writer.put(TOPIC, [b"oh", b"3"], partition=0)
            assert [message.value for message in await consumer.poll()] == [3]
        assert skipped_counts(caplog) == [1, 9, 1]

    with caplog.at_level(logging.WARNING, "millstream.sdk.consumer"):
        play(story)


@pytest.mark.parametrize("way", ["poll", "iterate", "batches"])
def test_an_on_bad_value_function_gets_each_undecodable_message(way: str) -> None:
    async def story(ground: Ground) -> None:
        await ground.writer.put(TOPIC, [b"oh", b"1", b"no", b"3", b"bad"], partition=0)
        bad: list[tuple[bytes | None, str]] = []

        def note(message: "Message[bytes]", error: UndecodableError) -> None:
            assert error.message is message
            bad.append((message.value, error.code.name))

        options: Any = {"start": "beginning", "stop": "latest", "values": "json", "on_bad_value": note}
        consumer = ground.client.consumer(TOPIC, **options)
        if way == "poll":
            messages = await consumer.poll()
            assert await consumer.poll() == []
        elif way == "iterate":
            messages = await every(consumer)
        else:
            messages = [message async for batch in consumer.batches() for message in batch.messages]
        assert [message.value for message in messages] == [1, 3]
        assert bad == [(value, "UNDECODABLE_VALUE") for value in (b"oh", b"no", b"bad")]

    play(story)


def test_a_poll_waits_until_its_timeout_when_all_messages_are_skipped() -> None:
    async def story(ground: Ground) -> None:
        await ground.writer.put(TOPIC, [b"oh", b"no"], partition=0)
        async with ground.client.consumer(TOPIC, start="beginning", values="json", on_bad_value="skip") as consumer:
            started_s = asyncio.get_running_loop().time()
            assert await consumer.poll(10.0) == []
            assert asyncio.get_running_loop().time() - started_s == pytest.approx(10.0)
            assert await consumer.poll_batch(10.0) is None

    play(story)


def test_an_on_bad_value_exception_is_raised_and_consuming_continues() -> None:
    async def story(ground: Ground) -> None:
        await ground.writer.put(TOPIC, [b"oh", b"1"], partition=0)

        def refuse(message: "Message[bytes]", error: UndecodableError) -> None:
            raise ValueError("no dead letters")

        async with ground.client.consumer(TOPIC, start="beginning", values="json", on_bad_value=refuse) as consumer:
            with pytest.raises(ValueError, match="no dead letters"):
                await consumer.poll()
            assert [message.value for message in await consumer.poll()] == [1]

    play(story)


def test_skipped_values_are_counted_in_the_metrics() -> None:
    async def story(ground: Ground) -> None:
        await ground.writer.put(TOPIC, [b"oh", b"1", b"no"], partition=0)
        recorded = RecordedMetrics()
        client = await ground.machine.connect("counted", metrics=recorded)
        async with client.consumer(TOPIC, start="beginning", values="json", on_bad_value="skip") as consumer:
            await consumer.poll()
        await client.close()
        assert recorded.counted["messages_undecodable", TOPIC] == 2

    play(story)


@pytest.mark.parametrize("wrong", ["ignore", None, 7])
def test_an_unknown_reaction_to_undecodable_values_is_refused(wrong: Any) -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(InvalidArgumentError, match="on_bad_value="):
            ground.client.consumer(TOPIC, values="json", on_bad_value=wrong)

    play(story)
