"""Tests the start of a broker: it finishes interrupted changes and refuses differences that no crash explains."""

import copy

import pytest

from builders.batches import batch, numbered_batch
from builders.partitions import NODE_ID, Site, check_in_step, committed, read_all
from millstream.catalog.catalog import Topic
from millstream.catalog.memory import MemoryCatalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId
from millstream.partition import derived_state
from millstream.partition.leadership import Leadership
from millstream.partition.served.partitions import Partitions
from millstream.seams.entropy import SystemEntropy
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings

LEADER_EPOCH_AT = 12
"""The position of the leader epoch in a batch header. The checksum does not cover it."""


def _get(partitions: Partitions, topic: str = "orders", number: int = 0) -> Leadership:
    partition = partitions.get(topic, number)
    assert partition is not None
    return partition


@pytest.mark.parametrize("logs_made", range(4))
def test_a_start_finishes_an_interrupted_topic_creation(logs_made: int) -> None:
    async def story(site: Site) -> None:
        await site.start()
        topic = await site.catalog.create_topic("orders", 3, {}, [[BrokerId(NODE_ID)]] * 3)
        await _make_logs(site, topic, logs_made)
        partitions = await site.restart(killed=True)
        assert len(partitions.of("orders")) == 3
        await committed(_get(partitions, number=2), batch())
        await check_in_step(site, partitions)

    Site().run(story)


@pytest.mark.parametrize("logs_left", range(4))
def test_a_start_finishes_an_interrupted_topic_deletion(logs_left: int) -> None:
    async def story(site: Site) -> None:
        await site.start()
        topic = await site.catalog.create_topic("orders", 3, {}, [[BrokerId(NODE_ID)]] * 3)
        await _make_logs(site, topic, logs_left)
        await site.catalog.delete_topic(topic.topic_id)
        partitions = await site.restart(killed=True)
        assert partitions.image.names == ()
        assert await site.catalog.topics() == []
        await check_in_step(site, partitions)

    Site().run(story)


async def _make_logs(site: Site, topic: Topic, count: int) -> None:
    assert site.store is not None
    placements = [p for p in await site.catalog.placements() if p.key.topic_id == topic.topic_id]
    for placement in placements[:count]:
        await site.store.create(placement.key, LogSettings())


async def _refused_start(site: Site, code: ErrorCode) -> None:
    """Check that repeated starts are refused and change nothing."""
    before = await site.catalog.topics(), await site.catalog.placements()
    for _ in range(4):
        with pytest.raises(MillstreamError) as error:
            await site.start()
        assert error.value.code is code
        await site.stop()
    assert (await site.catalog.topics(), await site.catalog.placements()) == before


def test_a_start_without_a_data_directory_is_refused() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders")
        await committed(_get(partitions), numbered_batch(3))
        await site.stop()
        kept, site.data = site.data, "/empty"
        await _refused_start(site, ErrorCode.DATA_DIRECTORY_MISSING)
        site.data = kept
        assert len(await read_all(_get(await site.start()))) == 3

    Site().run(story)


def test_a_start_with_logs_of_unknown_topics_is_refused() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders")
        await committed(_get(partitions), numbered_batch(3))
        await site.stop()
        kept, site.catalog = site.catalog, MemoryCatalog(site.clock, SystemEntropy())
        await _refused_start(site, ErrorCode.CATALOG_REFUSED)
        site.catalog = kept
        assert len(await read_all(_get(await site.start()))) == 3

    Site().run(story)


def test_an_older_catalog_quarantines_newer_logs_at_every_start() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders")
        old = copy.deepcopy(site.catalog)
        for _ in range(3):
            await committed(_get(partitions), batch())
            partitions = await site.restart()
        await site.stop()
        kept, site.catalog = site.catalog, old
        for _ in range(5):
            await _is_quarantined(_get(await site.start()), "the catalog is an older copy")
            await site.stop()
        site.catalog = kept
        assert len(await read_all(_get(await site.start()))) == 3

    Site().run(story)


def test_a_flipped_bit_in_a_leader_epoch_quarantines_only_its_partition() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders")
        await partitions.create("others")
        for name in ("orders", "others"):
            await committed(_get(partitions, name), batch())
        path = _get(partitions).log.segments[0].path
        await site.kill()
        flipped = LEADER_EPOCH_AT + 2
        site.disk.spoil(path, flipped, bytes([site.disk.contents(path)[flipped] ^ 1]))
        for _ in range(3):
            partitions = await site.start()
            await _is_quarantined(_get(partitions), "a batch of the log is damaged")
            assert len(await read_all(_get(partitions, "others"))) == 1
            await site.stop()

    Site().run(story)


async def _is_quarantined(partition: Leadership, why: str) -> None:
    for work in (read_all(partition), committed(partition, batch())):
        with pytest.raises(MillstreamError, match=why) as refused:
            await work
        assert refused.value.code is ErrorCode.PARTITION_QUARANTINED


def test_an_unreadable_log_does_not_prevent_other_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2)
        for number in (0, 1):
            await committed(_get(partitions, number=number), numbered_batch(3))
        await site.kill()
        whole = derived_state.load

        def failing(log: Log, now_ms: int, limits: derived_state.ProducerLimits) -> derived_state.DerivedState:
            if log.key.partition == 0:
                raise OSError(5, "Input/output error")
            return whole(log, now_ms, limits)

        monkeypatch.setattr(derived_state, "load", failing)
        partitions = await site.start()
        assert await committed(_get(partitions, number=1), batch()) == 3
        assert len(await read_all(_get(partitions))) == 3
        with pytest.raises(MillstreamError) as error:
            _get(partitions).append(memoryview(batch()))
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await partitions.upkeep()
        assert _get(partitions).is_suspended
        monkeypatch.setattr(derived_state, "load", whole)
        await partitions.upkeep()
        assert await committed(_get(partitions), batch()) == 3

    Site().run(story)


def test_an_invalid_default_setting_prevents_the_start() -> None:
    async def story(site: Site) -> None:
        with pytest.raises(MillstreamError) as error:
            await site.start(defaults={"retention.ms": "soon"})
        assert error.value.code is ErrorCode.INVALID_CONFIG

    Site().run(story)
