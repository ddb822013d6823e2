"""Tests that subscriptions receive each message once and in order, within the window, also across reconnects."""

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from builders.loops import for_each
from builders.sdk.simulated_consumers import GROUP, LONG_S, TOPIC, Ground, elect_after_lookup, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import decode_messages
from millstream.records.header import CorruptBatch
from millstream.records.message import Message
from millstream.sdk.aio.subscription import AsyncSubscription
from millstream.sdk.connection.retry_policy import FEW_ATTEMPTS
from millstream.sdk.consuming.decoding import UndecodableError
from millstream.sdk.feed import fetched_chunk, undecodable_batches
from millstream.sdk.subscribing.stream_set import StreamSet


async def read(subscription: AsyncSubscription, count: int) -> list[Message]:
    """Read `count` messages one by one."""
    messages: list[Message] = []
    async with asyncio.timeout(LONG_S):
        async for message in subscription:
            messages.append(message)
            if len(messages) == count:
                break
    return messages


def streams_of(subscription: AsyncSubscription) -> StreamSet:
    return subscription._engine._streams


def values(messages: Sequence[Message], partition: int = 0) -> list[Any]:
    return [message.value for message in messages if message.partition == partition]


def test_stored_and_new_messages_are_pushed() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(50, (0, 1, 2))
        async with ground.client.subscription(TOPIC, start="beginning") as subscription:
            messages = await read(subscription, 150)
            waiting = asyncio.ensure_future(read(subscription, 30))
            await ground.write(10, (0, 1, 2))
            messages += await waiting
        for partition in range(3):
            assert values(messages, partition) == ground.written[partition]
            assert [m.offset for m in messages if m.partition == partition] == list(range(60))

    play(story, partitions=3)


@pytest.mark.parametrize(("start", "first"), [("beginning", 0), ("latest", 20), (7, 7), ({0: 9}, 9)])
def test_a_subscription_begins_at_its_start_position(start: Any, first: int) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(20)
        async with ground.client.subscription(TOPIC, start=start) as subscription:
            assert subscription.position(TOPIC, 0) == first
            await ground.write(5)
            assert values(await read(subscription, 25 - first)) == ground.written[0][first:]
            assert subscription.position(TOPIC, 0) == 25

    play(story)


def test_batches_have_the_messages_of_one_partition() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(20, (0, 1))
        async with ground.client.subscription(TOPIC, start="beginning") as subscription:
            seen = {}
            async for batch in subscription.batches():
                assert {message.partition for message in batch.messages} == {batch.partition}
                seen[batch.partition] = batch.next_offset
                if len(seen) == 2:
                    break
            assert seen == {0: 20, 1: 20}
            assert await subscription.poll(timeout=0.5) == []
            assert await subscription.poll_batch(timeout=0.5) is None

    play(story, partitions=2)


def test_an_undecodable_value_is_raised_once_and_then_skipped() -> None:
    async def story(ground: Ground) -> None:
        await ground.writer.put(TOPIC, [b"1", b"2", b"no number", b"4"], partition=0)
        async with ground.client.subscription(TOPIC, start="beginning", group=GROUP, values=int) as subscription:
            batch = await subscription.poll_batch()
            assert batch is not None
            assert (values(batch.messages), batch.next_offset) == ([1, 2], 2)
            with pytest.raises(UndecodableError) as caught:
                await subscription.poll()
            assert caught.value.message.offset == 2
            assert values(await read(subscription, 1)) == [4]
        assert await ground.committed() == {0: 4}

    play(story)


def test_a_slow_caller_buffers_at_most_the_window() -> None:
    async def story(ground: Ground) -> None:
        for _ in range(40):
            await ground.write(5)
        async with ground.client.subscription(TOPIC, start="beginning", window_messages=20) as subscription:
            messages: list[Message] = []
            while len(messages) < 200:
                batch = await subscription.poll_batch()
                assert batch is not None
                messages += batch.messages
                await asyncio.sleep(1)
                held = sum(chunk.next_offset - chunk.offset for chunk in subscription._engine._streams.queue)
                assert held <= 20
            assert values(messages) == ground.written[0]

    play(story)


@for_each("seed", range(5))
@pytest.mark.parametrize("group", [None, GROUP])
def test_lost_connections_neither_lose_nor_repeat_messages(seed: int, group: str | None) -> None:
    random = Random(seed)

    async def cut(ground: Ground) -> None:
        for _ in range(20):
            await asyncio.sleep(random.random() * 0.5)
            ground.network.cut("reader")

    async def story(ground: Ground) -> None:
        cutting = asyncio.ensure_future(cut(ground))
        subscription = ground.client.subscription(TOPIC, start="beginning", window_messages=30, group=group)
        async with subscription:
            reading = asyncio.ensure_future(read(subscription, 600))
            for _ in range(40):
                await ground.write(5, (0, 1, 2))
                await asyncio.sleep(random.random() * 0.3)
            messages = await reading
        await cutting
        for partition in range(3):
            assert values(messages, partition) == ground.written[partition]
        if group is not None:
            assert await ground.committed() == {0: 200, 1: 200, 2: 200}

    play(story, partitions=3)


def test_a_subscription_continues_after_a_broker_restart() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.subscription(TOPIC, start="beginning") as subscription:
            await ground.write(20)
            messages = await read(subscription, 10)
            await ground.restart()
            await ground.write(20)
            messages += await read(subscription, 30)
            assert values(messages) == ground.written[0]

    play(story)


def test_a_subscription_continues_under_a_new_leader_epoch() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        async with ground.client.subscription(TOPIC, start="beginning") as subscription:
            messages = await read(subscription, 5)
            for _ in range(3):
                await ground.elect_again()
                await ground.write(10)
                messages += await read(subscription, 10)
            messages += await read(subscription, 5)
            assert values(messages) == ground.written[0]
            (feed,) = streams_of(subscription).feeds
            assert feed.position.leader_epoch == 3

    play(story)


def test_a_subscription_with_an_outdated_leader_epoch_looks_up_the_leader(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "millstream.sdk.subscription")

    async def story(ground: Ground) -> None:
        await ground.write(10)
        elect_after_lookup(ground, monkeypatch)
        async with ground.client.subscription(TOPIC, start=3) as subscription:
            assert values(await read(subscription, 7)) == ground.written[0][3:]

    play(story)
    assert "FENCED_LEADER_EPOCH" in caplog.text


def test_a_subscription_continues_after_the_broker_was_unreachable() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.subscription(TOPIC, start="beginning") as subscription:
            await ground.write(10)
            messages = await read(subscription, 10)
            ground.network.block("reader")
            await ground.write(10)
            assert await subscription.poll(timeout=30) == []
            ground.network.unblock("reader")
            messages += await read(subscription, 10)
            assert values(messages) == ground.written[0]

    play(story)


def test_a_silently_dead_connection_is_detected(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "millstream.sdk.subscription")

    async def story(ground: Ground) -> None:
        async with ground.client.subscription(TOPIC, start="beginning") as subscription:
            await ground.write(10)
            messages = await read(subscription, 10)
            ground.network.block("reader")
            await asyncio.sleep(60)
            assert any(text.startswith("stream lost") for text in caplog.messages)
            ground.network.unblock("reader")
            await ground.write(10)
            messages += await read(subscription, 10)
            assert values(messages) == ground.written[0]

    play(story)


def test_a_bug_in_the_subscription_is_raised_in_poll_as_client_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any) -> None:
        raise ZeroDivisionError("nobody thought of it")

    async def story(ground: Ground) -> None:
        async with ground.client.subscription(TOPIC, start="beginning") as subscription:
            await ground.write(10)
            await read(subscription, 10)
            monkeypatch.setattr(StreamSet, "subscribe", fail)
            await ground.restart()
            for _ in range(2):
                with pytest.raises(MillstreamError, match="CLIENT_FAILED"):
                    await subscription.poll(None)

    play(story)
    assert "nobody thought of it" in caplog.text


def test_a_group_continues_at_its_offset_and_gets_unfinished_messages_again() -> None:
    async def story(ground: Ground) -> None:
        async def fail_after_three() -> None:
            async with ground.client.subscription(TOPIC, group=GROUP) as subscription:
                assert values(await read(subscription, 3)) == ground.written[0][7:10]
                raise ZeroDivisionError

        await ground.write(20)
        async with ground.client.subscription(TOPIC, start="beginning", group=GROUP) as subscription:
            await read(subscription, 7)
        assert await ground.committed() == {0: 7}
        with pytest.raises(ZeroDivisionError):
            await fail_after_three()
        assert await ground.committed() == {0: 9}
        async with ground.client.subscription(TOPIC, group=GROUP) as subscription:
            assert values(await read(subscription, 11)) == ground.written[0][9:]

    play(story)


def test_finished_messages_are_committed_after_the_auto_commit_time() -> None:
    async def story(ground: Ground) -> None:
        subscription = ground.client.subscription(TOPIC, start="beginning", group=GROUP, auto_commit=2.0)
        async with subscription:
            for _ in range(3):
                await ground.write(1)
                await subscription.poll()
            await asyncio.sleep(3)
            assert await ground.committed() == {0: 2}
            assert await subscription.poll(timeout=3.0) == []
            assert await ground.committed() == {0: 3}

    play(story)


def test_a_commit_refused_because_the_group_has_members_is_raised() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(20)
        async with ground.client.consumer(TOPIC, group=GROUP) as member:
            await member.poll(timeout=1.0)
            async with ground.client.subscription(TOPIC, start="beginning", group=GROUP) as subscription:
                assert values(await subscription.poll(timeout=10.0)) == ground.written[0]
                with pytest.raises(MillstreamError) as refused:
                    await subscription.poll(timeout=10.0)
                assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID

    play(story)


@pytest.mark.parametrize("group", [None, GROUP])
def test_a_full_window_waits_for_explicit_commits_when_auto_commit_is_off(group: str | None) -> None:
    async def story(ground: Ground) -> None:
        for _ in range(40):
            await ground.write(1)
        subscription = ground.client.subscription(
            TOPIC, start="beginning", group=group, window_messages=10, auto_commit=None
        )
        async with subscription:
            messages = await read(subscription, 10)
            assert await subscription.poll(timeout=30.0) == []
            await subscription.commit(messages[3])
            assert await subscription.poll(timeout=30.0) == []
            await subscription.commit({TopicPartition(TOPIC, 0): 5})
            messages += await read(subscription, 5)
            await subscription.commit()
            messages += await read(subscription, 10)
            assert values(messages) == ground.written[0][:25]
            with pytest.raises(MillstreamError) as refused:
                await subscription.commit({TopicPartition("other", 0): 5})
            assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert await ground.committed() == ({} if group is None else {0: 15})

    play(story)


@pytest.mark.parametrize(("out_of_range", "goes_on_at"), [("error", None), ("nearest", 15), ("latest", 20)])
def test_messages_removed_before_delivery_are_handled_by_out_of_range(
    out_of_range: str, goes_on_at: int | None
) -> None:
    async def story(ground: Ground) -> None:
        for _ in range(20):
            await ground.write(1)
        subscription = ground.client.subscription(
            TOPIC, start="beginning", window_messages=5, auto_commit=None, out_of_range=out_of_range
        )
        async with subscription:
            await read(subscription, 5)
            await ground.client.admin.delete_records({TopicPartition(TOPIC, 0): 15})
            await subscription.commit()
            if goes_on_at is None:
                with pytest.raises(MillstreamError) as refused:
                    await subscription.poll(timeout=10.0)
                assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
                return
            await ground.write(1)
            assert (await subscription.poll())[0].offset == goes_on_at

    play(story)


def test_a_deleted_topic_is_raised_in_poll() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(5)
        async with ground.client.subscription(TOPIC, start="beginning") as subscription:
            await read(subscription, 5)
            await ground.client.delete_topic(TOPIC)
            with pytest.raises(MillstreamError) as refused:
                await subscription.poll(timeout=60.0)
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            now_s = asyncio.get_running_loop().time()
            with pytest.raises(MillstreamError):
                await subscription.poll(timeout=60.0)
            assert asyncio.get_running_loop().time() - now_s > 59

    play(story)


def test_a_deleted_topic_does_not_end_a_subscription_to_others(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        await ground.client.create_topic("others", partitions=1)
        await ground.write(5)
        async with ground.client.subscription([TOPIC, "others"], start="beginning") as subscription:
            await read(subscription, 5)
            await ground.client.delete_topic(TOPIC)
            for number in range(30):
                await ground.writer.put("others", [b"%d" % number], partition=0)
                (message,) = await read(subscription, 1)
                assert message.value == b"%d" % number
                assert await subscription.poll(timeout=5.0) == []
            assert subscription.health().is_reachable
            assert f"these topics do not exist any more: {TOPIC}" in str(subscription.health())
            assert sum("topic missing" in record.getMessage() for record in caplog.records) == 1
            await ground.client.create_topic(TOPIC, partitions=1)
            ground.written.clear()
            await ground.write(7)
            assert values(await read(subscription, 7), 0) == ground.written[0]
            assert subscription.health().reason == ""

    play(story)


def test_added_partitions_are_pushed_from_their_beginning() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.subscription(TOPIC) as subscription:
            await ground.client.admin.create_partitions(TOPIC, 3)
            await ground.write(5, (1, 2))
            messages = await read(subscription, 10)
            assert values(messages, 1) + values(messages, 2) == ground.written[1] + ground.written[2]

    play(story)


@pytest.mark.parametrize(("times", "is_raised"), [(FEW_ATTEMPTS - 1, False), (1_000, True)])
def test_damaged_batches_are_requested_again_and_raised_if_still_damaged(
    times: int, is_raised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = times

    def damaged(*args: Any, **more: Any) -> list[Message]:
        nonlocal left
        left -= 1
        if left >= 0:
            raise CorruptBatch("a bit has turned")
        return decode_messages(*args, **more)

    monkeypatch.setattr(fetched_chunk, "decode_messages", damaged)
    monkeypatch.setattr(undecodable_batches, "has_right_checksum", lambda *_: False)

    async def story(ground: Ground) -> None:
        await ground.write(5)
        async with ground.client.subscription(TOPIC, start="beginning") as subscription:
            if is_raised:
                with pytest.raises(CorruptBatch):
                    await subscription.poll(timeout=60.0)
            else:
                assert values(await read(subscription, 5)) == ground.written[0]

    play(story)


def test_a_second_concurrent_poll_is_refused() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.subscription(TOPIC) as subscription:
            first = asyncio.ensure_future(subscription.poll(timeout=5.0))
            await asyncio.sleep(0.1)
            with pytest.raises(MillstreamError) as refused:
                await subscription.poll()
            assert refused.value.code is ErrorCode.CLIENT_MISUSED
            assert await first == []

    play(story)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"out_of_range": "never"}, "out_of_range='never'"),
        ({"start": "yesterday"}, "start: 'yesterday' is not a start position"),
        ({"auto_commit": -1}, "auto_commit=-1"),
        ({"group": 5}, "group=5"),
        ({"start": {"a": 1}}, "start="),
        ({"window_bytes": 10**12}, "window_bytes=1000000000000"),
        ({"window_messages": "x"}, "window_messages='x'"),
        ({"window_messages": 0}, "WindowMessages is 0"),
        ({"share_percent": 500}, "share_percent=500"),
        ({"window_bytes": 10}, "WindowBytes is 10"),
        ({"share_percent": 0}, "SharePercent is 0"),
        ({"partitions": [7]}, "no partition 7"),
    ],
)
def test_invalid_subscription_options_are_refused_by_name(options: dict[str, Any], words: str) -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(MillstreamError, match=words):
            async with ground.client.subscription(TOPIC, **options):
                pass

    play(story)


def test_an_unknown_subscription_option_is_a_type_error() -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(TypeError, match="widow_bytes"):
            ground.client.subscription(TOPIC, widow_bytes=10)  # type: ignore[call-overload]

    play(story)
