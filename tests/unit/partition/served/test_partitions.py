"""Tests that catalog, logs and memory stay consistent through cancelled callers and failures."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from builders.batches import batch, numbered_batch
from builders.partitions import NODE_ID, Site, check_in_step, committed, definition, read_all
from builders.watched_catalog import FailingCatalog
from millstream.catalog.catalog import Topic, TopicState
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset, TopicId
from millstream.partition.leadership import Leadership
from millstream.partition.served.partitions import Partitions
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.disk import DiskOperation


class Refusal:
    """Makes a disk refuse to create or rename directories from the n-th time on."""

    def __init__(self, site: Site, first: int) -> None:
        self._first = first
        self._asked = 0
        site.disk.before = self

    def __call__(self, operation: DiskOperation) -> None:
        if operation.kind == "make directory" or operation.path.endswith(".deleted"):
            self._asked += 1
            if self._asked >= self._first:
                raise OSError(28, "No space left on device", operation.path)


def _get(partitions: Partitions, topic: str = "orders", number: int = 0) -> Leadership:
    partition = partitions.get(topic, number)
    assert partition is not None
    return partition


def test_a_topic_is_found_by_name_and_by_id() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        before = partitions.image.version
        topic = await partitions.create("orders", 3, {"retention.ms": "5000"})
        assert partitions.image.version > before
        assert partitions.image.topic("orders") == partitions.image.topic_by_id(topic.topic_id) == topic
        assert (topic.partitions, topic.settings, topic.state) == (3, {"retention.ms": "5000"}, TopicState.READY)
        for number in range(3):
            partition = _get(partitions, number=number)
            assert partitions.get_by_id(topic.topic_id, number) is partition
            assert (partition.topic, partition.number, partition.placement.leader) == ("orders", number, NODE_ID)
        assert partitions.count == len(partitions.of("orders")) == 3
        for nobody in (partitions.get("orders", 3), partitions.get("orders", -1), partitions.get("x", 0)):
            assert nobody is None
        assert partitions.get_by_id(TopicId(UUID(int=5)), 0) is None
        assert partitions.image.topic_by_id(TopicId(UUID(int=5))) is None
        assert partitions.of("x") == ()

    Site().run(story)


def test_partitions_are_served_from_a_real_disk(tmp_path: Path) -> None:
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
def test_topics_and_messages_survive_a_restart(killed: bool) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        topic = await partitions.create("orders", 2, {"retention.ms": "5000"})
        await partitions.create("bills")
        await committed(_get(partitions, number=1), numbered_batch(3))
        partitions = await site.restart(killed=killed, defaults={"retention.bytes": "77"})
        assert partitions.image.names == ("bills", "orders")
        assert definition(partitions, "orders") == (topic.topic_id, 2, topic.settings)
        partition = _get(partitions, number=1)
        assert len(await read_all(partition)) == 3
        assert (partition.log.settings.retention_ms, partition.log.settings.retention_bytes) == (5000, 77)
        await check_in_step(site, partitions)

    Site().run(story)


def test_concurrent_creations_of_one_name_create_it_once() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        results = await asyncio.gather(*(partitions.create("orders") for _ in range(5)), return_exceptions=True)
        codes = [result.code for result in results if isinstance(result, MillstreamError)]
        assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS] * 4
        await check_in_step(site, partitions)

    Site().run(story)


def test_ensure_returns_the_existing_topic() -> None:
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
def test_invalid_topics_are_refused_and_leave_nothing(
    name: str, options: dict[str, Any], code: ErrorCode, validate_only: bool
) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start(partitions_max=8)
        await partitions.create("there")
        with pytest.raises(MillstreamError) as error:
            await partitions.create(name, **options, validate_only=validate_only)
        assert error.value.code is code
        assert [topic.name for topic in partitions.image.topics()] == ["there"]
        await check_in_step(site, partitions)

    Site().run(story)


def test_a_topic_beyond_partitions_max_is_refused_until_there_is_room() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start(partitions_max=8)
        await partitions.create("there", 5)
        for refused in (partitions.create("more", 4), partitions.grow("there", 9)):
            with pytest.raises(MillstreamError, match=r"exceed partitions_max, which is 8; this broker has 5") as error:
                await refused
            assert error.value.code is ErrorCode.POLICY_VIOLATION
        await partitions.delete("there")
        await partitions.create("more", 8)

    Site().run(story)


@pytest.mark.parametrize(("there", "wanted"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
def test_a_name_that_collides_with_another_topic_is_refused(there: str, wanted: str) -> None:
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


def test_creation_with_validate_only_creates_nothing() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        assert (await partitions.create("orders", 5, validate_only=True)).partitions == 5
        assert partitions.image.names == ()
        await partitions.create("__offsets", internal=True)
        await check_in_step(site, partitions)

    Site().run(story)


def test_the_name_of_a_deleted_topic_can_be_used_again() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        old = await partitions.create("orders", 2)
        partition = _get(partitions)
        await committed(partition, numbered_batch(3))
        woken = asyncio.Event()
        partition.wait(Offset(3), woken.set)
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
def test_a_cancelled_caller_does_not_interrupt_a_change(what: str, steps: int) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        if what == "delete":
            await partitions.create("orders", 2)
        call = asyncio.create_task(partitions.create("orders", 2) if what == "create" else partitions.delete("orders"))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        if steps:  # The call had begun, so it is completed, and the next one waits for it.
            with pytest.raises(MillstreamError) as error:
                await (partitions.create("orders") if what == "create" else partitions.delete("orders"))
            expected = ErrorCode.TOPIC_ALREADY_EXISTS if what == "create" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert error.value.code is expected
        await check_in_step(site, partitions)

    Site().run(story)


@pytest.mark.parametrize("first_refused", range(1, 4))
@pytest.mark.parametrize("heals_by", ["upkeep", "restart"])
def test_creation_on_a_full_disk_fails_and_the_name_stays_free(first_refused: int, heals_by: str) -> None:
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
def test_files_that_could_not_be_removed_are_removed_later(heals_by: str) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 3)
        Refusal(site, 2)
        await partitions.delete("orders")
        assert partitions.image.names == ()
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
def test_changes_recover_from_a_catalog_failure(call: str, done: bool, heals_by: str) -> None:
    async def story(site: Site) -> None:
        site.catalog = catalog = FailingCatalog(site)
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
            assert partitions.image.topic(name) == topic
            await committed(_get(partitions, name), batch())
        await partitions.upkeep()
        await check_in_step(site, partitions)

    Site().run(story)


def test_maintenance_saves_partitions_with_many_unsaved_batches() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2)
        for number, count in enumerate((100, 99)):
            for _ in range(count):
                _get(partitions, number=number).append(memoryview(batch()))
        await partitions.upkeep()
        partitions = await site.restart(killed=True)
        assert [partition.replica.unsaved_batches for partition in partitions.of("orders")] == [0, 99]

    Site(policy=FlushPolicy.OS).run(story)


def test_maintenance_runs_periodically() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start(upkeep_s=0.01)
        await partitions.create("orders", 1, {"retention.ms": "5000"})
        await committed(_get(partitions), numbered_batch(3))
        site.clock.turn(20_000)
        while _get(partitions).log.start_offset == 0:  # noqa: ASYNC110 - there is no event to wait for, it is time
            await asyncio.sleep(0.01)
        assert _get(partitions).log.start_offset == 3

    Site().run(story)


def test_close_finishes_running_changes_and_refuses_new_ones() -> None:
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


def test_a_topic_beyond_partitions_max_is_refused_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start(partitions_max=3)
        await partitions.create("events", partitions=2)
        for _ in range(3):
            with pytest.raises(MillstreamError, match="would exceed partitions_max, which is 3") as error:
                await partitions.create("more", partitions=2)
            assert error.value.code is ErrorCode.POLICY_VIOLATION
        (record,) = [record for record in caplog.records if record.getMessage() == "topic refused"]
        assert (record.__dict__["topic"], record.__dict__["partitions"]) == ("more", 2)
        await partitions.create("__state", partitions=4, internal=True)

    Site().run(story)
