"""Tests readers whose topic is deleted and created again: offsets of the old topic are not used in the new one."""

import asyncio
from typing import Any

import pytest

from builders.sdk.simulated_consumers import GROUP, LONG_S, TOPIC, Ground, place, play, read, values
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.consuming.start_positions import StartPositions
from millstream.sdk.subscribing.stream import SubscriptionStream


async def recreate(ground: Ground, count: int) -> None:
    await ground.client.delete_topic(TOPIC)
    await ground.client.create_topic(TOPIC, partitions=1)
    ground.written.clear()
    await ground.write(count)


@pytest.mark.parametrize("pause", [False, True], ids=["while it polls", "while it is paused"])
@pytest.mark.parametrize("kind", ["consumer", "subscription"])
def test_a_reader_without_a_group_raises_when_its_topic_is_recreated(kind: str, pause: bool) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        make: Any = getattr(ground.client, kind)
        async with make(TOPIC, start="beginning") as reader:
            assert len(await read(reader, 10)) == 10
            if pause and kind == "consumer":
                await reader.pause()
                await asyncio.sleep(LONG_S)
            await recreate(ground, 20)
            if pause and kind == "consumer":
                await reader.resume()
            for _ in range(2):
                with pytest.raises(MillstreamError, match="created again") as caught:
                    await reader.poll(LONG_S)
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


@pytest.mark.parametrize("partitions", [None, [0]])
@pytest.mark.parametrize("group", [None, GROUP])
def test_a_deleted_topic_does_not_delay_the_others_and_is_read_when_recreated(
    caplog: pytest.LogCaptureFixture, group: str | None, partitions: list[int] | None
) -> None:
    async def story(ground: Ground) -> None:
        await ground.client.create_topic("others", partitions=1)
        await ground.write(10)
        options: Any = {"group": group} if group else {"partitions": partitions}
        async with ground.client.consumer([TOPIC, "others"], start="beginning", **options) as consumer:
            await read(consumer, 10)
            await ground.client.delete_topic(TOPIC)
            for number in range(20):
                await ground.writer.put("others", [b"%d" % number], partition=0)
                async with asyncio.timeout(10):
                    assert values(await read(consumer, 1)) == [b"%d" % number]
                await asyncio.sleep(3)
            assert consumer.health().reason == f"these topics do not exist any more: {TOPIC}"
            assert sum("topic missing" in record.getMessage() for record in caplog.records) == 1
            await ground.client.create_topic(TOPIC, partitions=1)
            ground.written.clear()
            await ground.write(20)
            found: list[bytes] = []
            async with asyncio.timeout(LONG_S):
                while len(found) < 20:
                    found += values(await consumer.poll(1))
            assert found == ground.written[0]
            assert consumer.position(TOPIC, 0) == 20
            await ground.writer.put("others", [b"last"], partition=0)
            assert values(await read(consumer, 1)) == [b"last"]
            assert consumer.health().reason == ""

    play(story)


def test_a_group_consumer_reports_the_deletion_of_its_only_topic(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        async with ground.client.consumer(TOPIC, group=GROUP, start="beginning") as consumer:
            await read(consumer, 10)
            await ground.client.delete_topic(TOPIC)
            async with asyncio.timeout(10):
                while "any more" not in consumer.health().reason:
                    assert await consumer.poll(1) == []
            assert consumer.health().reason == f"these topics do not exist any more: {TOPIC}"
            (line,) = [each.getMessage() for each in caplog.records if "topic missing" in each.getMessage()]
            assert line == f"topic missing group={GROUP} topic={TOPIC}"
            await ground.client.create_topic(TOPIC, partitions=1)
            ground.written.clear()
            await ground.write(5)
            assert values(await read(consumer, 5)) == ground.written[0]
            assert consumer.health().reason == ""

    play(story)


@pytest.mark.parametrize("in_progress", [0, 5])
def test_a_group_starts_at_its_start_position_in_a_recreated_topic(in_progress: int) -> None:
    async def story(ground: Ground) -> None:
        gone: list[Any] = []
        await ground.write(10 + in_progress)
        options: Any = {"group": GROUP, "start": "beginning", "on_lost": gone.extend, "on_revoked": gone.extend}
        async with ground.client.consumer(TOPIC, auto_commit=0.1, **options) as consumer:
            await read(consumer, 10)
            await recreate(ground, 20)
            found = values(await consumer.poll(LONG_S))
            while not found or found[-1] != ground.written[0][-1]:
                found += values(await consumer.poll(LONG_S))
            assert found[-20:] == ground.written[0]
            assert consumer.position(TOPIC, 0) == 20
        assert gone == [place()]
        assert await ground.committed() == {0: 20}

    play(story)


def test_resubscribing_to_a_recreated_topic_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(ground: Ground) -> None:
        subscribe = SubscriptionStream.open

        async def subscribe_late(self: SubscriptionStream, *args: Any) -> None:
            monkeypatch.setattr(SubscriptionStream, "open", subscribe)
            await recreate(ground, 20)
            await subscribe(self, *args)

        await ground.write(10)
        async with ground.client.subscription(TOPIC, start="beginning") as subscription:
            assert values(await subscription.poll(LONG_S)) == ground.written[0]
            monkeypatch.setattr(SubscriptionStream, "open", subscribe_late)
            ground.network.cut("reader")
            for _ in range(2):
                with pytest.raises(MillstreamError, match="created again") as caught:
                    await subscription.poll(LONG_S)
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


@pytest.mark.parametrize("group", [None, GROUP])
def test_a_start_offset_found_before_a_recreation_is_not_used(
    group: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(ground: Ground) -> None:
        find = StartPositions.find

        async def find_then_recreate(self: StartPositions, *args: Any) -> Any:
            monkeypatch.setattr(StartPositions, "find", find)
            found = await find(self, *args)
            await recreate(ground, 20)
            return found

        await ground.write(10)
        if group is not None:
            async with ground.client.consumer(TOPIC, start="beginning", group=group) as consumer:
                await read(consumer, 10)
        monkeypatch.setattr(StartPositions, "find", find_then_recreate)
        consumer = ground.client.consumer(TOPIC, start="beginning" if group else "latest", group=group)
        async with consumer:
            if group is None:
                with pytest.raises(MillstreamError, match="created again"):
                    await consumer.poll(LONG_S)
            else:
                assert values(await read(consumer, 20)) == ground.written[0]

    play(story)


@pytest.mark.parametrize("partitions", [1, 3], ids=["of as many partitions", "of fewer partitions"])
@pytest.mark.parametrize("in_progress", [False, True])
def test_iterators_start_again_in_a_recreated_topic(in_progress: bool, partitions: int) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        async with ground.client.iterators(TOPIC, group=GROUP) as iterators:
            assert await iterators.poll(LONG_S) is not None
            if not in_progress:
                assert await iterators.poll(0.5) is None
                assert await ground.committed() == {0: 10}
            await recreate(ground, 20)
            found: list[bytes] = []
            async with asyncio.timeout(LONG_S):
                while len(found) < 20:
                    batch = await iterators.poll()
                    found += [] if batch is None else values(batch.messages)
            assert found == ground.written[0]
        assert await ground.committed() == {0: 20}

    play(story, partitions=partitions)
