"""Tests start and close of readers: the first call starts a reader within its timeout, and failures are raised."""

import asyncio
from typing import Any

import pytest

from builders.sdk.simulated_consumers import GROUP, LONG_S, TOPIC, Ground, play
from millstream.model.errors import ErrorCode, MillstreamError

READERS = ("consumer", "member", "subscription", "iterators")


def reader(ground: Ground, kind: str, topic: str = TOPIC) -> Any:
    match kind:
        case "consumer":
            return ground.client.consumer(topic, start="beginning")
        case "member":
            return ground.client.consumer(topic, start="beginning", group=GROUP)
        case "subscription":
            return ground.client.subscription(topic, start="beginning")
        case _:
            return ground.client.iterators(topic, group=GROUP)


@pytest.mark.parametrize("timeout_s", [0.0, 1.0])
@pytest.mark.parametrize("kind", READERS)
def test_a_first_poll_returns_within_its_timeout_if_the_broker_is_unreachable(kind: str, timeout_s: float) -> None:
    async def story(ground: Ground) -> None:
        loop = asyncio.get_running_loop()
        await ground.write(3)
        ground.network.block("reader")
        each = reader(ground, kind)
        for _ in range(3):
            called_s = loop.time()
            assert not await each.poll(timeout_s)
            assert loop.time() - called_s <= timeout_s + 0.01
        ground.network.unblock("reader")
        found = await each.poll(LONG_S)
        assert [message.value for message in getattr(found, "messages", found)] == ground.written[0]
        await each.close()

    play(story)


async def poll_now_and_then(each: Any) -> None:
    async with asyncio.timeout(LONG_S):
        while True:
            assert not await each.poll(0)
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("kind", ["consumer", "subscription", "iterators"])
def test_a_start_failure_between_two_polls_is_raised_by_the_next_poll(kind: str) -> None:
    async def story(ground: Ground) -> None:
        each = reader(ground, kind, "missing")
        for _ in range(2):
            with pytest.raises(MillstreamError) as caught:
                await poll_now_and_then(each)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await each.close()

    play(story)


@pytest.mark.parametrize("kind", READERS)
def test_a_reader_can_be_closed_during_its_start_and_after_a_failed_start(kind: str) -> None:
    async def story(ground: Ground) -> None:
        for wait_s in (0.0, LONG_S):
            each = reader(ground, kind, "missing")
            assert not await each.poll(0)
            await asyncio.sleep(wait_s)
            await each.close()

    play(story)


async def within(each: Any, ending: BaseException) -> None:
    async with each:
        raise ending


@pytest.mark.parametrize("topic", [TOPIC, "missing"])
@pytest.mark.parametrize("kind", ["consumer", "subscription", "iterators"])
def test_an_error_on_close_is_added_as_a_note_to_the_first_exception(
    kind: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(ground: Ground) -> None:
        each = reader(ground, kind, topic)
        close = each._engine.close

        async def close_and_fail(*args: Any, **options: Any) -> None:
            await close(*args, **options)
            raise MillstreamError(ErrorCode.NETWORK_EXCEPTION, "nobody is there to hear it")

        monkeypatch.setattr(each._engine, "close", close_and_fail)
        with pytest.raises(ValueError if topic == TOPIC else MillstreamError) as caught:
            await within(each, ValueError("the caller's own"))
        assert "NETWORK_EXCEPTION" not in str(caught.value)
        assert "nobody is there to hear it" in caught.value.__notes__[0]

    play(story)


@pytest.mark.parametrize("kind", READERS)
def test_a_poll_that_waits_for_the_start_raises_client_closed_on_close(kind: str) -> None:
    async def story(ground: Ground) -> None:
        ground.network.block("reader")
        each = reader(ground, kind)
        waiting = asyncio.create_task(each.poll(None))
        await asyncio.sleep(1)
        await each.close()
        with pytest.raises(MillstreamError) as caught:
            await waiting
        assert caught.value.code is ErrorCode.CLIENT_CLOSED
        ground.network.unblock("reader")

    play(story)


@pytest.mark.parametrize("kind", READERS)
def test_closing_a_reader_waits_at_most_3_s_for_an_unreachable_broker(kind: str) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(3)
        each = reader(ground, kind)
        assert await each.poll(LONG_S)
        ground.network.block("reader")
        begun_s = asyncio.get_running_loop().time()
        await each.close()
        assert asyncio.get_running_loop().time() - begun_s <= 3.1
        ground.network.unblock("reader")

    play(story)


def test_close_timeout_limits_how_long_closing_a_member_takes() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(3)
        for close_timeout_s in (0.0, 1.0, 10.0):
            member = ground.client.consumer(TOPIC, start="beginning", group=GROUP, close_timeout=close_timeout_s)
            await member.poll(LONG_S)
            ground.network.block("reader")
            begun_s = asyncio.get_running_loop().time()
            await member.close()
            assert close_timeout_s <= asyncio.get_running_loop().time() - begun_s <= close_timeout_s + 0.1
            ground.network.unblock("reader")

    play(story)


def sdk_tasks() -> "set[asyncio.Task[Any]]":
    """The tasks that run code of the SDK; the broker's tasks are on the same event loop."""
    return {task for task in asyncio.all_tasks() if "/millstream/sdk/" in task.get_stack(limit=1)[0].f_code.co_filename}


@pytest.mark.parametrize("wait_s", [0.0, 1.0])
@pytest.mark.parametrize("kind", READERS)
def test_a_cancelled_close_leaves_no_tasks_running(kind: str, wait_s: float) -> None:
    async def story(ground: Ground) -> None:
        before = sdk_tasks()
        await ground.write(3)
        each = reader(ground, kind)
        assert await each.poll(LONG_S)
        ground.network.block("reader")
        closing = asyncio.create_task(each.close())
        await asyncio.sleep(wait_s)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        ground.network.unblock("reader")
        await asyncio.sleep(LONG_S)
        assert sdk_tasks() <= before

    play(story)
