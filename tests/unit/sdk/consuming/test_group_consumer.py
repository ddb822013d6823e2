"""Tests consumers of a group against a whole broker, in simulated time."""

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from builders.loops import for_each
from builders.sdk.message_values import value_of
from builders.sdk.simulated_consumers import (
    GROUP,
    LONG_S,
    TOPIC,
    Ground,
    Worker,
    numbers,
    place,
    play,
    read,
    until,
    values,
)
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_results import CommittedOffset
from millstream.sdk.aio.consumer import AsyncConsumer
from millstream.sdk.consuming.health import ConsumerActivity, Health

ALL = (0, 1, 2, 3)


def alone(ground: Ground, **options: Any) -> AsyncConsumer:
    return ground.client.consumer(TOPIC, **({"group": GROUP, "start": "beginning"} | options))


def by_hand(ground: Ground, **options: Any) -> AsyncConsumer:
    return alone(ground, auto_commit=None, **options)


def play_four(story: Any) -> None:
    play(story, partitions=4)


def test_a_group_continues_at_its_committed_offsets() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(partitions=ALL)
        async with alone(ground) as consumer:
            assert numbers(await read(consumer, 40)) == list(range(40))
        assert await ground.committed() == {0: 10, 1: 10, 2: 10, 3: 10}
        await ground.write(partitions=ALL)
        async with alone(ground) as consumer:
            assert numbers(await read(consumer, 40)) == list(range(40, 80))

    play_four(story)


def test_a_member_gets_its_partitions_before_the_first_heartbeat_interval() -> None:
    async def story(ground: Ground) -> None:
        loop = asyncio.get_running_loop()
        await ground.write(1)
        for _ in range(3):
            begun_s = loop.time()
            async with alone(ground, auto_commit=None) as consumer:
                assert len(await read(consumer, 1)) == 1
                interval_s = consumer._engine.membership.core.interval_ms / 1000
            assert loop.time() - begun_s < interval_s / 2

    play(story)


@pytest.mark.parametrize(("options", "count"), [({}, 3), ({"start": "end"}, 0), ({"start": {(TOPIC, 1): 2}}, 3)])
def test_a_group_without_commits_starts_at_the_beginning_by_default(options: dict[str, Any], count: int) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(3)
        async with ground.client.consumer(TOPIC, group=GROUP, **options) as consumer:
            assert len(await consumer.poll(5.0)) == count
            await ground.write(1)
            assert len(await read(consumer, 1)) == 1

    play(story)


@pytest.mark.parametrize("start", ["beginning", "latest"])
def test_a_group_reads_an_added_partition_from_its_beginning(start: str) -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.consumer(TOPIC, group=GROUP, start=start) as consumer:
            assert await consumer.poll(1.0) == []
            await ground.client.admin.create_partitions(TOPIC, 2)
            await ground.write(3, partitions=[1])
            assert values(await read(consumer, 3)) == ground.written[1]

    play(story)


def test_finished_messages_are_committed_at_the_auto_commit_interval() -> None:
    async def story(ground: Ground) -> None:
        await ground.write()
        async with alone(ground, auto_commit=2.0) as consumer:
            await read(consumer, 10)
            assert await consumer.poll(3.0) == []
            assert (await ground.committed())[0] == 10

    play_four(story)


def test_auto_commit_runs_while_buffered_messages_are_left() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(100)
        async with alone(ground, auto_commit=2.0) as consumer:
            async for message in consumer:
                await asyncio.sleep(1)
                if message.offset == 20:
                    break
            assert 15 <= (await ground.committed())[0] <= 20

    play_four(story)


def test_uncommitted_messages_are_redelivered_without_auto_commit() -> None:
    async def story(ground: Ground) -> None:
        await ground.write()
        async with by_hand(ground) as consumer:
            await read(consumer, 10)
        assert await ground.committed() == {}
        async with by_hand(ground) as consumer:
            await read(consumer, 10)
            await consumer.commit()
        assert (await ground.committed())[0] == 10

    play_four(story)


def test_commit_accepts_a_message_or_offsets() -> None:
    async def story(ground: Ground) -> None:
        await ground.write()
        async with by_hand(ground) as consumer:
            await read(consumer, 10)
            await consumer.commit({(TOPIC, 0): 4})
        async with by_hand(ground) as consumer:
            found = await read(consumer, 6)
            assert numbers(found) == [4, 5, 6, 7, 8, 9]
            await consumer.commit(found[2])
        assert (await ground.committed())[0] == 7

    play_four(story)


def test_commit_covers_exactly_the_messages_taken() -> None:
    async def story(ground: Ground) -> None:
        await ground.write()
        async with by_hand(ground) as consumer:
            await read(consumer, 3)
            await consumer.commit()
            assert (await ground.committed())[0] == 3
            await consumer.poll(1.0, max_messages=2)
            await consumer.commit()
            assert (await ground.committed())[0] == 5
            batch = await consumer.poll_arrow(1.0)
            assert batch is not None
            assert batch.num_rows == 5
            await consumer.commit()
            assert (await ground.committed())[0] == 10

    play_four(story)


def test_a_failed_handler_commits_only_the_messages_before() -> None:
    async def story(ground: Ground) -> None:
        await ground.write()

        async def fail_at_the_fourth() -> None:
            async with alone(ground) as consumer:
                async for message in consumer:
                    if message.offset == 3:
                        raise RuntimeError

        with pytest.raises(RuntimeError):
            await fail_at_the_fourth()
        assert (await ground.committed())[0] == 3

    play_four(story)


def test_commit_without_a_group_is_refused() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.consumer(TOPIC) as consumer:
            with pytest.raises(MillstreamError) as caught:
                await consumer.commit()
            assert caught.value.code is ErrorCode.INVALID_REQUEST

    play_four(story)


def test_members_share_partitions_and_read_each_message_once() -> None:
    async def story(ground: Ground) -> None:
        first = await Worker(ground, "first").start()
        await ground.write(partitions=ALL)
        await until(lambda: len(first.values) == 40)
        second = await Worker(ground, "second").start()
        await until(lambda: len(second.partitions) == len(first.partitions) == 2)
        await ground.write(partitions=ALL)
        await until(lambda: len(first.values) + len(second.values) == 80)
        await first.stop()
        await ground.write(partitions=ALL)
        await until(lambda: len(first.values) + len(second.values) == 120)
        await second.stop()
        assert numbers(first.values + second.values) == list(range(120))
        assert await ground.committed() == {0: 30, 1: 30, 2: 30, 3: 30}

    play_four(story)


def test_callbacks_report_changes_and_on_revoked_can_commit() -> None:
    async def story(ground: Ground) -> None:
        told: list[tuple[str, int]] = []

        def assigned(places: Sequence[TopicPartition]) -> None:
            told.append(("assigned", len(places)))

        async def revoked(places: Sequence[TopicPartition]) -> None:
            told.append(("revoked", len(places)))
            await first.consumer.commit()

        await ground.write(partitions=ALL)
        first = await Worker(ground, "first", auto_commit=None, on_assigned=assigned, on_revoked=revoked).start()
        await until(lambda: len(first.values) == 40)
        second = await Worker(ground, "second").start()
        await until(lambda: len(second.partitions) == 2)
        assert told == [("assigned", 4), ("revoked", 2)]
        await ground.write(partitions=ALL)
        await until(lambda: len(first.values) + len(second.values) == 80)
        await first.stop()
        await second.stop()
        assert numbers(first.values + second.values) == list(range(80))

    play_four(story)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_removed_member_reports_lost_partitions_and_rejoins(deleted: bool) -> None:
    async def story(ground: Ground) -> None:
        lost: list[TopicPartition] = []
        first = await Worker(ground, "first", on_lost=lost.extend).start()
        await until(lambda: len(first.partitions) == 4)
        ground.network.block("first")
        await asyncio.sleep(LONG_S)
        if deleted:
            await ground.client.groups.delete(GROUP)
        ground.network.unblock("first")
        await until(lambda: len(lost) == 4)
        await until(lambda: len(first.partitions) == 4)
        await first.stop()

    play_four(story)


@pytest.mark.parametrize("kind", ["on_revoked", "on_assigned"])
def test_a_hanging_callback_is_cancelled_and_the_group_continues(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        async def hang(_places: Sequence[TopicPartition]) -> None:
            await asyncio.Event().wait()

        options: Any = {kind: hang}
        first = await Worker(ground, "first", callback_timeout=5.0, **options).start()
        await until(lambda: len(first.partitions) == 4)
        second = await Worker(ground, "second").start()
        await until(lambda: len(second.partitions) == len(first.partitions) == 2)
        await ground.write(partitions=ALL)
        await until(lambda: len(first.values) + len(second.values) == 40)
        await first.stop()
        await second.stop()

    with caplog.at_level(logging.ERROR, "millstream.sdk.consumer"):
        play_four(story)
    assert f"callback cancelled callback={kind} partitions=orders-" in caplog.text
    assert "timeout_s=5" in caplog.text


def test_poll_raises_the_error_of_a_callback_and_then_continues() -> None:
    async def story(ground: Ground) -> None:
        def fail(_places: Sequence[TopicPartition]) -> None:
            raise RuntimeError("no room for these")

        async with alone(ground, on_assigned=fail) as consumer:
            with pytest.raises(RuntimeError, match="no room for these"):
                await consumer.poll(LONG_S)
            await ground.write()
            assert len(await read(consumer, 10)) == 10

    play_four(story)


def test_uncommitted_messages_of_a_dead_member_go_to_the_others() -> None:
    async def story(ground: Ground) -> None:
        first = await Worker(ground, "first").start()
        second = await Worker(ground, "second", auto_commit=None).start()
        await until(lambda: len(first.partitions) == len(second.partitions) == 2)
        await ground.write(partitions=ALL)
        await until(lambda: len(first.values) + len(second.values) == 40)
        ground.network.block("second")
        await until(lambda: len(first.values) == 40)
        assert numbers(first.values) == list(range(40))
        ground.network.unblock("second")
        await until(lambda: len(first.partitions) == len(second.partitions) == 2)
        await first.stop()
        await second.stop()

    play_four(story)


def test_a_removed_member_cannot_commit_partitions_of_its_successor() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(partitions=ALL)
        client = await ground.machine.connect("slow")
        async with client.consumer(TOPIC, group=GROUP, start="beginning", auto_commit=None) as slow:
            await slow.poll()
            other = await Worker(ground, "other").start()
            ground.network.block("slow")
            await until(lambda: len(other.values) == 40)
            ground.network.unblock("slow")
            await asyncio.sleep(LONG_S)
            with pytest.raises(MillstreamError) as caught:
                await slow.commit()
            assert caught.value.code is ErrorCode.FENCED_MEMBER_EPOCH
            assert await slow.poll(5.0) == []
            assert len(slow.assignment) == 2
            await slow.commit()
            await other.stop()
        assert await ground.committed() == {0: 10, 1: 10, 2: 10, 3: 10}
        await client.close()

    play_four(story)


def test_slow_handlers_stay_in_the_group_while_messages_are_taken() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(50)
        lost: list[TopicPartition] = []
        async with alone(ground, handler_timeout=60.0, on_lost=lost.extend) as consumer:
            offsets = []
            async for message in consumer:
                offsets.append(message.offset)
                await asyncio.sleep(40)
                if message.offset == 30:
                    for _ in range(10):
                        consumer.alive()
                        await asyncio.sleep(40)
                if message.offset == 49:
                    break
            assert offsets == list(range(50))
        assert lost == []
        assert (await ground.committed())[0] == 50

    play_four(story)


def test_a_hanging_handler_loses_its_partitions_and_rejoins() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(partitions=ALL)
        async with alone(ground, auto_commit=1.0, handler_timeout=60.0) as slow:
            assert await slow.poll(LONG_S, max_messages=1) != []
            other = await Worker(ground, "other").start()
            await asyncio.sleep(LONG_S)
            assert slow.health().is_given_up
            await until(lambda: len(other.values) == 40)
            assert await slow.poll(10.0) == []
            await until(lambda: len(other.partitions) == 2)
            assert len(slow.assignment) == 2
            assert not slow.health().is_given_up
            await other.stop()

    play_four(story)


def test_partitions_are_released_between_two_messages_of_a_slow_reader() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(100, partitions=ALL)
        seen: list[bytes] = []

        async def work() -> None:
            async with alone(ground) as slow:
                async for message in slow:
                    seen.append(value_of(message))
                    await asyncio.sleep(1)
                    if len(seen) == 60:
                        return

        task = asyncio.create_task(work())
        await asyncio.sleep(5)
        other = await Worker(ground, "other").start()
        await until(lambda: len(other.partitions) == 2)
        assert len(seen) < 60
        await task
        await until(lambda: set(seen) | set(other.values) == {b"%d" % number for number in range(400)})
        assert len(seen) + len(other.values) <= 402
        await other.stop()

    play_four(story)


def test_health_reports_the_activity_and_reason_of_a_member() -> None:
    async def story(ground: Ground) -> None:
        noticed: list[ConsumerActivity] = []

        def notice(health: Health) -> None:
            noticed.append(health.doing)
            raise RuntimeError("nobody minds")

        async with alone(ground, on_health=notice) as consumer:
            assert await consumer.poll(20.0) == []
            task = asyncio.create_task(consumer.poll(60.0))
            await asyncio.sleep(10)
            health = consumer.health()
            assert (health.doing, len(health.assignment)) == (ConsumerActivity.NO_DATA, 4)
            assert health.since_s >= 9
            assert health.heartbeat_age_s is not None
            await ground.write()
            assert len(await task) == 10
            await asyncio.sleep(7)
            assert consumer.health().doing is ConsumerActivity.IN_HANDLER
            assert 6 <= consumer.health().since_s <= 8
            assert "for 7.0 s" in str(consumer.health())
        assert noticed[0] is ConsumerActivity.JOINING
        assert {ConsumerActivity.NO_DATA, ConsumerActivity.IDLE, ConsumerActivity.IN_HANDLER} <= set(noticed)
        assert noticed[-1] is ConsumerActivity.CLOSED

    play_four(story)


def test_health_and_log_name_missing_topics_of_a_member(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ground: Ground) -> None:
        client = ground.client
        async with client.consumer(["ordres", "invoices"], group=GROUP) as consumer:
            assert await consumer.poll(1.0) == []
            task = asyncio.create_task(consumer.poll(60.0))
            await asyncio.sleep(1)
            assert str(consumer.health()).startswith("waiting for the group to give it partitions")
            assert consumer.health().reason == "these topics do not exist yet: invoices, ordres"
            await client.create_topic("ordres")
            await until(lambda: consumer.health().assignment != ())
            assert consumer.health().reason == ""
            task.cancel()
        assert f"subscribed topics do not exist yet group={GROUP} topics=invoices,ordres" in caplog.text

    play_four(story)


def test_a_member_continues_after_broker_restarts() -> None:
    async def story(ground: Ground) -> None:
        worker = await Worker(ground, "worker").start()
        for _ in range(3):
            await ground.write(partitions=ALL)
            await until(lambda: len(worker.values) == ground.count)
            await ground.restart(20.0)
        await ground.write(partitions=ALL)
        await until(lambda: len(worker.values) >= ground.count)
        await worker.stop()
        assert set(numbers(worker.values)) == set(range(160))
        assert await ground.committed() == {0: 40, 1: 40, 2: 40, 3: 40}

    play_four(story)


def test_a_member_reads_topics_and_partitions_added_later() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.consumer([TOPIC, "later"], group=GROUP, start="beginning") as consumer:
            assert await consumer.poll(1.0) == []
            await ground.client.create_topic("later")
            await ground.writer.put("later", [b"1"])
            assert values(await read(consumer, 1)) == [b"1"]
            await ground.client.admin.create_partitions(TOPIC, 6)
            await ground.writer.put(TOPIC, [b"2"], partition=5)
            assert values(await read(consumer, 1)) == [b"2"]

    play_four(story)


def test_a_member_continues_at_the_nearest_offset_after_a_deletion() -> None:
    async def story(ground: Ground) -> None:
        await ground.write()
        async with alone(ground) as consumer:
            await read(consumer, 10)
        await ground.write(20)
        await ground.client.admin.delete_records({place(): 25})
        async with alone(ground) as consumer:
            assert numbers(await read(consumer, 5)) == [25, 26, 27, 28, 29]

    play_four(story)


def test_group_offsets_cannot_be_changed_while_a_member_reads() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(partitions=ALL)
        async with alone(ground) as consumer:
            await read(consumer, 40)
            with pytest.raises(MillstreamError) as caught:
                await ground.client.groups.commit(GROUP, {place(): CommittedOffset(3)})
            assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
            with pytest.raises(MillstreamError) as caught:
                await ground.client.groups.delete(GROUP)
            assert caught.value.code is ErrorCode.NON_EMPTY_GROUP

    play_four(story)


def test_joining_with_an_unknown_assignor_is_refused() -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(MillstreamError) as caught:
            async with alone(ground, assignor="alphabetical"):
                pass
        assert caught.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR

    play_four(story)


@for_each("seed", range(6))
def test_commits_never_pass_delivered_messages_under_network_faults(seed: int) -> None:
    random = Random(seed)

    async def story(ground: Ground) -> None:
        workers = [await Worker(ground, f"worker{number}").start() for number in range(3)]

        async def check() -> None:
            committed = await ground.committed()
            delivered = {(each.partition, each.offset) for worker in workers for each in worker.messages}
            for partition, end in committed.items():
                assert {(partition, offset) for offset in range(end)} <= delivered

        for _ in range(12):
            await ground.write(random.randint(1, 5), partitions=ALL)
            victim = f"worker{random.randrange(3)}"
            if random.random() < 0.5:
                ground.network.cut(victim)
            else:
                ground.network.block(victim)
                await asyncio.sleep(random.choice((1, 20, 90)))
                ground.network.unblock(victim)
            await asyncio.sleep(random.random())
            await check()
        every = {b"%d" % number for number in range(ground.count)}
        await until(lambda: {value for worker in workers for value in worker.values} == every)
        for worker in workers:
            await worker.stop()
        await check()

    play_four(story)
