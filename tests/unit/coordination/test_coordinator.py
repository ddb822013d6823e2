"""Tests the coordinator: it creates its topic for the first command, and routes commands to the shards of its
partitions."""

import asyncio
import errno

import pytest

from builders.coordination.site import KEY, TOPIC, ToySite, run_toys
from builders.coordination.toy_machine import Get, Put, ToyAnswer, Wait
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.testing.simulated.disk import DiskOperation

OK = ErrorCode.NONE


def refuse(_: DiskOperation) -> float:
    raise OSError(errno.ENOSPC, "no room for anything")


def test_the_first_command_creates_the_topic_once() -> None:
    async def story(site: ToySite) -> None:
        assert site.partitions.image.topic(TOPIC.name) is None
        many = [asyncio.ensure_future(site.put(str(number), f"key-{number}")) for number in range(20)]
        await asyncio.gather(site.toys.ensure(), site.toys.ensure())
        assert await asyncio.gather(*many) == [OK] * 20
        topic = site.partitions.image.topic(TOPIC.name)
        assert topic is not None
        assert topic.partitions == TOPIC.partitions
        assert dict(topic.settings) == dict(TOPIC.settings)
        assert [await site.get(f"key-{number}") for number in range(20)] == [str(number) for number in range(20)]

    run_toys(story)


def test_request_all_does_not_create_the_internal_topic() -> None:
    async def story(site: ToySite) -> None:
        assert await site.toys.request_all(Get(KEY)) == []
        assert site.partitions.image.topic(TOPIC.name) is None

    run_toys(story)


def test_the_next_command_retries_a_failed_topic_creation() -> None:
    async def story(site: ToySite) -> None:
        site.disk.before = refuse
        assert await site.put("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert site.partitions.image.topic(TOPIC.name) is None
        site.disk.before = None
        assert await site.put("a") is OK

    run_toys(story)


def test_creation_ends_after_two_attempts_when_the_topic_is_still_being_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = list[str]()

    async def create(name: str, *_: object, **options: object) -> object:
        attempts.append(name)
        assert len(attempts) < 10, "no busy loop"
        await asyncio.sleep(0)
        raise MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS, "its deletion is not complete")

    async def story(site: ToySite) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(site.partitions, "create", create)
            with pytest.raises(MillstreamError) as raised:
                await site.toys.ensure()
            assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await site.put("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert len(attempts) == 2
        assert await site.put("a") is OK

    run_toys(story)


def test_creation_continues_when_one_of_its_callers_is_cancelled() -> None:
    async def story(site: ToySite) -> None:
        first, second = (asyncio.ensure_future(site.toys.ensure()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert site.partitions.image.topic(TOPIC.name) is not None

    run_toys(story)


def test_a_command_can_be_cancelled_after_it_waited_for_the_topics_creation() -> None:
    async def story(site: ToySite) -> None:
        waiting = site.ask(Wait(KEY))
        waiting.cancel()
        await site.put("a", "other")
        await asyncio.sleep(1)
        assert waiting.answers == []
        waiting.cancel()
        assert waiting.answers == [ToyAnswer(ErrorCode.NOT_COORDINATOR)]

    run_toys(story)


@pytest.mark.parametrize("exists", [False, True])
def test_a_stopped_coordinator_answers_every_command(exists: bool) -> None:
    async def story(site: ToySite) -> None:
        if exists:
            await site.toys.ensure()
        await site.toys.stop()
        assert site.ask(Put(KEY, "a")).answers == [ToyAnswer(ErrorCode.NOT_COORDINATOR)]
        if not exists:
            with pytest.raises(MillstreamError) as raised:
                await site.toys.ensure()
            assert raised.value.code is ErrorCode.SHUTTING_DOWN

    run_toys(story)


def test_a_partition_led_elsewhere_refuses_commands_until_it_is_led_here_again() -> None:
    async def story(site: ToySite) -> None:
        other = next(name for name in map(str, range(10)) if site.number(name) != site.number())
        await site.put("a")
        await site.put("b", other)
        waiting, putting, reading = site.ask(Wait(KEY)), site.ask(Put(KEY + KEY, "c"), KEY), site.ask(Get(KEY))
        await site.move_away(site.number())
        moved = [ToyAnswer(ErrorCode.NOT_COORDINATOR)]
        assert [each.answers for each in (waiting, putting, reading)] == [moved, moved, moved]
        assert site.ask(Get(KEY)).answers == site.ask(Put(KEY, "d")).answers == moved
        await asyncio.sleep(60)
        assert site.ask(Get(KEY)).answers == site.ask(Put(KEY, "d")).answers == moved
        assert await site.get(other) == "b"
        await site.move_back(site.number())
        await site.loaded()
        assert await site.get() == "a"
        assert site.machine().values == {KEY: "a", KEY + KEY: "c"}, "the put was appended; its outcome was unknown"
        assert await site.put("d") is OK
        assert len(site.toys.shards) == TOPIC.partitions

    run_toys(story)


def test_a_shard_loads_again_when_its_broker_is_elected_again() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        (before,) = [shard for shard in site.toys.shards if shard.partition.number == site.number()]
        await site.move_back(site.number())
        await site.loaded()
        (after,) = [shard for shard in site.toys.shards if shard.partition.number == site.number()]
        assert after is not before
        assert await site.get() == "a"
        assert await site.put("b") is OK

    run_toys(story)


def test_a_shard_refuses_commands_when_the_leadership_ends_without_a_new_placement() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        putting = site.ask(Put(KEY, "b"))
        site.partition().resigned()
        moved = [ToyAnswer(ErrorCode.NOT_COORDINATOR)]
        assert putting.answers == moved
        await asyncio.sleep(60)
        assert site.ask(Get(KEY)).answers == site.ask(Put(KEY, "d")).answers == moved

    run_toys(story)


def test_a_partition_can_be_led_elsewhere_while_it_is_loading() -> None:
    async def story(site: ToySite) -> None:
        await site.put("a")
        number = site.number()
        for pause_s in (0.0, 0.0005, 0.001, 0.005):
            await site.move_away(number)
            await site.move_back(number)
            released = site.shards[number]
            await asyncio.sleep(pause_s)
            await site.move_away(number)
            await asyncio.sleep(10)
            assert released.machine is None
            await site.move_back(number)
            await site.loaded()
            assert await site.get() == "a"

    run_toys(story)


def test_a_coordinator_gets_the_shards_of_a_topic_that_another_caller_created() -> None:
    async def story(site: ToySite) -> None:
        await site.partitions.create(TOPIC.name, TOPIC.partitions, TOPIC.settings, internal=True)
        assert len(site.toys.shards) == TOPIC.partitions
        assert await site.put("a") is OK
        await site.partitions.delete(TOPIC.name)
        assert (list(site.toys.shards), site.partitions.image.topic(TOPIC.name)) == ([], None)
        assert await site.put("b") is OK
        assert site.machine().values == {KEY: "b"}

    run_toys(story)
