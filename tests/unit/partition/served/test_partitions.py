"""The registry: catalog, logs and memory stay in step, whoever goes away and whatever fails on the way."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from builders.batches import batch, numbered_batch
from builders.partitions import NODE_ID, Site, check_in_step, committed, read_all
from millstream.catalog.catalog import Topic, TopicState
from millstream.catalog.memory import MemoryCatalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.partition import Partition
from millstream.partition.served.partitions import Partitions
from millstream.seams.entropy import SystemEntropy
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.disk import DiskOperation


class Refusal:
    """Lets a disk refuse, from the so-many-th time on, to make directories or to rename them away."""

    def __init__(self, site: Site, first: int) -> None:
        self._first = first
        self._asked = 0
        site.disk.before = self

    def __call__(self, operation: DiskOperation) -> None:
        if operation.kind == "make directory" or operation.path.endswith(".deleted"):
            self._asked += 1
            if self._asked >= self._first:
                raise OSError(28, "No space left on device", operation.path)


class MoodyCatalog(MemoryCatalog):
    """A catalog of which one call fails, before or after it took effect."""

    def __init__(self, site: Site) -> None:
        super().__init__(site.clock, SystemEntropy())
        self.fails: tuple[str, bool] | None = None

    async def _mood(self, call: str, done: bool) -> None:
        if self.fails == (call, done):
            self.fails = None
            raise MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, "the catalog is away")

    async def create_topic(self, name: str, partitions: int, settings: Mapping[str, str], replicas: Any) -> Topic:
        await self._mood("create_topic", False)
        topic = await super().create_topic(name, partitions, settings, replicas)
        await self._mood("create_topic", True)
        return topic

    async def set_ready(self, topic_id: UUID) -> None:
        await self._mood("set_ready", False)
        await super().set_ready(topic_id)
        await self._mood("set_ready", True)

    async def delete_topic(self, topic_id: UUID) -> None:
        await self._mood("delete_topic", False)
        await super().delete_topic(topic_id)
        await self._mood("delete_topic", True)

    async def forget_topic(self, topic_id: UUID) -> None:
        await self._mood("forget_topic", False)
        await super().forget_topic(topic_id)
        await self._mood("forget_topic", True)


def _get(partitions: Partitions, topic: str = "orders", number: int = 0) -> Partition:
    partition = partitions.get(topic, number)
    assert partition is not None
    return partition


def test_a_topic_is_found_by_name_and_by_id() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        before = partitions.version
        topic = await partitions.create("orders", 3, {"retention.ms": "5000"})
        assert partitions.version > before
        assert partitions.topic("orders") == partitions.topic_by_id(topic.topic_id) == topic
        assert (topic.partitions, topic.settings, topic.state) == (3, {"retention.ms": "5000"}, TopicState.READY)
        for number in range(3):
            partition = _get(partitions, number=number)
            assert partitions.get_by_id(topic.topic_id, number) is partition
            assert (partition.topic, partition.number, partition.placement.leader) == ("orders", number, NODE_ID)
        assert partitions.count == len(partitions.of("orders")) == 3
        for nobody in (partitions.get("orders", 3), partitions.get("orders", -1), partitions.get("x", 0)):
            assert nobody is None
        assert partitions.get_by_id(UUID(int=5), 0) is None
        assert partitions.topic_by_id(UUID(int=5)) is None
        assert partitions.of("x") == ()

    Site().run(story)


def test_a_real_disk_with_threads_serves_as_well(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2)
        await partitions.create("bills")
        await committed(_get(partitions, number=1), numbered_batch(3))
        await partitions.delete("bills")
        partitions = await site.restart()
        assert len(await read_all(_get(partitions, number=1))) == 3
        await partitions.upkeep()
        await check_in_step(site, partitions)

    Site(tmp_path).run(story)


@pytest.mark.parametrize("killed", [True, False])
def test_topics_and_messages_are_there_after_a_restart(killed: bool) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        topic = await partitions.create("orders", 2, {"retention.ms": "5000"})
        await partitions.create("bills")
        await committed(_get(partitions, number=1), numbered_batch(3))
        partitions = await site.restart(killed=killed, defaults={"retention.bytes": "77"})
        assert [found.name for found in partitions.topics()] == ["bills", "orders"]
        assert partitions.topic("orders") == topic
        partition = _get(partitions, number=1)
        assert len(await read_all(partition)) == 3
        assert (partition.log.settings.retention_ms, partition.log.settings.retention_bytes) == (5000, 77)
        await check_in_step(site, partitions)

    Site().run(story)


def test_of_those_who_create_one_name_at_once_one_makes_it() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        results = await asyncio.gather(*(partitions.create("orders") for _ in range(5)), return_exceptions=True)
        codes = [result.code for result in results if isinstance(result, MillstreamError)]
        assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS] * 4
        await check_in_step(site, partitions)

    Site().run(story)


def test_whoever_only_needs_a_topic_gets_the_one_that_is_there() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        topics = await asyncio.gather(*(partitions.ensure("orders") for _ in range(5)))
        assert len({topic.topic_id for topic in topics}) == 1
        assert await partitions.ensure("orders", 7) == topics[0]
        assert topics[0].partitions == 1
        with pytest.raises(MillstreamError) as error:
            await partitions.ensure("__secret")
        assert error.value.code is ErrorCode.INVALID_TOPIC

    Site().run(story)


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("", {}, ErrorCode.INVALID_TOPIC),
        ("a/b", {}, ErrorCode.INVALID_TOPIC),
        ("__internal", {}, ErrorCode.INVALID_TOPIC),
        ("u.alice.orders", {}, ErrorCode.INVALID_TOPIC),
        ("orders", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ("orders", {"partitions": -1}, ErrorCode.INVALID_PARTITIONS),
        ("orders", {"partitions": 10_001}, ErrorCode.INVALID_PARTITIONS),
        ("orders", {"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("orders", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("orders", {"settings": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG),
        ("orders", {"settings": {"cleanup.policy": "shred"}}, ErrorCode.INVALID_CONFIG),
        ("orders", {"partitions": 9}, ErrorCode.POLICY_VIOLATION),
        ("there", {}, ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_what_cannot_be_created_is_refused_and_leaves_nothing(
    name: str, options: dict[str, Any], code: ErrorCode, validate_only: bool
) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start(partitions_max=8)
        await partitions.create("there")
        with pytest.raises(MillstreamError) as error:
            await partitions.create(name, **options, validate_only=validate_only)
        assert error.value.code is code
        assert [topic.name for topic in partitions.topics()] == ["there"]
        await check_in_step(site, partitions)

    Site().run(story)


@pytest.mark.parametrize(("there", "wanted"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
def test_a_name_that_could_be_mistaken_for_another_topics_is_refused(there: str, wanted: str) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create(there)
        for validate_only in (True, False):
            with pytest.raises(MillstreamError, match=there) as error:
                await partitions.create(wanted, validate_only=validate_only)
            assert error.value.code is ErrorCode.INVALID_TOPIC
        await partitions.delete(there)
        results = await asyncio.gather(partitions.create(wanted), partitions.create(there), return_exceptions=True)
        assert [isinstance(result, MillstreamError) for result in results] == [False, True]
        await check_in_step(site, partitions)

    Site().run(story)


def test_asking_whether_a_topic_could_be_made_makes_none() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        assert (await partitions.create("orders", 5, validate_only=True)).partitions == 5
        assert partitions.topics() == []
        await partitions.create("__offsets", internal=True)
        await check_in_step(site, partitions)

    Site().run(story)


def test_a_deleted_topic_is_gone_and_its_name_begins_anew() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        old = await partitions.create("orders", 2)
        partition = _get(partitions)
        await committed(partition, numbered_batch(3))
        woken = asyncio.Event()
        partition.wait(3, woken.set)
        await partitions.delete("orders")
        assert woken.is_set()
        with pytest.raises(MillstreamError) as error:
            partition.append(memoryview(batch()))
        assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert partitions.get("orders", 0) is None
        assert partitions.get_by_id(old.topic_id, 0) is None
        with pytest.raises(MillstreamError) as error:
            await partitions.delete("orders")
        assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        new = await partitions.create("orders")
        assert new.topic_id != old.topic_id
        partitions = await site.restart(killed=True)
        assert await read_all(_get(partitions)) == []
        await check_in_step(site, partitions)

    Site().run(story)


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("what", ["create", "delete"])
def test_a_client_that_goes_away_in_the_middle_leaves_nothing_half_done(what: str, steps: int) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        if what == "delete":
            await partitions.create("orders", 2)
        call = asyncio.create_task(partitions.create("orders", 2) if what == "create" else partitions.delete("orders"))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        if steps:  # The call had begun, so it is carried through; the next one waits until it is.
            with pytest.raises(MillstreamError) as error:
                await (partitions.create("orders") if what == "create" else partitions.delete("orders"))
            expected = ErrorCode.TOPIC_ALREADY_EXISTS if what == "create" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert error.value.code is expected
        await check_in_step(site, partitions)

    Site().run(story)


@pytest.mark.parametrize("first_refused", range(1, 4))
@pytest.mark.parametrize("heals_by", ["upkeep", "restart"])
def test_a_full_disk_fails_the_creation_and_the_name_stays_free(first_refused: int, heals_by: str) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        Refusal(site, first_refused)
        with pytest.raises(MillstreamError) as error:
            await partitions.create("orders", 3)
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        site.disk.before = None
        if heals_by == "upkeep":
            await partitions.upkeep()
        else:
            partitions = await site.restart(killed=True)
        await check_in_step(site, partitions)
        await partitions.create("orders", 3)
        await check_in_step(site, await site.restart(killed=True))

    Site().run(story)


@pytest.mark.parametrize("heals_by", ["upkeep", "restart"])
def test_files_that_the_disk_will_not_remove_are_removed_later(heals_by: str) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 3)
        Refusal(site, 2)
        await partitions.delete("orders")
        assert partitions.topics() == []
        assert [topic.state for topic in await site.catalog.topics()] == [TopicState.DELETING]
        site.disk.before = None
        if heals_by == "upkeep":
            await partitions.upkeep()
            assert await site.catalog.topics() == []
        partitions = await site.restart(killed=True)
        assert await site.catalog.topics() == []
        await check_in_step(site, partitions)

    Site().run(story)


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", ["create_topic", "set_ready", "delete_topic", "forget_topic"])
@pytest.mark.parametrize("heals_by", ["upkeep", "restart", "the next create"])
def test_a_catalog_that_fails_once_does_no_lasting_harm(call: str, done: bool, heals_by: str) -> None:
    async def story(site: Site) -> None:
        site.catalog = catalog = MoodyCatalog(site)
        partitions = await site.start()
        await partitions.create("bills")
        catalog.fails = (call, done)
        changes = partitions.create("orders", 2), partitions.delete("bills")
        for result in await asyncio.gather(*changes, return_exceptions=True):
            assert isinstance(result, Topic) or "the catalog is away" in str(result)
        if heals_by == "upkeep":
            await partitions.upkeep()
        elif heals_by == "restart":
            partitions = await site.restart(killed=True)
        for name in ("orders", "bills"):
            topic = await partitions.ensure(name)
            assert partitions.topic(name) == topic
            await committed(_get(partitions, name), batch())
        await partitions.upkeep()
        await check_in_step(site, partitions)

    Site().run(story)


def test_upkeep_saves_what_would_take_long_to_replay() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2)
        for number, count in enumerate((100, 99)):
            for _ in range(count):
                _get(partitions, number=number).append(memoryview(batch()))
        await partitions.upkeep()
        partitions = await site.restart(killed=True)
        assert [partition.unsaved_batches for partition in partitions.of("orders")] == [0, 99]

    Site(policy=FlushPolicy.OS).run(story)


def test_upkeep_comes_by_itself() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start(upkeep_s=0.01)
        await partitions.create("orders", 1, {"retention.ms": "5000"})
        await committed(_get(partitions), numbered_batch(3))
        site.clock.turn(20_000)
        while _get(partitions).log.start_offset == 0:  # noqa: ASYNC110 - there is no event to wait for, it is time
            await asyncio.sleep(0.01)
        assert _get(partitions).log.start_offset == 3

    Site().run(story)


def test_closing_finishes_what_was_begun_and_takes_no_more() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        begun = asyncio.create_task(partitions.create("orders"))
        await asyncio.sleep(0)
        await partitions.close()
        assert (await begun).name == "orders"
        with pytest.raises(MillstreamError) as error:
            await partitions.create("bills")
        assert error.value.code is ErrorCode.SHUTTING_DOWN
        with pytest.raises(MillstreamError) as error:
            _get(partitions).append(memoryview(batch()))
        assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await check_in_step(site, await site.restart())

    Site().run(story)
