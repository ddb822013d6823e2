"""Tests that the compaction of a partition does not affect its readers, producers and snapshots."""

import asyncio
from collections.abc import Mapping
from random import Random

import pytest

from builders.batches import batch
from builders.loops import for_each
from builders.partitions import Site, SlowWorkers, committed, read_all
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import ProducerId
from millstream.partition import derived_state
from millstream.partition.leadership import Leadership
from millstream.partition.served.compaction_schedule import CompactionSchedule
from millstream.partition.served.partitions import Partitions

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "16384"}


async def events(partitions: Partitions) -> Leadership:
    if partitions.image.topic("events") is None:
        await partitions.create("events", 1, COMPACTED)
    return partitions.of("events")[0]


def known(partition: Leadership) -> tuple[Mapping[ProducerId, object], list[tuple[int, int]]]:
    """Return the derived state of a partition without times."""
    producers = {number: (one.epoch, one.batches) for number, one in partition.replica.producers._all().items()}
    return producers, [(epoch, start) for epoch, start in partition.replica.epochs]


async def write_some(partition: Leadership, random: Random, sequences: dict[int, int], count: int) -> None:
    """Write batches of several producers, each with a few records of few keys."""
    for _ in range(count):
        producer = random.choice((-1, 1, 2, 3))
        keys: list[bytes | None] = [b"%d" % random.randrange(4) for _ in range(random.randint(1, 3))]
        sequence = sequences.get(producer, 0) if producer > 0 else -1
        data = batch(
            *(b"." * random.choice((10, 800)) for _ in keys),
            keys=keys,
            producer_id=producer,
            producer_epoch=0 if producer > 0 else -1,
            base_sequence=sequence,
        )
        await committed(partition, data)
        sequences[producer] = sequence + len(keys)


@for_each("seed", range(8))
@pytest.mark.parametrize("has_snapshot", [True, False])
def test_producers_and_epochs_are_unchanged_after_compaction(seed: int, has_snapshot: bool) -> None:
    async def story(site: Site) -> None:
        random, sequences = Random(seed), dict[int, int]()
        partition = await events(await site.start())
        for _ in range(3):
            await write_some(partition, random, sequences, random.randint(1, 40))
            if random.random() < 0.5:
                partition.log.roll()
            assert site.partitions is not None
            await site.partitions.clean()
            before, records = known(partition), await read_all(partition)
            if not has_snapshot:
                path = f"{partition.log.path}/{derived_state.NAME}.snapshot"
                if site.disk.exists(path):
                    site.disk.remove(path)
            partition = await events(await site.restart(killed=True))
            producers, epochs = known(partition)
            assert (producers, epochs[: len(before[1])]) == before
            assert await read_all(partition) == records

    Site().run(story)


def test_compaction_does_not_lengthen_the_next_replay() -> None:
    async def story(site: Site) -> None:
        partition = await events(await site.start())
        for _ in range(60):
            await committed(partition, batch(b"." * 500, keys=[b"k"]))
        partition.log.roll()
        assert site.partitions is not None
        await site.partitions.clean()
        partition = await events(await site.restart(killed=True))
        assert partition.replica.unsaved_batches == 0

    Site().run(story)


def test_a_retry_of_a_compacted_batch_is_recognised() -> None:
    async def story(site: Site) -> None:
        partition = await events(await site.start())
        first = batch(b"old", keys=[b"k"], producer_id=3, producer_epoch=0, base_sequence=0)
        await committed(partition, first)
        await committed(partition, batch(b"new", keys=[b"k"]))
        partition.log.roll()
        assert site.partitions is not None
        await site.partitions.clean()
        assert [record.value for record in await read_all(partition)] == [b"new"]
        partition = await events(await site.restart(killed=True))
        assert partition.append(memoryview(bytearray(first))).is_duplicate

    Site().run(story)


def test_retention_removes_nothing_from_a_topic_with_policy_compact() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("events", 1, COMPACTED | {"retention.ms": "1000", "retention.bytes": "1"})
        (partition,) = partitions.of("events")
        await committed(partition, batch(b"v", keys=[b"k"]))
        partition.log.roll()
        site.clock.turn(1_000_000)
        await partitions.upkeep()
        assert len(await read_all(partition)) == 1
        await partitions.create("both", 1, COMPACTED | {"retention.ms": "1000", "cleanup.policy": "compact,delete"})
        (partition,) = partitions.of("both")
        await committed(partition, batch(b"v", keys=[b"k"]))
        site.clock.turn(1_000_000)
        await partitions.upkeep()
        assert await read_all(partition) == []

    Site().run(story)


def test_a_segment_closed_by_max_compaction_lag_is_compacted() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        settings = COMPACTED | {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "60000"}
        await partitions.create("events", 1, settings)
        (partition,) = partitions.of("events")
        for number in range(3):
            await committed(partition, batch(b"%d" % number, keys=[b"k"]))
        await partitions.clean()
        assert len(await read_all(partition)) == 3
        site.clock.turn(61_000)
        await partitions.upkeep()
        await partitions.clean()
        assert [record.value for record in await read_all(partition)] == [b"2"]

    Site().run(story)


def test_a_deleted_topic_is_not_compacted_and_a_stop_ends_compaction() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        partition = await events(partitions)
        for _ in range(40):
            await committed(partition, batch(b"." * 500, keys=[b"k"]))
        job = partition.cleaning_job()
        await partitions.delete("events")
        assert site.store is not None
        assert await site.store.clean([job]) == []

    Site().run(story)


@for_each("seed", range(3))
def test_a_new_log_start_is_durable_when_it_is_returned(seed: int) -> None:
    async def story(site: Site) -> None:
        random = Random(seed)
        partitions = await site.start()
        await partitions.create("events", 1, {"segment.bytes": "16384"})
        start = 0
        for _ in range(5):
            (partition,) = partitions.of("events")
            for _ in range(random.randint(1, 40)):
                await committed(partition, batch(b"." * 900, b"."))
            start = await partition.delete_records(random.randint(start, partition.high_watermark))
            end = partition.high_watermark
            await site.kill(power_loss=random)
            partitions = await site.start()
            (partition,) = partitions.of("events")
            assert (partition.log.start_offset, partition.high_watermark) == (start, end)
            assert [record.offset for record in await read_all(partition)] == list(range(start, end))

    Site().run(story)


def test_records_after_the_high_watermark_cannot_be_deleted() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("events")
        (partition,) = partitions.of("events")
        await committed(partition, batch(b"a"))
        with pytest.raises(MillstreamError) as error:
            await partition.delete_records(2)
        assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        site.disk.is_full = True
        with pytest.raises(MillstreamError) as error:
            await partition.delete_records(1)
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        site.disk.is_full = False
        assert await partition.delete_records(-1) == 1

    Site().run(story)


def test_a_record_deletion_fails_when_its_topic_is_deleted_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("events")
        (partition,) = partitions.of("events")
        await committed(partition, batch(b"a"))
        async with partition.log.cleaning.lock:
            moving = asyncio.create_task(partition.delete_records(1))
            deleting = asyncio.create_task(partitions.delete("events"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert partition.log.is_deleted
        with pytest.raises(MillstreamError) as error:
            await moving
        assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await deleting
        assert not caplog.records, "no disk has refused anything"

    Site().run(story)


def test_one_snapshot_of_a_partition_is_written_at_a_time() -> None:
    async def story(site: Site) -> None:
        partition = await events(await site.start())
        await committed(partition, batch(b"a", keys=[b"k"]))
        workers = partition.replica.workers = SlowWorkers()
        await asyncio.gather(partition.replica.save_state(), partition.replica.save_state())
        assert (workers.busiest, partition.replica.unsaved_batches) == (1, 0)

    Site().run(story)


class Failing:
    """A registry whose first call fails."""

    def __init__(self) -> None:
        self.asked = 0
        self.was_asked_again = asyncio.Event()

    def all(self) -> list[Leadership]:
        self.asked += 1
        if self.asked == 1:
            raise RuntimeError("not what anybody thought of")
        self.was_asked_again.set()
        return []


def test_compaction_rounds_continue_after_a_failed_round(caplog: pytest.LogCaptureFixture) -> None:
    async def story(site: Site) -> None:
        await site.start()
        assert site.store is not None
        kept = Failing()
        cleaning = CompactionSchedule(kept, site.store, interval_s=0.001)
        cleaning.start()
        await asyncio.wait_for(kept.was_asked_again.wait(), 30)
        await cleaning.stop()
        assert "compaction failed" in caplog.text

    Site().run(story)
