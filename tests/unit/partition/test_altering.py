"""Tests changes of settings while the topic is served."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from builders.batches import batch
from builders.partitions import NODE_ID, Site, committed, definition, move_leader, read_all
from builders.watched_catalog import watched_site
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId
from millstream.partition.leadership import Leadership
from millstream.partition.served.partitions import Partitions


def _get(partitions: Partitions, number: int = 0) -> Leadership:
    partition = partitions.get("orders", number)
    assert partition is not None
    return partition


def _set(**settings: str) -> Callable[[Mapping[str, str]], Mapping[str, str | None]]:
    return lambda _: {name.replace("_", "."): value for name, value in settings.items()}


def test_changed_settings_apply_to_the_logs_of_replicas_that_are_not_led() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2, {"retention.ms": "5000"})
        await move_leader(site.catalog, partitions, ("orders", 1), BrokerId(2))
        await partitions.alter("orders", _set(retention_ms="7000"))
        assert [replica.log.settings.retention_ms for replica in partitions.replicas()] == [7000, 7000]
        await move_leader(site.catalog, partitions, ("orders", 1), BrokerId(NODE_ID))
        back = _get(partitions, 1)
        assert (back.settings.retention_ms, back.log.settings.retention_ms) == (7000, 7000)

    Site().run(story)


def test_changed_settings_apply_at_once_and_after_a_restart() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2, {"retention.ms": "5000", "segment.bytes": "20000"})
        before = partitions.image.version
        altered = await partitions.alter("orders", lambda old: {**old, "retention.ms": "7000", "segment.ms": "3000"})
        assert partitions.image.topic("orders") == altered
        assert altered.settings == {"retention.ms": "7000", "segment.bytes": "20000", "segment.ms": "3000"}
        assert partitions.image.version > before
        for again in (False, True):
            if again:
                partitions = await site.restart(killed=True)
            for partition in partitions.of("orders"):
                assert (partition.settings.retention_ms, partition.settings.segment_ms) == (7000, 3000)
                log = partition.log.settings
                assert (log.retention_ms, log.segment_ms, log.segment_bytes) == (7000, 3000, 20000)

    Site().run(story)


def test_new_settings_apply_to_the_next_messages() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders")
        await partitions.alter("orders", _set(max_message_bytes="100"))
        with pytest.raises(MillstreamError) as error:
            await committed(_get(partitions), batch(b"x" * 200))
        assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE
        await partitions.alter("orders", _set(min_insync_replicas="2"))
        with pytest.raises(MillstreamError) as error:
            await committed(_get(partitions), batch(b"x"))
        assert error.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        await partitions.alter("orders", _set(retention_ms="1000", segment_ms="1000"))
        await committed(_get(partitions), batch(b"x"))
        site.clock.turn(60_000)
        for _ in range(2):
            await partitions.upkeep()
        assert await read_all(_get(partitions)) == []

    Site().run(story)


def test_an_invalid_change_changes_nothing() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start(defaults={"max.compaction.lag.ms": "50"})
        topic = await partitions.create("orders", 1, {"retention.ms": "5000"})
        for bad in (_set(retention_ms="soon"), _set(colour="blue"), _set(min_compaction_lag_ms="51")):
            with pytest.raises(MillstreamError) as error:
                await partitions.alter("orders", bad)
            assert error.value.code is ErrorCode.INVALID_CONFIG
        with pytest.raises(MillstreamError) as error:
            await partitions.alter("unknown", _set())
        assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        only_asked = await partitions.alter("orders", _set(retention_ms="1"), validate_only=True)
        assert only_asked.settings == {"retention.ms": "1"}
        assert partitions.image.topic("orders") == topic
        assert _get(partitions).settings.retention_ms == 5000
        assert definition(await site.restart(), "orders") == (topic.topic_id, 1, topic.settings)

    Site().run(story)


def test_concurrent_changes_of_one_topic_are_all_applied() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders")

        def one_more(old: Mapping[str, str]) -> Mapping[str, str | None]:
            return {"retention.bytes": str(int(old.get("retention.bytes", "0")) + 1)}

        await asyncio.gather(*(partitions.alter("orders", one_more) for _ in range(20)))
        (topic,) = (await site.restart()).image.topics()
        assert topic.settings == {"retention.bytes": "20"}

    Site().run(story)


@pytest.mark.parametrize("done", [False, True])
def test_served_settings_match_the_catalog_after_its_failure(done: bool) -> None:
    site, catalog = watched_site()

    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 1, {"retention.ms": "5000"})
        catalog.fails = "change_settings", done
        if done:
            await partitions.alter("orders", _set(retention_ms="7000"))
        else:
            with pytest.raises(MillstreamError):
                await partitions.alter("orders", _set(retention_ms="7000"))
        served = _get(partitions).settings
        assert served.retention_ms == (7000 if done else 5000)
        assert _get(await site.restart(killed=True)).settings == served

    site.run(story)
