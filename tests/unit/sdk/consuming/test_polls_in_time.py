"""A poll comes back in its time beside a silent broker, and what it began then is taken up by a later one."""

import asyncio
from functools import partialmethod
from typing import Any

import pytest

from builders.sdk.simulated_consumers import GROUP, LONG_S, TOPIC, Ground, Worker, play, read, until, values
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.consuming.fetcher import BACKOFF_MIN_S
from millstream.sdk.consuming.read_at import ANSWER_S
from millstream.testing.simulated.loop import SimulatedLoop

TIMEOUT_S = 0.5


async def poll_in_time(reader: Any, for_s: float) -> None:
    """Ask again and again; nothing comes, and each time in time."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + for_s
    while loop.time() < end_s:
        asked_s = loop.time()
        assert not await reader.poll(TIMEOUT_S)
        assert loop.time() - asked_s <= TIMEOUT_S + 0.01


@pytest.mark.parametrize(
    ("options", "for_s"),
    [
        ({}, 150.0),
        ({"group": GROUP, "auto_commit": 5.0}, 30.0),
        ({"group": GROUP, "auto_commit": 0.1}, 30.0),
        ({"group": GROUP, "auto_commit": None}, 30.0),
    ],
    ids=["without a group", "with rare commits", "with frequent commits", "with commits by hand"],
)
def test_a_consumers_poll_beside_a_silent_broker_comes_back_in_its_time(options: Any, for_s: float) -> None:
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


def test_a_poll_in_which_partitions_change_hands_comes_back_in_its_time_too() -> None:
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


def test_the_commit_of_a_batch_of_iterators_holds_up_no_poll_and_is_not_forgotten() -> None:
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


def test_whoever_finishes_a_batch_waits_for_the_commit_that_a_poll_began() -> None:
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


def test_messages_from_a_place_are_waited_for_no_longer_than_was_said() -> None:
    async def story(ground: Ground) -> None:
        loop = asyncio.get_running_loop()
        await ground.write(3)
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            assert values(await consumer.get(TOPIC, 0, 1, timeout=0)) == ground.written[0][1:]
            ground.network.block("reader")
            asked_s = loop.time()
            with pytest.raises(MillstreamError) as caught:
                await consumer.get(TOPIC, 0, 1, timeout=3)
            assert loop.time() - asked_s <= 3 + ANSWER_S
            assert caught.value.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)
            ground.network.unblock("reader")

    play(story)


def test_a_consumer_comes_back_from_a_pause_although_time_passes_while_it_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pause is over between any two looks at the clock, in one of the turns."""

    async def story(ground: Ground) -> None:
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            for looks in range(1, 30):
                await ground.write(1)
                assert len(await consumer.poll(LONG_S)) == 1
                with monkeypatch.context() as patch:
                    patch.setattr(SimulatedLoop, "time", partialmethod(passing, BACKOFF_MIN_S / (looks - 0.5)))
                    ground.network.cut("reader")
                    await asyncio.sleep(1)

    play(story)


def passing(loop: SimulatedLoop, step_s: float) -> float:
    """Time that goes on with every look at it."""
    loop._now += step_s
    return loop._now
