"""Tests consumers without a group against a whole broker, in simulated time."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.sdk.simulated_consumers import LONG_S, TOPIC, Ground, every, place, play, read, values
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.message import Message
from millstream.sdk.consuming.health import ConsumerActivity

BEGIN_MS = 1_700_000_000_000


def test_iteration_yields_complete_messages_in_offset_order() -> None:
    async def story(ground: Ground) -> None:
        await ground.writer.put(
            TOPIC,
            [b"1", None],
            keys=[b"k", None],
            headers=[[("a", None)], None],
            timestamps_ms=BEGIN_MS,
            partition=0,
            message_ids=[b"id-1", None],
        )
        consumer = ground.client.consumer(TOPIC, start="beginning")
        first, second = await read(consumer, 2)
        assert first == Message(TOPIC, 0, 0, BEGIN_MS, b"k", b"1", (("a", None), ("millstream.id", b"id-1")))
        assert first.time == datetime.fromtimestamp(BEGIN_MS / 1000, UTC)
        assert (first.message_id, second.message_id) == (b"id-1", b"~0.0.0.0.0")
        assert (second.offset, second.key, second.value) == (1, None, None)

    play(story)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("beginning", [0, 1, 2, 3, 4]),
        ("Earliest", [0, 1, 2, 3, 4]),
        ("latest", []),
        ("end", []),
        (None, []),
        (3, [3, 4]),
        ({0: 2}, [2, 3, 4]),
        ({place(): 4}, [4]),
        ({7: 4}, []),
        (datetime.fromtimestamp(BEGIN_MS / 1000 + 2, UTC), [2, 3, 4]),
        (BEGIN_MS / 1000 + 1.5, [2, 3, 4]),
        (datetime.fromtimestamp(BEGIN_MS / 1000 + 9, UTC), []),
    ],
)
def test_consumer_starts_at_the_start_position(start: Any, expected: list[int]) -> None:
    async def story(ground: Ground) -> None:
        times = [BEGIN_MS + 1000 * number for number in range(5)]
        await ground.writer.put(TOPIC, [b"%d" % number for number in range(5)], timestamps_ms=times, partition=0)
        async with ground.client.consumer(TOPIC, start=start) as consumer:
            await ground.writer.put(TOPIC, [b"end"], partition=0)
            found = await read(consumer, len(expected) + 1)
        assert values(found) == [*(b"%d" % number for number in expected), b"end"]

    play(story)


def test_a_timedelta_start_counts_back_from_now() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(3)
        await asyncio.sleep(60)
        await ground.write(2)
        for ago in (timedelta(seconds=30), timedelta(seconds=-30), "30s"):
            found = await every(ground.client.consumer(TOPIC, start=ago, stop="latest"))
            assert values(found) == ground.written[0][3:]

    play(story)


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        ("beginning", "latest", range(10)),
        (2, 7, range(2, 7)),
        (2, {0: 4}, range(2, 4)),
        ("beginning", datetime.fromtimestamp(BEGIN_MS / 1000 + 6, UTC), range(6)),
        (5, 5, ()),
        (7, 3, ()),
    ],
)
def test_consumer_ends_at_its_stop_position(start: Any, stop: Any, expected: Any) -> None:
    async def story(ground: Ground) -> None:
        times = [BEGIN_MS + 1000 * number for number in range(10)]
        await ground.writer.put(TOPIC, [b"%d" % number for number in range(10)], timestamps_ms=times, partition=0)
        consumer = ground.client.consumer(TOPIC, start=start, stop=stop)
        assert [message.offset for message in await every(consumer)] == list(expected)
        assert await consumer.poll(LONG_S) == []
        assert consumer.health().doing is ConsumerActivity.FINISHED
        for form in ("batches", "arrow"):
            consumer = ground.client.consumer(TOPIC, start=start, stop=stop)
            sizes = [_size(batch) async for batch in getattr(consumer, form)()]
            assert sum(sizes) == len(expected)

    play(story)


def _size(batch: Any) -> int:
    return batch.num_rows if hasattr(batch, "num_rows") else len(batch.messages)


def test_consumer_waits_for_a_stop_offset_after_the_log_end() -> None:
    async def story(ground: Ground) -> None:
        task = asyncio.create_task(every(ground.client.consumer(TOPIC, start=0, stop=15)))
        await ground.write(10)
        await asyncio.sleep(20)
        assert not task.done()
        await ground.write(10)
        assert values(await task) == ground.written[0][:15]

    play(story)


def test_consumer_waits_for_a_start_offset_after_the_log_end() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(3)
        consumer = ground.client.consumer(TOPIC, start=5)
        assert await consumer.poll(20.0) == []
        await ground.write(4)
        assert values(await consumer.poll()) == ground.written[0][5:]

    play(story)


def test_long_poll_returns_as_soon_as_a_message_is_written() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.consumer(TOPIC) as consumer:
            loop = asyncio.get_running_loop()
            task = asyncio.create_task(consumer.poll(LONG_S))
            await asyncio.sleep(60)
            before_s = loop.time()
            await ground.write(1)
            assert len(await task) == 1
            assert loop.time() - before_s < 1

    play(story)


def test_poll_respects_max_messages_and_returns_nothing_after_its_timeout() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10, partitions=[0, 1])
        consumer = ground.client.consumer(TOPIC, start="beginning")
        sizes = [len(await consumer.poll(1.0, max_messages=3)) for _ in range(10)]
        assert sum(sizes) == 20
        assert max(sizes) == 3
        assert sizes[-1] == 0

    play(story, partitions=2)


def test_a_batch_holds_one_partition_and_its_next_offset() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(4, partitions=[0, 1])
        consumer = ground.client.consumer(TOPIC, start="beginning", stop="latest")
        found = [batch async for batch in consumer.batches()]
        assert sorted((batch.partition, len(batch.messages), batch.next_offset) for batch in found) == [
            (0, 4, 4),
            (1, 4, 4),
        ]
        assert all(message.partition == batch.partition for batch in found for message in batch.messages)

    play(story, partitions=2)


def test_get_reads_messages_at_an_offset_without_a_position() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        consumer = ground.client.consumer(TOPIC)
        assert values(await consumer.get(TOPIC, 0, 4, max_messages=2)) == ground.written[0][4:6]
        assert values(await consumer.get(TOPIC, 0, 4)) == ground.written[0][4:]
        assert await consumer.get(TOPIC, 0, 10, timeout=1) == []
        await ground.client.admin.delete_records({place(): 5})
        with pytest.raises(MillstreamError, match="does not exist any more"):
            await consumer.get(TOPIC, 0, 4)
        assert consumer.assignment == ()  # `get` does not start the consumer.

    play(story)


def test_position_and_lag_follow_the_messages_taken() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            assert consumer.position(TOPIC, 0) == 0
            await read(consumer, 4)
            assert consumer.position(TOPIC, 0) == 4
            assert await consumer.lag() == {place(): 6}
            assert len(await consumer.poll()) == 6
            assert consumer.position(TOPIC, 0) == 10
            assert consumer.position(TOPIC, 1) is None

    play(story)


def test_seek_discards_buffered_messages_and_continues_at_the_offset() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            seen = []
            async for message in consumer:
                seen.append(message.offset)
                if len(seen) == 3:
                    await consumer.seek(8, place())
                if message.offset == 9:
                    break
            assert seen == [0, 1, 2, 8, 9]
            await consumer.seek("beginning")
            assert [message.offset for message in await read(consumer, 2)] == [0, 1]
            await consumer.seek({0: 5})
            assert (await consumer.poll())[0].offset == 5
            with pytest.raises(MillstreamError, match="does not read orders-7"):
                await consumer.seek(0, place(7))

    play(story)


def test_paused_partitions_deliver_nothing_until_resumed() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(5, partitions=[0, 1])
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            await consumer.pause(place(0))
            assert {message.partition for message in await read(consumer, 5)} == {1}
            assert await consumer.poll(10.0) == []
            await consumer.pause()
            assert await consumer.poll(10.0) == []
            assert consumer.health().doing is ConsumerActivity.IDLE
            await consumer.resume((TOPIC, 0))
            assert values(await read(consumer, 5)) == ground.written[0]

    play(story, partitions=2)


def test_consumer_reads_partitions_added_to_its_topic() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.consumer(TOPIC) as consumer:
            await ground.client.admin.create_partitions(TOPIC, 2)
            await ground.write(3, partitions=[1])
            assert values(await read(consumer, 3)) == ground.written[1]

    play(story)


def test_a_deleted_offset_raises_when_out_of_range_is_error() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        await ground.client.admin.delete_records({place(): 6})
        async with ground.client.consumer(TOPIC, start=2, stop="latest", out_of_range="error") as consumer:
            with pytest.raises(MillstreamError, match="offset 2 does not exist any more") as caught:
                await consumer.poll()
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    play(story)


def test_consumer_continues_at_the_nearest_offset_after_a_deletion() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        await ground.client.admin.delete_records({place(): 6})
        consumer = ground.client.consumer(TOPIC, start=2, stop="latest")
        assert values(await every(consumer)) == ground.written[0][6:]

    play(story)


@pytest.mark.parametrize(
    ("topics", "options", "code"),
    [
        ((), {}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"start": "yesterday"}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"start": -1}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"start": {0: True}}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"start": datetime(2024, 1, 1)}, ErrorCode.INVALID_SETTING),  # noqa: DTZ001 - a naive datetime is the tested error
        (TOPIC, {"start": 2**70}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"start": {"a": 1}}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"start": {(TOPIC, "a"): 1}}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"partitions": 5}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"partitions": ["a"]}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"group": 5}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"group": "g", "instance_id": 5}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"group": "g", "assignor": 5}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"auto_commit": "x"}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"handler_timeout": -1}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"prefetch_bytes": "x"}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"values": 7}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"prefetch_bytes": 1}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"group": "g", "stop": "latest"}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"out_of_range": "earliest"}, ErrorCode.INVALID_SETTING),
        (TOPIC, {"group": "g", "out_of_range": "error"}, ErrorCode.INVALID_SETTING),
        ("no good name", {}, ErrorCode.INVALID_TOPIC),
    ],
)
def test_invalid_consumer_options_are_refused_at_creation(
    topics: Any, options: dict[str, Any], code: ErrorCode
) -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(MillstreamError) as caught:
            ground.client.consumer(topics, **options)
        assert caught.value.code is code
        if code is ErrorCode.INVALID_SETTING:
            assert (list(options) or ["topics"])[-1] in str(caught.value)

    play(story)


@pytest.mark.parametrize(
    ("offset", "options", "named"),
    [(2**70, {}, "offset"), ("5", {}, "offset"), (0, {"max_bytes": 10**12}, "max_bytes")],
)
def test_get_refuses_invalid_arguments_by_name(offset: Any, options: dict[str, Any], named: str) -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.consumer(TOPIC) as consumer:
            with pytest.raises(MillstreamError, match=f"{named}=") as caught:
                await consumer.get(TOPIC, 0, offset, **options)
            assert caught.value.code is ErrorCode.INVALID_SETTING

    play(story)


def test_an_unknown_option_is_named_in_the_error() -> None:
    async def story(ground: Ground) -> None:
        wrong: Any = {"begin": "latest"}
        with pytest.raises(TypeError, match="unexpected keyword argument 'begin'"):
            ground.client.consumer(TOPIC, **wrong)

    play(story)


@pytest.mark.parametrize("options", [{}, {"partitions": [0, 5]}])
def test_start_fails_when_a_topic_or_partition_is_missing(options: dict[str, Any]) -> None:
    async def story(ground: Ground) -> None:
        name = TOPIC if options else "missing"
        with pytest.raises(MillstreamError) as caught:
            async with ground.client.consumer(name, **options):
                pass
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


def test_poll_raises_when_the_topic_is_deleted() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.consumer(TOPIC) as consumer:
            assert await consumer.poll(1.0) == []
            await ground.client.delete_topic(TOPIC)
            with pytest.raises(MillstreamError) as caught:
                await consumer.poll(LONG_S)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


@pytest.mark.parametrize("timeout_s", [0.0, 0.1, 1.0, LONG_S])
def test_every_poll_raises_while_all_topics_are_deleted_and_not_paused(timeout_s: float) -> None:
    async def story(ground: Ground) -> None:
        await ground.client.create_topic("others")
        async with ground.client.consumer([TOPIC, "others"], start="beginning") as consumer:
            for topic in (TOPIC, "others"):
                await ground.client.delete_topic(topic)
            with pytest.raises(MillstreamError):
                await consumer.poll(LONG_S)
            for _ in range(20):
                with pytest.raises(MillstreamError) as caught:
                    await consumer.poll(timeout_s)
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await asyncio.sleep(10)
            await consumer.pause()
            assert await consumer.poll(timeout_s) == []
            await consumer.resume()
            with pytest.raises(MillstreamError):
                await read(consumer, 1)

    play(story)


@pytest.mark.parametrize("timeout_s", [0.1, LONG_S])
def test_prefetched_messages_of_a_deleted_topic_are_delivered(timeout_s: float) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            assert len(await consumer.poll(LONG_S, max_messages=3)) == 3
            await ground.client.delete_topic(TOPIC)
            await asyncio.sleep(10)
            found: list[bytes] = []
            for _ in range(10):
                with suppress(MillstreamError):
                    found += values(await consumer.poll(timeout_s, max_messages=3))
            assert found == ground.written[0][3:]
            with pytest.raises(MillstreamError) as caught:
                await consumer.poll(timeout_s)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


def test_a_concurrent_poll_is_refused_as_misuse() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.consumer(TOPIC) as consumer:
            task = asyncio.create_task(consumer.poll(10.0))
            await asyncio.sleep(1)
            with pytest.raises(MillstreamError) as caught:
                await consumer.poll(10.0)
            assert caught.value.code is ErrorCode.CLIENT_MISUSED
            assert await task == []

    play(story)


def test_a_thousand_partitions_are_polled_over_one_connection() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            await ground.write(2, partitions=range(0, 1000, 100))
            assert len(await read(consumer, 20)) == 20
            assert ground.network.cut("reader") <= 4  # One of the consumer and two of its client.

    play(story, partitions=1000)


def test_prefetched_bytes_stay_within_the_limit() -> None:
    async def story(ground: Ground) -> None:
        for _ in range(30):
            await ground.writer.put(TOPIC, [b"x" * 30_000], partition=0)
        async with ground.client.consumer(TOPIC, start="beginning", prefetch_bytes=200_000) as consumer:
            assert len(await read(consumer, 1)) == 1
            await asyncio.sleep(60)
            assert 0 < consumer.health().buffered_bytes <= 200_000
            assert len(await read(consumer, 29)) == 29

    play(story)


def test_consumer_waits_for_an_unreachable_broker_and_reports_it() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(3)
        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            assert len(await read(consumer, 3)) == 3
            await ground.node.stop()
            assert await consumer.poll(20.0) == []
            task = asyncio.create_task(consumer.poll(LONG_S))
            await asyncio.sleep(1)
            health = consumer.health()
            assert health.doing is ConsumerActivity.UNREACHABLE
            assert health.since_s >= 15
            assert "NETWORK_EXCEPTION" in str(health)
            ground.node = await ground.machine.start()
            await ground.write(2)
            assert values(await task) == ground.written[0][3:]

    play(story)


STEPS = st.lists(
    st.sampled_from(["write", "poll", "read", "cut", "block", "restart", "pause", "resume", "wait", "seek", "arrow"]),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.randoms(use_true_random=False))
def test_consumer_delivers_each_message_once_in_order_under_faults(steps: list[str], random: Any) -> None:
    async def story(ground: Ground) -> None:
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}

        def note(messages: list[Message]) -> None:
            for message in messages:
                seen[message.partition].append(message.offset)
                assert message.value == ground.written[message.partition][message.offset]

        async with ground.client.consumer(TOPIC, start="beginning") as consumer:
            for step in steps:
                match step:
                    case "write":
                        await ground.write(random.randint(1, 20), partitions=[random.randrange(3)])
                    case "poll":
                        note(await consumer.poll(0.5, max_messages=random.choice([1, 3, 1000])))
                    case "read":
                        left = sum(map(len, ground.written.values())) - sum(map(len, seen.values()))
                        if left and consumer.health().doing is not ConsumerActivity.PAUSED and "pause" not in steps:
                            note(await read(consumer, random.randint(1, left)))
                    case "arrow":
                        batch = await consumer.poll_arrow(0.5)
                        if batch is not None:
                            seen[batch.column("partition")[0].as_py()] += batch.column("offset").to_pylist()
                    case "cut":
                        ground.network.cut("reader")
                    case "block":
                        ground.network.block("reader")
                        await asyncio.sleep(random.choice([1, 30]))
                        ground.network.unblock("reader")
                    case "restart":
                        await ground.restart()
                    case "pause":
                        await consumer.pause(place(random.randrange(3)))
                    case "resume":
                        await consumer.resume()
                    case "seek":
                        partition = random.randrange(3)
                        position = consumer.position(TOPIC, partition)
                        assert position is not None
                        await consumer.seek(position, place(partition))
                    case _:
                        await asyncio.sleep(random.random() * 10)
                for partition in range(3):
                    assert consumer.position(TOPIC, partition) == len(seen[partition])
            await consumer.resume()
            left = sum(map(len, ground.written.values())) - sum(map(len, seen.values()))
            if left:
                note(await read(consumer, left))
        assert seen == {partition: list(range(len(ground.written.get(partition, [])))) for partition in range(3)}

    play(story, partitions=3)
