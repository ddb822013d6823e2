"""Consumers of a group against a whole broker, in simulated time."""

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from builders.simulated_groups import GROUP, LONG_S, SETTINGS, TOPIC, Ground, Worker, numbers, play, read, until
from builders.simulated_node import SimulatedMachine, simulate
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition
from penstock.sdk.group_answers import CommittedOffset
from penstock.sdk.group_consumer import GroupOptions

BY_HAND = GroupOptions(auto_commit_s=None)


@asynccontextmanager
async def alone(ground: Ground, **options: Any) -> Any:
    async with ground.client.group_consumer(GROUP, [TOPIC], start="beginning", **options) as consumer:
        yield consumer


def test_a_group_goes_on_where_it_was() -> None:
    async def story(ground: Ground) -> None:
        await ground.write()
        async with alone(ground) as consumer:
            assert numbers(await read(consumer, 40)) == list(range(40))
        assert await ground.committed() == {0: 10, 1: 10, 2: 10, 3: 10}
        await ground.write()
        async with alone(ground) as consumer:
            assert numbers(await read(consumer, 40)) == list(range(40, 80))

    play(story)


def test_finished_batches_are_committed_as_time_goes_by() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(partitions=[0])
        async with alone(ground, options=GroupOptions(auto_commit_s=2.0)) as consumer:
            await read(consumer, 10)
            assert await consumer.poll(3.0) is None
            assert (await ground.committed())[0] == 10

    play(story)


def test_what_was_not_committed_by_hand_comes_again() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(partitions=[0])
        async with alone(ground, options=BY_HAND) as consumer:
            await read(consumer, 10)
        assert await ground.committed() == {}
        async with alone(ground, options=BY_HAND) as consumer:
            await read(consumer, 10)
            await consumer.commit()
        assert (await ground.committed())[0] == 10

    play(story)


def test_single_offsets_can_be_committed() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(partitions=[0])
        async with alone(ground, options=BY_HAND) as consumer:
            await read(consumer, 10)
            await consumer.commit({TopicPartition(TOPIC, 0): 4})
        async with alone(ground, options=BY_HAND) as consumer:
            assert numbers(await read(consumer, 6)) == [4, 5, 6, 7, 8, 9]

    play(story)


def test_a_batch_in_work_when_its_reader_fails_comes_again_and_those_before_do_not() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(partitions=[0])

        async def fail_at_the_second() -> None:
            async with alone(ground) as consumer:
                await consumer.poll()
                await ground.write(partitions=[0])
                await consumer.poll()
                raise RuntimeError

        with pytest.raises(RuntimeError):
            await fail_at_the_second()
        assert await ground.committed() == {0: 10, 1: 0, 2: 0, 3: 0}

    play(story)


def test_it_can_begin_with_what_comes_from_now_on_or_since_a_time() -> None:
    async def story(ground: Ground) -> None:
        await ground.client.put(TOPIC, [b"1", b"2", b"3"], partition=0, timestamps_ms=[1_000, 2_000, 3_000])
        async with ground.client.group_consumer("since", [TOPIC], start=2_000) as consumer:
            assert await read(consumer, 2) == [b"2", b"3"]
        async with ground.client.group_consumer("later", [TOPIC], start=9_000) as consumer:
            assert await consumer.poll(10.0) is None
            assert consumer.position(TopicPartition(TOPIC, 0)) == 3
        async with ground.client.group_consumer("new", [TOPIC]) as consumer:
            assert await consumer.poll(10.0) is None
            await ground.client.put(TOPIC, [b"4"], partition=0)
            assert await read(consumer, 1) == [b"4"]

    play(story)


def test_members_share_the_partitions_and_nobody_reads_what_another_has_read() -> None:
    async def story(ground: Ground) -> None:
        first = await Worker(ground, "first").start()
        await ground.write()
        await until(lambda: len(first.values) == 40)
        second = await Worker(ground, "second").start()
        await until(lambda: len(second.partitions) == len(first.partitions) == 2)
        await ground.write()
        await until(lambda: len(first.values) + len(second.values) == 80)
        await first.stop()
        await ground.write()
        await until(lambda: len(first.values) + len(second.values) == 120)
        await second.stop()
        assert numbers(first.values + second.values) == list(range(120))
        assert await ground.committed() == {0: 30, 1: 30, 2: 30, 3: 30}

    play(story)


def test_a_reader_is_told_before_partitions_go_to_another_and_can_still_commit_them() -> None:
    async def story(ground: Ground) -> None:
        released: list[TopicPartition] = []

        async def release(places: Sequence[TopicPartition]) -> None:
            released.extend(places)
            await first.consumer.commit()

        await ground.write()
        first = await Worker(ground, "first", GroupOptions(auto_commit_s=None, on_release=release)).start()
        await until(lambda: len(first.values) == 40)
        second = await Worker(ground, "second").start()
        await until(lambda: len(second.partitions) == 2)
        assert len(released) == 2
        await ground.write()
        await until(lambda: len(first.values) + len(second.values) == 80)
        await first.stop()
        await second.stop()
        assert numbers(first.values + second.values) == list(range(80))

    play(story)


def test_a_dead_members_partitions_go_to_the_others_with_what_it_had_not_committed() -> None:
    async def story(ground: Ground) -> None:
        first = await Worker(ground, "first").start()
        second = await Worker(ground, "second", BY_HAND).start()
        await until(lambda: len(first.partitions) == len(second.partitions) == 2)
        await ground.write()
        await until(lambda: len(first.values) + len(second.values) == 40)
        ground.network.block("second")
        await until(lambda: len(first.values) == 40)
        assert numbers(first.values) == list(range(40))
        ground.network.unblock("second")
        await until(lambda: len(first.partitions) == len(second.partitions) == 2)
        await first.stop()
        await second.stop()

    play(story)


def test_who_was_given_up_cannot_commit_what_others_went_on_with() -> None:
    async def story(ground: Ground) -> None:
        await ground.write()
        client = await ground.machine.client("slow")
        async with client.group_consumer(GROUP, [TOPIC], start="beginning", options=BY_HAND) as slow:
            await slow.poll()
            other = await Worker(ground, "other").start()
            ground.network.block("slow")
            await until(lambda: len(other.values) == 40)
            ground.network.unblock("slow")
            await asyncio.sleep(LONG_S)
            with pytest.raises(PenstockError) as caught:
                await slow.commit()
            assert caught.value.code is ErrorCode.FENCED_MEMBER_EPOCH
            assert await slow.poll(5.0) is None
            assert len(slow.assignment) == 2
            await slow.commit()
            await other.stop()
        assert await ground.committed() == {0: 10, 1: 10, 2: 10, 3: 10}
        client.close()

    play(story)


def test_a_reader_that_takes_too_long_loses_its_partitions_and_comes_back() -> None:
    async def story(ground: Ground) -> None:
        await ground.write()
        async with alone(ground, options=GroupOptions(auto_commit_s=1.0, idle_s=60.0)) as slow:
            assert await slow.poll(LONG_S) is not None
            other = await Worker(ground, "other").start()
            await asyncio.sleep(LONG_S)
            await until(lambda: len(other.values) == 40)
            assert await slow.poll(10.0) is None
            await until(lambda: len(other.partitions) == 2)
            assert len(slow.assignment) == 2
            await other.stop()

    play(story)


def test_a_broker_that_restarts_in_the_middle_is_waited_for() -> None:
    async def whole(machine: SimulatedMachine) -> None:
        node = await machine.start()
        ground = Ground(machine, await machine.client())
        await ground.client.create_topic(TOPIC, partitions=4)
        worker = await Worker(ground, "worker").start()
        for _ in range(3):
            await ground.write()
            await until(lambda: len(worker.values) == ground.written)
            await node.stop()
            await asyncio.sleep(20.0)
            node = await machine.start()
        await ground.write()
        await until(lambda: len(worker.values) >= ground.written)
        await worker.stop()
        assert set(numbers(worker.values)) == set(range(160))
        assert await ground.committed() == {0: 40, 1: 40, 2: 40, 3: 40}
        ground.client.close()
        await node.stop()

    simulate(SETTINGS, whole)


def test_topics_and_partitions_that_come_later_are_read_too() -> None:
    async def story(ground: Ground) -> None:
        async with ground.client.group_consumer(GROUP, [TOPIC, "later"], start="beginning") as consumer:
            assert await consumer.poll(1.0) is None
            await ground.client.create_topic("later")
            await ground.client.put("later", [b"1"])
            assert await read(consumer, 1) == [b"1"]
            await ground.client.admin.create_partitions(TOPIC, 6)
            await ground.client.put(TOPIC, [b"2"], partition=5)
            assert await read(consumer, 1) == [b"2"]

    play(story)


def test_a_place_that_is_gone_is_left_for_the_nearest_there_is() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(partitions=[0])
        async with alone(ground) as consumer:
            await read(consumer, 10)
        await ground.write(20, partitions=[0])
        await ground.client.admin.delete_records({TopicPartition(TOPIC, 0): 25})
        async with alone(ground) as consumer:
            assert numbers(await read(consumer, 5)) == [25, 26, 27, 28, 29]

    play(story)


def test_what_a_group_has_committed_cannot_be_moved_while_a_member_reads() -> None:
    async def story(ground: Ground) -> None:
        await ground.write()
        async with alone(ground) as consumer:
            await read(consumer, 40)
            offsets = {TopicPartition(TOPIC, 0): CommittedOffset(3)}
            with pytest.raises(PenstockError) as caught:
                await ground.client.groups.commit(GROUP, offsets)
            assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            with pytest.raises(PenstockError) as caught:
                await ground.client.groups.delete(GROUP)
            assert caught.value.code is ErrorCode.NON_EMPTY_GROUP

    play(story)


@pytest.mark.parametrize(
    ("topics", "start", "code"),
    [
        ([TOPIC], "yesterday", ErrorCode.INVALID_SETTING),
        (["no good name"], "latest", ErrorCode.INVALID_TOPIC),
    ],
)
def test_what_cannot_be_read_is_refused_at_once(topics: list[str], start: str, code: ErrorCode) -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(PenstockError) as caught:
            ground.client.group_consumer(GROUP, topics, start=start)
        assert caught.value.code is code

    play(story)


def test_an_assignor_that_the_broker_does_not_have_is_refused_when_joining() -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(PenstockError) as caught:
            async with alone(ground, options=GroupOptions(assignor="alphabetical")):
                pass
        assert caught.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR

    play(story)


@pytest.mark.parametrize("seed", range(6))
def test_through_cuts_and_silences_every_message_is_read_and_no_commit_runs_ahead(seed: int) -> None:
    random = Random(seed)

    async def story(ground: Ground) -> None:
        workers = [await Worker(ground, f"worker{number}").start() for number in range(3)]

        async def check() -> None:
            committed = await ground.committed()
            handed = {place for worker in workers for place in worker.places}
            for partition, end in committed.items():
                assert {(partition, offset) for offset in range(end)} <= handed

        for _ in range(12):
            await ground.write(random.randint(1, 5))
            victim = f"worker{random.randrange(3)}"
            if random.random() < 0.5:
                ground.network.cut(victim)
            else:
                ground.network.block(victim)
                await asyncio.sleep(random.choice((1, 20, 90)))
                ground.network.unblock(victim)
            await asyncio.sleep(random.random())
            await check()
        every = {b"%d" % number for number in range(ground.written)}
        await until(lambda: {value for worker in workers for value in worker.values} == every)
        for worker in workers:
            await worker.stop()
        await check()

    play(story)
