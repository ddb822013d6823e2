"""Outages of brokers are logged once per minute and reported by `health()`; in simulated time."""

import asyncio
import logging

import pytest

from builders.sdk.simulated_consumers import TOPIC, Ground, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.outage import OutageWatch
from millstream.sdk.consuming.health import ConsumerActivity
from millstream.testing.simulated.loop import SimulatedLoop

HERE, THERE = Address("broker1", 9092), Address("broker2", 9092)


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == level and record.getMessage().startswith("brokers ")
    ]


@pytest.fixture(autouse=True)
def logged_from_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "millstream.sdk")


@pytest.mark.parametrize("group", [None, "billing"])
def test_a_consumer_warns_after_5_s_and_once_a_minute_until_reachable(
    caplog: pytest.LogCaptureFixture, group: str | None
) -> None:
    async def story(ground: Ground) -> None:
        await ground.write()
        consumer = ground.client.consumer(TOPIC, group=group, start="beginning")
        assert len(await consumer.poll()) == 10
        await ground.node.stop()
        await asyncio.sleep(4)
        assert lines(caplog, logging.WARNING) == []
        await asyncio.sleep(8)
        (line,) = lines(caplog, logging.WARNING)
        assert "owner=consumer" in line
        assert "addresses=broker:9092" in line
        assert "cannot be reached: connection refused" in line
        health = consumer.health()
        assert health.doing is ConsumerActivity.UNREACHABLE
        assert health.reason
        assert health.since_s > 5
        await asyncio.sleep(120)
        assert len(lines(caplog, logging.WARNING)) == 3
        assert lines(caplog, logging.INFO) == []
        ground.node = await ground.machine.start()
        await ground.write()
        assert len(await consumer.poll(30)) == 10
        (line,) = [line for line in lines(caplog, logging.INFO) if "owner=consumer" in line]
        assert line.startswith("brokers reachable again")
        await consumer.close()

    play(story)


def test_a_producer_warns_and_reports_what_it_holds(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        producer = ground.client.producer()
        await producer.put(TOPIC, b"first")
        assert producer.health().is_reachable
        await ground.node.stop()
        receipt = producer.put(TOPIC, b"second")
        await asyncio.sleep(80)
        warnings = [line for line in lines(caplog, logging.WARNING) if "owner=producer" in line]
        assert len(warnings) == 2
        health = producer.health()
        assert not health.is_reachable
        assert health.since_s > 60
        assert health.reason
        assert health.held_bytes > 0
        assert "unreachable" in str(health)
        ground.node = await ground.machine.start()
        await receipt
        assert producer.health().is_reachable
        assert producer.health().held_bytes == 0
        assert len([line for line in lines(caplog, logging.INFO) if "owner=producer" in line]) == 1
        await producer.close()

    play(story)


def test_an_idle_producer_reports_an_outage_and_reconnects(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        producer = ground.client.producer()
        await producer.put(TOPIC, b"first")
        await ground.node.stop()
        await asyncio.sleep(1)
        health = producer.health()
        assert not health.is_reachable
        assert "connection refused" in health.reason
        await asyncio.sleep(79)
        assert len([line for line in lines(caplog, logging.WARNING) if "owner=producer" in line]) == 2
        assert producer.health().since_s > 60
        ground.node = await ground.machine.start()
        await asyncio.sleep(10)
        assert producer.health().is_reachable
        (line,) = [line for line in lines(caplog, logging.INFO) if "owner=producer" in line]
        assert line.startswith("brokers reachable again")
        await producer.close()

    play(story)


def test_closing_a_client_ends_its_reconnecting() -> None:
    async def story(ground: Ground) -> None:
        producer = ground.client.producer()
        await producer.put(TOPIC, b"first")
        await ground.node.stop()
        await asyncio.sleep(3)
        await producer.close()
        await asyncio.sleep(1)
        tasks = asyncio.all_tasks()
        assert not [task for task in tasks if "Reconnecting" in str(task.get_coro())]
        ground.node = await ground.machine.start()

    play(story)


def test_failed_connection_attempts_are_logged_at_debug_only(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        producer = ground.client.producer()
        await producer.put(TOPIC, b"first")
        await ground.node.stop()
        await asyncio.sleep(30)
        assert not [each for each in caplog.records if each.getMessage().startswith("connection failed")]
        ground.node = await ground.machine.start()
        await producer.close()

    play(story)


def test_subscriptions_and_iterators_report_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        await ground.write()
        subscription = ground.client.subscription(TOPIC, start="beginning")
        assert await subscription.poll()
        iterators = ground.client.iterators(TOPIC, group="readers")
        await iterators.join()
        await ground.node.stop()
        await asyncio.sleep(30)
        for each in (subscription, iterators):
            assert not each.health().is_reachable
            assert each.health().reason
        warned = sorted(line.partition(" owner=")[2].partition(" ")[0] for line in lines(caplog, logging.WARNING))
        assert warned == ["iterators", "subscription"]
        ground.node = await ground.machine.start()
        await asyncio.sleep(30)
        assert subscription.health().is_reachable
        assert iterators.health().is_reachable
        assert len(lines(caplog, logging.INFO)) == 2
        await subscription.close()
        await iterators.close()

    play(story)


def simulate(story: object) -> None:
    loop = SimulatedLoop()
    try:
        loop.run_until_complete(story)  # type: ignore[arg-type]
    finally:
        loop.end()


async def attempt(watch: OutageWatch, address: Address, error: MillstreamError | None, duration_s: float) -> None:
    try:
        with watch.attempt(address):
            await asyncio.sleep(duration_s)
            if error is not None:
                raise error
    except MillstreamError:
        return
    watch.reached(address, [])


@pytest.mark.parametrize(
    ("error", "duration_s"),
    [
        (MillstreamError(ErrorCode.NETWORK_EXCEPTION, "broker1:9092 cannot be reached: connection refused"), 0.0),
        (MillstreamError(ErrorCode.NETWORK_EXCEPTION, "the host name cannot be resolved"), 0.2),
        (MillstreamError(ErrorCode.NETWORK_EXCEPTION, "broker1:9092 did not answer in 4 s"), 4.0),
        (MillstreamError(ErrorCode.VERSION_WINDOW, "broker 1.9 works with clients from 1.7"), 0.0),
        (MillstreamError(ErrorCode.INVALID_REQUEST, "the role is refused"), 0.0),
    ],
    ids=["refused", "name", "silent", "version", "role"],
)
def test_every_kind_of_failure_is_logged_with_its_reason(
    caplog: pytest.LogCaptureFixture, error: MillstreamError, duration_s: float
) -> None:
    async def story() -> None:
        watch = OutageWatch("consumer")
        loop = asyncio.get_running_loop()
        end_s = loop.time() + 58
        while loop.time() < end_s:
            await attempt(watch, HERE, error, duration_s)
            await asyncio.sleep(1)
        assert len(lines(caplog, logging.WARNING)) == 1
        assert f'error="{error.detail}"' in lines(caplog, logging.WARNING)[0]
        assert watch.health().reason == error.detail
        await attempt(watch, HERE, None, 0)
        assert len(lines(caplog, logging.INFO)) == 1
        assert watch.health().is_reachable
        await asyncio.sleep(100)
        assert len(lines(caplog, logging.WARNING) + lines(caplog, logging.INFO)) == 2

    simulate(story())


def test_a_short_outage_and_an_unneeded_seed_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        watch = OutageWatch("consumer")
        refused = MillstreamError(ErrorCode.NETWORK_EXCEPTION, "refused")
        for _ in range(4):
            await attempt(watch, HERE, refused, 0)
            await attempt(watch, THERE, refused, 0)
            await asyncio.sleep(1)
        await attempt(watch, THERE, None, 0)
        assert watch.health().is_reachable
        await attempt(watch, HERE, refused, 0)
        await asyncio.sleep(100)  # The seed is not tried again.
        assert watch.health().is_reachable
        assert lines(caplog, logging.WARNING) + lines(caplog, logging.INFO) == []

    simulate(story())


def test_an_attempt_without_an_answer_is_logged_while_it_runs(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        watch = OutageWatch("producer")
        running = asyncio.create_task(attempt(watch, HERE, None, 30))
        await asyncio.sleep(6)
        (line,) = lines(caplog, logging.WARNING)
        assert "broker1:9092 has not answered yet" in line
        await running
        assert len(lines(caplog, logging.INFO)) == 1

    simulate(story())
