"""Settings that are changed while their topic is served: for every partition at once, and for good."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from builders.batches import batch
from builders.partitions import Site, committed, read_all
from builders.watched_catalog import watched_site
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.partition import Partition
from millstream.partition.served.partitions import Partitions


def _get(partitions: Partitions, number: int = 0) -> Partition:
    partition = partitions.get("orders", number)
    assert partition is not None
    return partition


def _set(**settings: str) -> Callable[[Mapping[str, str]], Mapping[str, str | None]]:
    return lambda _: {name.replace("_", "."): value for name, value in settings.items()}


def test_changed_settings_hold_at_once_for_every_partition_and_after_a_restart() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2, {"retention.ms": "5000", "segment.bytes": "20000"})
        before = partitions.version
        altered = await partitions.alter("orders", lambda old: {**old, "retention.ms": "7000", "segment.ms": "3000"})
        assert partitions.topic("orders") == altered
        assert altered.settings == {"retention.ms": "7000", "segment.bytes": "20000", "segment.ms": "3000"}
        assert partitions.version > before
        for again in (False, True):
            if again:
                partitions = await site.restart(killed=True)
            for partition in partitions.of("orders"):
                assert (partition.settings.retention_ms, partition.settings.segment_ms) == (7000, 3000)
                log = partition.log.settings
                assert (log.retention_ms, log.segment_ms, log.segment_bytes) == (7000, 3000, 20000)

    Site().run(story)


def test_messages_are_held_to_the_new_settings() -> None:
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


def test_a_bad_change_leaves_everything_as_it_was() -> None:
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
        assert partitions.topic("orders") == topic
        assert _get(partitions).settings.retention_ms == 5000
        assert (await site.restart()).topic("orders") == topic

    Site().run(story)


def test_changes_of_one_topic_build_upon_one_another() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders")

        def one_more(old: Mapping[str, str]) -> Mapping[str, str | None]:
            return {"retention.bytes": str(int(old.get("retention.bytes", "0")) + 1)}

        await asyncio.gather(*(partitions.alter("orders", one_more) for _ in range(20)))
        assert (await site.restart()).topics()[0].settings == {"retention.bytes": "20"}

    Site().run(story)


@pytest.mark.parametrize("done", [False, True])
def test_what_is_served_is_what_a_failing_catalog_has_kept(done: bool) -> None:
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
