"""Tests the contract of the catalog on every implementation."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from millstream.catalog.catalog import SECRET_BYTES, Catalog, Placement, TopicState, readable_time, time_ms
from millstream.catalog.memory import MemoryCatalog
from millstream.catalog.producer_ids import ProducerIds
from millstream.catalog.sqlite import SqliteCatalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId, LeaderEpoch, TopicId
from millstream.model.limits import FIRST_SELF_NAMED_PRODUCER
from millstream.model.names import PartitionKey
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy
from millstream.seams.workers import ThreadWorkers

ONE, TWO = BrokerId(1), BrokerId(2)

Story = Callable[[Catalog, Callable[[], Awaitable[Catalog]]], Awaitable[None]]
"""Takes an open catalog, and a function that reopens it after a crash of the broker."""


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Story], None]:
    """Returns a function that runs a story on a new catalog of each kind."""

    async def memory(story: Story) -> None:
        catalog = MemoryCatalog(SystemClock(), SystemEntropy())
        await catalog.open()

        async def again() -> Catalog:
            return catalog

        await story(catalog, again)

    async def sqlite(story: Story) -> None:
        workers = ThreadWorkers(2, "catalog")

        def new() -> SqliteCatalog:
            return SqliteCatalog(tmp_path / "catalog.db", workers=workers, clock=SystemClock(), entropy=SystemEntropy())

        opened = [new()]

        async def again() -> Catalog:
            await opened[-1].close()
            opened.append(new())
            await opened[-1].open()
            return opened[-1]

        try:
            await opened[0].open()
            await story(opened[0], again)
        finally:
            await opened[-1].close()
            workers.close()

    kind = memory if request.param == "memory" else sqlite
    return lambda story: asyncio.run(kind(story))


def _refuses(code: ErrorCode, error: pytest.ExceptionInfo[MillstreamError]) -> None:
    assert error.value.code is code


def test_a_topic_survives_a_restart_with_settings_and_placements(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        made = await catalog.create_topic("orders", 2, {"retention.ms": "5", "a": "b"}, [[ONE, TWO], [TWO, ONE]])
        assert made.state is TopicState.CREATING
        await catalog.set_ready(made.topic_id)
        catalog = await again()
        (topic,) = await catalog.topics()
        assert (topic.name, topic.partitions, topic.state) == ("orders", 2, TopicState.READY)
        assert topic.settings == {"retention.ms": "5", "a": "b"}
        assert (topic.topic_id, topic.created_ms) == (made.topic_id, made.created_ms)
        assert await catalog.placements() == [
            Placement(PartitionKey(made.topic_id, 0), ONE, LeaderEpoch(0), 0, (ONE, TWO), (ONE, TWO)),
            Placement(PartitionKey(made.topic_id, 1), TWO, LeaderEpoch(0), 0, (TWO, ONE), (TWO, ONE)),
        ]

    tell(story)


def test_a_topic_name_is_free_once_its_topic_is_being_deleted(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        first = await catalog.create_topic("orders", 1, {}, [[ONE]])
        with pytest.raises(MillstreamError) as error:
            await catalog.create_topic("orders", 1, {}, [[ONE]])
        _refuses(ErrorCode.TOPIC_ALREADY_EXISTS, error)
        await catalog.delete_topic(first.topic_id)
        second = await catalog.create_topic("orders", 1, {}, [[ONE]])
        assert second.topic_id != first.topic_id
        states = {topic.topic_id: topic.state for topic in await (await again()).topics()}
        assert states == {first.topic_id: TopicState.DELETING, second.topic_id: TopicState.CREATING}

    tell(story)


def test_concurrent_creates_of_one_name_create_one_topic(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        attempts = [catalog.create_topic("orders", 1, {}, [[ONE]]) for _ in range(5)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(isinstance(result, MillstreamError) for result in results) == 4
        assert len(await catalog.topics()) == 1

    tell(story)


def test_a_deleted_topic_is_removed_by_forget_topic(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        topic = await catalog.create_topic("orders", 3, {"a": "b"}, [[ONE]] * 3)
        await catalog.forget_topic(topic.topic_id)
        assert len(await catalog.topics()) == 1, "only what is being deleted can be forgotten"
        await catalog.delete_topic(topic.topic_id)
        assert [found.state for found in await catalog.topics()] == [TopicState.DELETING]
        for change in (catalog.delete_topic, catalog.set_ready):
            with pytest.raises(MillstreamError) as error:
                await change(topic.topic_id)
            _refuses(ErrorCode.UNKNOWN_TOPIC_ID, error)
        await catalog.forget_topic(topic.topic_id)
        catalog = await again()
        assert await catalog.topics() == []
        assert await catalog.placements() == []

    tell(story)


def test_the_settings_of_a_topic_are_replaced_as_a_whole(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        other = await catalog.create_topic("other", 1, {"a": "1"}, [[ONE]])
        topic = await catalog.create_topic("orders", 1, {"a": "1", "b": "2"}, [[ONE]])
        for made in (other, topic):
            await catalog.set_ready(made.topic_id)
        await catalog.change_settings(topic.topic_id, {"b": "3", "c": "4"})
        catalog = await again()
        assert [found.settings for found in await catalog.topics()] == [{"a": "1"}, {"b": "3", "c": "4"}]
        await catalog.change_settings(topic.topic_id, {})
        assert [found.settings for found in await (await again()).topics()] == [{"a": "1"}, {}]

    tell(story)


def test_the_settings_of_a_group_are_replaced_as_a_whole(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        await catalog.change_group_settings("readers", {"a": "1", "b": "2"})
        await catalog.change_group_settings("others", {"a": "3"})
        await catalog.change_group_settings("readers", {"b": "4"})
        assert await (await again()).group_settings() == {"readers": {"b": "4"}, "others": {"a": "3"}}
        catalog = await again()
        await catalog.change_group_settings("readers", {})
        assert await catalog.group_settings() == {"others": {"a": "3"}}

    tell(story)


def _numbers(placements: list[Placement]) -> list[int]:
    return [placement.key.partition for placement in placements]


def test_new_partitions_count_only_after_finish_growth(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        topic = await catalog.create_topic("orders", 2, {}, [[ONE], [ONE]])
        await catalog.set_ready(topic.topic_id)
        await catalog.begin_growth(topic.topic_id, [[ONE, TWO], [TWO, ONE], [ONE]])
        catalog = await again()
        (begun,) = await catalog.topics()
        assert (begun.partitions, begun.growing_to, begun.state) == (2, 5, TopicState.READY)
        assert _numbers(await catalog.placements()) == [0, 1, 2, 3, 4]
        assert (await catalog.placements())[3] == Placement(
            PartitionKey(topic.topic_id, 3), TWO, LeaderEpoch(0), 0, (TWO, ONE), (TWO, ONE)
        )
        await catalog.finish_growth(topic.topic_id)
        (grown,) = await (await again()).topics()
        assert (grown.partitions, grown.growing_to) == (5, 0)

    tell(story)


def test_an_abandoned_or_replaced_topic_growth_leaves_no_partitions(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        topic = await catalog.create_topic("orders", 1, {}, [[ONE]])
        await catalog.set_ready(topic.topic_id)
        await catalog.begin_growth(topic.topic_id, [[ONE]] * 4)
        await catalog.begin_growth(topic.topic_id, [[ONE]])
        assert [found.growing_to for found in await catalog.topics()] == [2]
        await catalog.abandon_growth(topic.topic_id)
        await catalog.finish_growth(topic.topic_id)
        catalog = await again()
        assert [(found.partitions, found.growing_to) for found in await catalog.topics()] == [(1, 0)]
        assert _numbers(await catalog.placements()) == [0]

    tell(story)


def test_forgetting_a_growing_topic_removes_its_new_partitions(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        topic = await catalog.create_topic("orders", 1, {}, [[ONE]])
        await catalog.set_ready(topic.topic_id)
        await catalog.begin_growth(topic.topic_id, [[ONE]] * 4)
        await catalog.delete_topic(topic.topic_id)
        assert [found.growing_to for found in await catalog.topics()] == [5]
        await catalog.forget_topic(topic.topic_id)
        assert await (await again()).placements() == []

    tell(story)


@pytest.mark.parametrize("state", [None, TopicState.CREATING, TopicState.DELETING])
def test_only_a_ready_topic_can_grow_or_change_settings(
    tell: Callable[[Story], None], state: TopicState | None
) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        topic_id = TopicId(UUID(int=7))
        if state is not None:
            topic_id = (await catalog.create_topic("orders", 1, {"a": "1"}, [[ONE]])).topic_id
        if state is TopicState.DELETING:
            await catalog.delete_topic(topic_id)
        before = await catalog.topics(), await catalog.placements()
        for change in (
            catalog.change_settings(topic_id, {}),
            catalog.begin_growth(topic_id, [[ONE]]),
            catalog.finish_growth(topic_id),
            catalog.abandon_growth(topic_id),
        ):
            with pytest.raises(MillstreamError) as error:
                await change
            _refuses(ErrorCode.UNKNOWN_TOPIC_ID, error)
        catalog = await again()
        assert (await catalog.topics(), await catalog.placements()) == before

    tell(story)


@pytest.mark.parametrize("nodes", [[], [ONE, ONE]])
def test_new_partitions_with_invalid_replicas_are_refused(tell: Callable[[Story], None], nodes: list[BrokerId]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        topic = await catalog.create_topic("orders", 1, {}, [[ONE]])
        await catalog.set_ready(topic.topic_id)
        with pytest.raises(MillstreamError) as error:
            await catalog.begin_growth(topic.topic_id, [[ONE], nodes])
        _refuses(ErrorCode.INVALID_REPLICA_ASSIGNMENT, error)
        assert _numbers(await catalog.placements()) == [0]

    tell(story)


@pytest.mark.parametrize(
    ("partitions", "replicas", "code"),
    [
        (0, [], ErrorCode.INVALID_PARTITIONS),
        (2, [[1]], ErrorCode.INVALID_PARTITIONS),
        (1, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (1, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_with_invalid_partitions_or_replicas_is_refused(
    tell: Callable[[Story], None], partitions: int, replicas: list[list[BrokerId]], code: ErrorCode
) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        with pytest.raises(MillstreamError) as error:
            await catalog.create_topic("orders", partitions, {}, replicas)
        _refuses(code, error)
        assert await catalog.topics() == []

    tell(story)


def test_begin_leadership_raises_the_epochs_of_partitions_led_by_the_node(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        await catalog.create_topic("orders", 2, {}, [[ONE], [TWO]])
        (led,) = await catalog.begin_leadership(ONE)
        assert (led.key.partition, led.leader_epoch, led.partition_epoch) == (0, 1, 1)
        other = (await (await again()).placements())[1]
        assert (other.leader, other.leader_epoch, other.partition_epoch) == (2, 0, 0)

    tell(story)


def test_only_one_of_two_concurrent_placement_changes_succeeds(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        await catalog.create_topic("orders", 1, {}, [[ONE, TWO]])
        (seen,) = await catalog.placements()
        won, lost = await asyncio.gather(
            catalog.change_placement(seen._replace(leader=TWO, leader_epoch=LeaderEpoch(1), in_sync=(TWO,))),
            catalog.change_placement(seen._replace(in_sync=(ONE,))),
        )
        if won is None:
            won, lost = lost, won
        assert lost is None
        assert won is not None
        assert won.partition_epoch == 1
        assert await (await again()).placements() == [won]

    tell(story)


def test_changing_the_placement_of_an_unknown_partition_returns_none(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        unknown = Placement(PartitionKey(TopicId(UUID(int=7)), 0), ONE, LeaderEpoch(0), 0, (ONE,), (ONE,))
        assert await catalog.change_placement(unknown) is None

    tell(story)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader": 2}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"in_sync": (1, 3)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_invalid_placement_change_is_refused(
    tell: Callable[[Story], None], change: dict[str, object], code: ErrorCode
) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        await catalog.create_topic("orders", 1, {}, [[ONE]])
        (seen,) = await catalog.begin_leadership(ONE)
        with pytest.raises(MillstreamError) as error:
            await catalog.change_placement(Placement(**{**seen._asdict(), **change}))
        _refuses(code, error)
        assert await catalog.placements() == [seen]

    tell(story)


def test_the_incarnation_of_a_broker_increases_with_every_start(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        assert (await catalog.register_broker(ONE, "a", 9092)).incarnation == 1
        catalog = await again()
        entry = await catalog.register_broker(ONE, "b", 9093)
        assert (entry.host, entry.port, entry.incarnation) == ("b", 9093, 2)
        assert await catalog.brokers() == [entry]

    tell(story)


def test_the_cluster_id_survives_a_restart(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        cluster_id = await catalog.cluster_id()
        assert len(cluster_id) == 22
        assert await (await again()).cluster_id() == cluster_id

    tell(story)


def test_a_secret_is_created_once_per_name_and_survives_a_restart(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        one, other = await catalog.secret("one"), await catalog.secret("other")
        assert one != other
        assert len(one) == len(other) == SECRET_BYTES
        catalog = await again()
        assert (await catalog.secret("one"), await catalog.secret("other")) == (one, other)

    tell(story)


def test_producer_ids_are_never_issued_twice_even_after_a_crash(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        ids = ProducerIds(catalog, ONE, block=4)
        given = await asyncio.gather(*(ids.next() for _ in range(11)))
        catalog = await again()
        ids = ProducerIds(catalog, ONE, block=4)
        given += [await ids.next() for _ in range(3)]
        assert len(set(given)) == len(given)
        assert min(given) >= 0

    tell(story)


def test_issued_producer_ids_never_reach_the_range_of_self_chosen_ids(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        await catalog.next_producer_ids(FIRST_SELF_NAMED_PRODUCER - 6, ONE)
        ids = ProducerIds(catalog, ONE, block=4)
        assert await ids.next() == FIRST_SELF_NAMED_PRODUCER - 6
        with pytest.raises(MillstreamError, match="no producer ids are left") as error:
            await asyncio.gather(*(ids.next() for _ in range(4)))
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    tell(story)


def test_a_waiting_caller_gets_a_producer_id_when_another_one_is_cancelled(tell: Callable[[Story], None]) -> None:
    async def story(catalog: Catalog, again: Callable[[], Awaitable[Catalog]]) -> None:
        ids = ProducerIds(catalog, ONE)
        impatient, patient = asyncio.create_task(ids.next()), asyncio.create_task(ids.next())
        await asyncio.sleep(0)
        impatient.cancel()
        assert await patient == 0

    tell(story)


@pytest.mark.parametrize("wall_ms", [0, 1, 999, 1_000, 1_700_000_000_123, 253_402_300_799_999])
def test_times_are_formatted_and_parsed_exactly(wall_ms: int) -> None:
    assert time_ms(readable_time(wall_ms)) == wall_ms
