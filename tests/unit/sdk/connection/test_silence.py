"""A broker that accepts requests and does not answer is an outage after 5 s; in simulated time."""

import asyncio
import logging
from typing import Any

import pytest

from builders.sdk.simulated_consumers import TOPIC, Ground, play
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.connection import PendingRequest
from millstream.sdk.connection.outage import OutageWatch
from millstream.sdk.connection.silence import SilenceWatch
from millstream.sdk.consuming.fetcher import POLL_WAIT_MS
from millstream.sdk.consuming.health import ConsumerActivity
from millstream.sdk.requests import metadata
from millstream.testing.simulated.loop import SimulatedLoop

HERE = Address("broker", 9092)


@pytest.fixture(autouse=True)
def logged_from_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "millstream.sdk.cluster")


def lines(caplog: pytest.LogCaptureFixture, level: int, owner: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == level and record.getMessage().startswith("brokers ") and owner in record.getMessage()
    ]


@pytest.mark.parametrize("group", [None, "billing"])
def test_a_consumer_of_a_silent_broker_warns_5_s_after_its_poll_is_due(
    caplog: pytest.LogCaptureFixture, group: str | None
) -> None:
    async def story(ground: Ground) -> None:
        await ground.write()
        consumer = ground.client.consumer(TOPIC, group=group, start="beginning")
        assert len(await consumer.poll()) == 10
        ground.network.block("reader")
        await asyncio.sleep(4)
        assert lines(caplog, logging.WARNING, "owner=consumer") == []
        await asyncio.sleep(POLL_WAIT_MS / 1000 + 3)
        (line,) = lines(caplog, logging.WARNING, "owner=consumer")
        assert "addresses=broker:9092" in line
        assert "has not answered" in line
        health = consumer.health()
        assert (health.doing, "has not answered" in health.reason) == (ConsumerActivity.UNREACHABLE, True)
        assert health.since_s > 4
        await asyncio.sleep(120)
        assert len(lines(caplog, logging.WARNING, "owner=consumer")) == 3
        assert lines(caplog, logging.INFO, "owner=consumer") == []
        ground.network.unblock("reader")
        await ground.write()
        assert await consumer.poll(30)
        assert len(lines(caplog, logging.INFO, "owner=consumer")) == 1
        await consumer.close()

    play(story)


def test_a_producer_of_a_silent_broker_warns_after_5_s(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        producer = ground.client.producer()
        await producer.put(TOPIC, b"first")
        ground.network.block("reader")
        receipt = producer.put(TOPIC, b"second")
        await asyncio.sleep(7)
        (line,) = lines(caplog, logging.WARNING, "owner=producer")
        assert "for_s=5" in line
        assert not producer.health().is_reachable
        ground.network.unblock("reader")
        await receipt
        assert producer.health().is_reachable
        assert len(lines(caplog, logging.INFO, "owner=producer")) == 1
        await producer.close()

    play(story)


def test_health_of_an_idle_producer_finds_a_silent_broker(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        producer = ground.client.producer()
        await producer.put(TOPIC, b"first")
        await asyncio.sleep(60)
        ground.network.block("reader")
        assert producer.health().is_reachable
        await asyncio.sleep(7)
        health = producer.health()
        assert not health.is_reachable
        assert "has not answered Metadata" in health.reason
        await asyncio.sleep(60)
        assert not producer.health().is_reachable
        assert len(lines(caplog, logging.WARNING, "owner=producer")) == 2
        ground.network.unblock("reader")
        await asyncio.sleep(30)
        assert producer.health().is_reachable
        await producer.close()

    play(story)


def test_an_idle_connection_sends_nothing_until_health_is_asked() -> None:
    async def story(ground: Ground) -> None:
        producer = ground.client.producer()
        await producer.put(TOPIC, b"first")
        await asyncio.sleep(10)
        (connection,) = producer._engine._cluster._connections.values()
        received = connection.receives
        await asyncio.sleep(600)
        assert connection.receives == received
        for _ in range(10):
            assert producer.health().is_reachable
        assert connection.waiting == 1
        await asyncio.sleep(1)
        assert connection.waiting == 0
        await producer.close()

    play(story)


def test_a_long_poll_within_its_wait_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        consumer = ground.client.consumer(TOPIC)
        assert await consumer.get(TOPIC, 0, 0, timeout=30) == []
        await consumer.close()
        assert [each for each in caplog.messages if each.startswith("brokers unreachable")] == []

    play(story)


class ScriptedConnection:
    """A connection whose pending request and received bytes the test sets."""

    def __init__(self) -> None:
        self.receives = 0
        self.oldest: PendingRequest | None = None

    def send(self) -> None:
        loop = asyncio.get_running_loop()
        self.oldest = PendingRequest(loop.create_future(), loop.time(), metadata([], auto_create=False))


def test_a_slow_response_that_makes_progress_is_no_silence(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        outages, connection = OutageWatch("producer"), ScriptedConnection()
        watch = SilenceWatch(HERE, outages, lambda: None)
        connection.send()
        watch.watch(connection)  # type: ignore[arg-type]
        for _ in range(30):
            await asyncio.sleep(2)
            connection.receives += 1
        assert outages.health().is_reachable
        await asyncio.sleep(7)
        assert not outages.health().is_reachable
        connection.oldest = None
        await asyncio.sleep(2)
        assert not watch.is_watching
        watch.close()
        outages.close()

    simulate(story())


def simulate(story: Any) -> None:
    loop = SimulatedLoop()
    try:
        loop.run_until_complete(story)
    finally:
        loop.end()
