"""Tests that lost and damaged runs of message ids are rebuilt from the log while the partition is served."""

import asyncio
from collections.abc import Callable

import pytest

from builders.batches import batch
from builders.loops import for_each
from builders.partitions import Site, committed
from builders.putting import put_batch, put_ids, put_numbered, retry, stored_ids
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import MadeId
from millstream.partition.derived_state import ProducerLimits
from millstream.partition.leadership import Leadership
from millstream.partition.message_ids import rebuild
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.limits import IdLimits

LIMITS = ProducerLimits(ids=IdLimits(in_memory_each=1_000))
COUNT = 300
"""Ids that need several blocks of a run."""

IDS = [b"%d" % number for number in range(COUNT)]


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def flip_last(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def emptied(data: bytes) -> bytes:
    return b""


def zeroed(data: bytes) -> bytes:
    return bytes(len(data))


Change = Callable[[bytes], bytes] | None
DAMAGES: list[Change] = [None, flip, flip_last, emptied, zeroed]


def never() -> bool:
    return False


def index_of(partition: Leadership) -> IdIndex:
    assert partition.replica.ids is not None
    return partition.replica.ids


async def with_saved_ids(site: Site) -> Leadership:
    """Start a broker with a partition that has one run of message ids."""
    partitions = await site.start(limits=LIMITS)
    await partitions.create("events")
    (partition,) = partitions.of("events")
    await put_each(partition)
    await put_numbered(partition, 7, 0, b"a", b"b")
    await partition.replica.save_state()
    assert len(index_of(partition).runs) == 1
    return partition


def damage(site: Site, partition: Leadership, change: Change) -> None:
    (run,) = index_of(partition).runs
    run.forget()
    if change is None:
        site.disk.remove(run.path)
        return
    file = site.disk.open(run.path, create=False)
    changed = change(file.read(10**9, position=0))
    file.truncate(0)
    file.write([changed], 0)
    file.close()


async def assert_refused(partition: Leadership, message_id: bytes) -> None:
    with pytest.raises(MillstreamError) as refused:
        await put_ids(partition, message_id)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "retry later" in refused.value.detail


async def put_each(partition: Leadership) -> None:
    for each in IDS:
        await put_ids(partition, each)


async def assert_refused_somewhere(partition: Leadership) -> None:
    """Send ids until one is refused: not all of them are in a damaged block."""
    with pytest.raises(MillstreamError, match="retry later") as refused:
        await put_each(partition)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def rebuilt(partition: Leadership) -> None:
    while partition.replica.lacks_ids:  # noqa: ASYNC110  # the broker sets no event for tests
        await asyncio.sleep(0)


@for_each("change", DAMAGES)
def test_a_lost_or_damaged_run_is_rebuilt_by_maintenance(change: Change, caplog: pytest.LogCaptureFixture) -> None:
    async def story(site: Site) -> None:
        partition = await with_saved_ids(site)
        damage(site, partition, change)
        caplog.clear()
        await assert_refused_somewhere(partition)
        assert partition.replica.lacks_ids
        await committed(partition, batch(b"plain writes continue"))
        assert site.partitions is not None
        await site.partitions.upkeep()
        await rebuilt(partition)
        assert await put_ids(partition, *IDS, b"new") == [*range(COUNT), COUNT + 3]
        assert await retry(partition, MadeId(7, 0, 0, 0, 1), b"b") == COUNT + 1
        assert set((await stored_ids(partition)).values()) == {1, 3}, "each id once, and messages without an id"
        events = [record.getMessage() for record in caplog.records]
        assert events.count("message ids unreadable, will be rebuilt from the log") == 1
        assert "message ids rebuilt" in events
        assert partition.replica.ids_lost == 0
        assert all(
            record.levelname != "ERROR" for record in caplog.records if record.getMessage() == "message ids rebuilt"
        )
        partition = (await site.restart(killed=True, limits=LIMITS)).of("events")[0]
        assert await put_ids(partition, *IDS) == list(range(COUNT))

    Site().run(story)


def test_ids_of_deleted_messages_are_kept_from_the_readable_blocks(caplog: pytest.LogCaptureFixture) -> None:
    async def story(site: Site) -> None:
        partition = await with_saved_ids(site)
        await partition.delete_records(100)
        damage(site, partition, flip)  # in the first of three blocks
        await partition.replica.rebuild_ids(never)
        assert not partition.replica.lacks_ids, "the damage is not known yet"
        await assert_refused_somewhere(partition)
        await partition.replica.rebuild_ids(never)
        assert not partition.replica.lacks_ids
        offsets = [(await put_ids(partition, each))[0] for each in IDS]
        kept = [number for number, offset in enumerate(offsets) if offset == number]
        assert [number for number in kept if number >= 100] == list(range(100, COUNT)), "the log has these"
        assert 20 < len([number for number in kept if number < 100]) < 100, "only the readable blocks have these"
        assert partition.replica.ids_lost == COUNT - len(kept)
        (record,) = [record for record in caplog.records if record.getMessage() == "message ids rebuilt"]
        assert (record.levelname, record.__dict__["lost"]) == ("ERROR", COUNT - len(kept))

    Site().run(story)


def test_the_log_keeps_messages_whose_ids_must_be_rebuilt() -> None:
    async def story(site: Site) -> None:
        partition = await with_saved_ids(site)
        damage(site, partition, None)
        await assert_refused(partition, IDS[0])
        assert index_of(partition).needed_from == 0
        with pytest.raises(MillstreamError, match="cannot save the message ids"):
            await partition.delete_records(50)
        assert partition.cleaning_job().limit == 0
        await partition.replica.rebuild_ids(never)
        assert await partition.delete_records(50) == 50
        assert await put_ids(partition, *IDS) == list(range(COUNT))

    Site().run(story)


@pytest.mark.parametrize("killed", [False, True])
def test_an_interrupted_rebuild_leaves_no_files_and_is_repeated(killed: bool) -> None:
    async def story(site: Site) -> None:
        partition = await with_saved_ids(site)
        damage(site, partition, flip_last)
        await assert_refused(partition, IDS[0])
        await partition.replica.rebuild_ids(lambda: True)
        assert partition.replica.lacks_ids
        partition = (await site.restart(killed=killed, limits=LIMITS)).of("events")[0]
        await assert_refused(partition, IDS[0])
        await partition.replica.rebuild_ids(never)
        assert await put_ids(partition, *IDS) == list(range(COUNT))
        runs = [name for name in site.disk.list(partition.log.path) if name.endswith(".run")]
        assert len(runs) == len(index_of(partition).runs)

    Site().run(story)


def test_a_rebuild_in_small_slices_finds_all_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "SLICE_ENTRIES", 2)
    monkeypatch.setattr(rebuild, "SLICE_BATCHES", 3)

    async def story(site: Site) -> None:
        partition = await with_saved_ids(site)
        for number in range(20):
            await put_ids(partition, b"more-%d" % number)
            await put_batch(partition, batch(b"without an id"))
        await partition.replica.save_ids()
        runs = index_of(partition).runs
        runs[-1].forget()
        site.disk.remove(runs[-1].path)
        await assert_refused(partition, b"more-0")
        await partition.replica.rebuild_ids(never)
        assert len(index_of(partition).runs) > 5
        first = COUNT + 2
        assert await put_ids(partition, *(b"more-%d" % number for number in range(20))) == [
            first + 2 * number for number in range(20)
        ]
        await partition.replica.merge_ids(never)
        assert await put_ids(partition, *IDS) == list(range(COUNT))

    Site().run(story)


def test_a_start_does_not_use_a_snapshot_newer_than_the_message_ids() -> None:
    async def story(site: Site) -> None:
        partition = await with_saved_ids(site)
        path = f"{partition.log.path}/ids.snapshot"
        file = site.disk.open(path, create=False)
        early = file.read(10**6, position=0)
        file.close()
        assert await put_ids(partition, b"later") == [COUNT + 2]
        await partition.replica.save_state()
        await site.stop()
        # A start that rebuilds the index writes such a list before it has read the whole log.
        file = site.disk.open(path, create=False)
        file.truncate(0)
        file.write([early], 0)
        file.close()
        (partition,) = (await site.start(limits=LIMITS)).of("events")
        assert await put_ids(partition, b"later") == [COUNT + 2]

    Site().run(story)
