"""Tests that polls return within their timeout when a broker is silent, and that a later poll continues their work."""

import asyncio
from functools import partialmethod
from typing import Any

import pytest

from builders.sdk.simulated_consumers import GROUP, LONG_S, TOPIC, Ground, Worker, play, read, until, values
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.retry_policy import BACKOFF_FIRST_S
from millstream.sdk.consuming.read_at import ANSWER_S
from millstream.testing.simulated.loop import SimulatedLoop

TIMEOUT_S = 0.5


async def poll_in_time(reader: Any, for_s: float) -> None:
    """Poll repeatedly; each poll must return nothing, within its timeout."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + for_s
    while loop.time() < end_s:
        begun_s = loop.time()
        assert not await reader.poll(TIMEOUT_S)
        assert loop.time() - begun_s <= TIMEOUT_S + 0.01


@pytest.mark.parametrize(
    ("options", "for_s"),
    [
        ({}, 150.0),
        ({"group": GROUP, "auto_commit": 5.0}, 30.0),
        ({"group": GROUP, "auto_commit": 0.1}, 30.0),
        ({"group": GROUP, "auto_commit": None}, 30.0),
    ],
    ids=["without a group", "with rare commits", "with frequent commits", "with explicit commits"],
)
def test_consumer_poll_returns_in_time_when_the_broker_is_silent(options: Any, for_s: float) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        async with ground.client.consumer(TOPIC, start="beginning", **options) as consumer:
            await read(consumer, 10)
            ground.network.block("reader")
            await poll_in_time(consumer, for_s)
            ground.network.unblock("reader")
            await ground.write(10)
            assert values(await consumer.poll(LONG_S)) == ground.written[0][10:]
        assert await ground.committed() == ({0: 20} if options.get("auto_commit") else {})

    play(story)


def test_poll_returns_in_time_during_a_rebalance() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10, (0, 1))
        consumer = ground.client.consumer(TOPIC, start="beginning", group=GROUP, auto_commit=1.0)
        async with consumer:
            found = await read(consumer, 20)
            other = await Worker(ground, "other").start()
            member = consumer._engine.membership
            await until(lambda: member.wants_attention)
            ground.network.block("reader")
            await poll_in_time(consumer, 20.0)
            ground.network.unblock("reader")
            await ground.write(10, (0, 1))
            async with asyncio.timeout(LONG_S):
                while {*values(found), *other.values} != {*ground.written[0], *ground.written[1]}:
                    found += await consumer.poll(TIMEOUT_S)
            await other.stop()
        assert await ground.committed() == {0: 20, 1: 20}

    play(story, partitions=2)


def test_an_iterator_commit_does_not_block_polls_and_completes_later() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        async with ground.client.iterators(TOPIC, group=GROUP, max_messages=5) as iterators:
            first = await iterators.poll(LONG_S)
            assert first is not None
            ground.network.block("reader")
            await poll_in_time(iterators, 5.0)
            ground.network.unblock("reader")
            second = await iterators.poll(LONG_S)
            assert second is not None
            assert values(second.messages) == ground.written[0][5:]
            assert await ground.committed() == {0: 5}
        assert await ground.committed() == {0: 10}

    play(story)


def test_finish_waits_for_a_commit_that_a_poll_started() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        async with ground.client.iterators(TOPIC, group=GROUP) as iterators:
            assert await iterators.poll(LONG_S) is not None
            ground.network.block("reader")
            await poll_in_time(iterators, 1.0)
            finishing = asyncio.ensure_future(iterators.finish())
            await asyncio.sleep(1.0)
            ground.network.unblock("reader")
            await finishing
            assert await ground.committed() == {0: 10}

    play(story)


def test_get_returns_within_its_timeout_when_the_broker_is_silent() -> None:
    async def story(ground: Ground) -> None:
        loop = asyncio.get_running_loop()
        await ground.write(3)
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            assert values(await consumer.get(TOPIC, 0, 1, timeout=0)) == ground.written[0][1:]
            ground.network.block("reader")
            begun_s = loop.time()
            with pytest.raises(MillstreamError) as caught:
                await consumer.get(TOPIC, 0, 1, timeout=3)
            assert loop.time() - begun_s <= 3 + ANSWER_S
            assert caught.value.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)
            ground.network.unblock("reader")

    play(story)


def test_consumer_recovers_when_a_backoff_ends_between_clock_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In each round the backoff ends between two other reads of the clock."""

    async def story(ground: Ground) -> None:
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            for looks in range(1, 30):
                await ground.write(1)
                assert len(await consumer.poll(LONG_S)) == 1
                with monkeypatch.context() as patch:
                    patch.setattr(SimulatedLoop, "time", partialmethod(passing, BACKOFF_FIRST_S / (looks - 0.5)))
                    ground.network.cut("reader")
                    await asyncio.sleep(1)

    play(story)


def passing(loop: SimulatedLoop, step_s: float) -> float:
    """Advance the clock with every read of it."""
    loop._now += step_s
    return loop._now
