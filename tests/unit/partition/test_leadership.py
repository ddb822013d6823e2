"""Tests one partition over a real log: appends, reads, restarts and changes of leadership."""

import asyncio
import errno
from random import Random

import pytest

from builders.batches import SOME_TIME_MS, batch, damaged, numbered_batch
from builders.loops import for_each
from builders.partitions import Site, committed, read_all
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import LeaderEpoch, Offset
from millstream.model.limits import FIRST_SELF_NAMED_PRODUCER, NO_LEADER_EPOCH
from millstream.partition.epochs import NO_OFFSET
from millstream.partition.leadership import Leadership
from millstream.partition.served.partitions import Partitions
from millstream.records.batch import encode_batch
from millstream.records.header import read_header
from millstream.storage.store import FlushPolicy


def _first(partitions: Partitions, topic: str = "orders") -> Leadership:
    partition = partitions.get(topic, 0)
    assert partition is not None
    return partition


async def _made(site: Site, **settings: str) -> Leadership:
    partitions = await site.start()
    await partitions.create("orders", 1, {name.replace("_", "."): value for name, value in settings.items()})
    return _first(partitions)


def _idempotent(sequence: int, count: int = 1, *, producer_id: int = 9, epoch: int = 0) -> bytearray:
    values = [b"%d" % (sequence + number) for number in range(count)]
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_batches_get_consecutive_offsets_and_the_epoch_stamped_in_place() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        records = numbered_batch(3)
        appended = partition.append(memoryview(records))
        assert (appended.base_offset, appended.log_start_offset, appended.is_duplicate) == (0, 0, False)
        assert partition.append(memoryview(numbered_batch(2))).base_offset == 3
        header = read_header(records)
        assert (header.base_offset, header.leader_epoch) == (0, partition.leader_epoch)
        assert appended.acknowledgement is not None
        await appended.acknowledgement
        assert [record.offset for record in await read_all(partition)] == [0, 1, 2, 3, 4]

    Site().run(story)


@pytest.mark.parametrize("by", ["CreateTime", "LogAppendTime"])
def test_append_run_stores_its_batches_in_order_after_buffered_ones(by: str) -> None:
    async def story(site: Site) -> None:
        partition = await _made(site, message_timestamp_type=by)
        await committed(partition, numbered_batch(1))
        partition.append(memoryview(numbered_batch(2, first=1)))
        site.clock.turn(5)
        run = partition.append_run([memoryview(numbered_batch(2, first=3)), memoryview(numbered_batch(1, first=5))])
        assert run.base_offset == 3
        assert run.acknowledgement is not None
        await run.acknowledgement
        found = await read_all(partition)
        assert [(record.offset, record.value) for record in found] == [(n, b"%d" % n) for n in range(6)]
        if by == "LogAppendTime":
            assert {record.timestamp for record in found[3:]} == {run.log_append_time_ms} == {site.clock.wall_ms()}

    Site().run(story)


@pytest.mark.parametrize("offset", range(6))
def test_a_read_may_begin_in_the_middle_of_a_batch(offset: int) -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        await committed(partition, numbered_batch(3))
        await committed(partition, numbered_batch(3, first=3))
        assert [record.value for record in await read_all(partition, offset)] == [b"%d" % n for n in range(offset, 6)]

    Site().run(story)


def test_readers_see_only_what_is_flushed() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        appended = partition.append(memoryview(numbered_batch(3)))
        assert partition.high_watermark == 0
        assert partition.reader.read(Offset(0), max_bytes=1000) == (b"", 0)
        assert partition.reader.read(Offset(3), max_bytes=1000) == (b"", 3), "the end itself is a legal place"
        assert appended.acknowledgement is not None
        await appended.acknowledgement
        assert partition.high_watermark == 3
        assert len(await read_all(partition)) == 3

    Site().run(story)


@pytest.mark.parametrize("policy", [FlushPolicy.OS, FlushPolicy.INTERVAL])
def test_readers_see_unflushed_batches_when_the_policy_allows_it(policy: FlushPolicy) -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        woken: list[int] = []
        partition.wait(Offset(2), lambda: woken.append(partition.high_watermark))
        assert partition.append(memoryview(numbered_batch(3))).acknowledgement is None
        assert (partition.high_watermark, woken) == (3, [3])
        partitions = await site.restart(killed=True)
        assert (_first(partitions).high_watermark, len(await read_all(_first(partitions)))) == (3, 3)

    Site(policy=policy).run(story)


@pytest.mark.parametrize("offset", [-1, 7, 2**62])
def test_offsets_outside_the_log_are_out_of_range(offset: int) -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        await committed(partition, numbered_batch(6))
        with pytest.raises(MillstreamError) as error:
            partition.reader.read(Offset(offset), max_bytes=1000)
        assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        with pytest.raises(MillstreamError) as error:
            await partition.reader.read_cold(Offset(offset), max_bytes=1000)
        assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    Site().run(story)


def test_a_refused_batch_changes_neither_log_nor_producer() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site, max_message_bytes="300")
        await committed(partition, _idempotent(0))
        for bad in (damaged(_idempotent(1)), _idempotent(1, 100), _idempotent(2), batch(timestamp=2**60), b""):
            with pytest.raises(MillstreamError):
                partition.append(memoryview(bytearray(bad)))
        assert partition.log.end_offset == 1
        assert await committed(partition, _idempotent(1)) == 1

    Site().run(story)


def test_a_failed_append_does_not_change_the_producer() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        await committed(partition, _idempotent(0))
        partition.log.health.broken = "the disk is full"
        with pytest.raises(MillstreamError) as error:
            partition.append(memoryview(_idempotent(1)))
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        partition.log.health.broken = None
        assert await committed(partition, _idempotent(1)) == 1
        assert [record.value for record in await read_all(partition)] == [b"0", b"1"]

    Site().run(story)


def test_a_duplicate_gets_the_first_offset_once_that_is_durable() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        first = partition.append(memoryview(_idempotent(0, 2)))
        again = partition.append(memoryview(_idempotent(0, 2)))
        assert (again.base_offset, again.is_duplicate) == (0, True)
        assert first.acknowledgement is not None
        assert again.acknowledgement is not None
        await again.acknowledgement
        assert partition.high_watermark == 2
        await first.acknowledgement
        later = partition.append(memoryview(_idempotent(0, 2)))
        assert (later.base_offset, later.is_duplicate, later.acknowledgement) == (0, True, None)
        assert len(await read_all(partition)) == 2

    Site().run(story)


@pytest.mark.parametrize("producer_id", [9, FIRST_SELF_NAMED_PRODUCER, 2**63 - 1])
@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("saved_at", [None, 1, 3])
def test_producers_are_known_after_a_restart(killed: bool, saved_at: int | None, producer_id: int) -> None:
    def numbered(sequence: int) -> bytearray:
        return _idempotent(sequence, producer_id=producer_id, epoch=7)

    async def story(site: Site) -> None:
        partition = await _made(site)
        for sequence in range(3):
            await committed(partition, numbered(sequence))
            if saved_at == sequence + 1:
                await partition.replica.save_state()
        partition = _first(await site.restart(killed=killed))
        assert [(each.producer_id, each.epoch, each.last_sequence) for each in await partition.active_producers()] == [
            (producer_id, 7, 2)
        ]
        assert [partition.append(memoryview(numbered(n))).base_offset for n in range(3)] == [0, 1, 2]
        with pytest.raises(MillstreamError) as error:
            partition.append(memoryview(numbered(4)))
        assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await committed(partition, numbered(3)) == 3
        assert [record.value for record in await read_all(partition)] == [b"0", b"1", b"2", b"3"]

    Site().run(story)


def test_listed_producers_have_only_acknowledged_batches() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        partition.append(memoryview(_idempotent(0, 3)))
        assert partition.high_watermark == 0
        (producer,) = await partition.active_producers()
        assert (producer.last_sequence, partition.high_watermark) == (2, 3)

    Site().run(story)


def test_a_start_after_a_clean_stop_replays_no_batches() -> None:
    async def story(site: Site) -> None:
        await committed(await _made(site), _idempotent(0))
        assert _first(await site.restart()).replica.unsaved_batches == 0
        await committed(_first(await site.restart()), _idempotent(1))
        assert _first(await site.restart(killed=True)).replica.unsaved_batches == 1

    Site().run(story)


@for_each("seed", range(20))
def test_a_snapshot_of_lost_batches_is_not_used(seed: int) -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        await committed(partition, batch(b"plain"))
        assert partition.append(memoryview(_idempotent(0))).base_offset == 1
        await partition.replica.save_state()
        await site.kill(power_loss=Random(seed))
        partition = _first(await site.start())
        if partition.log.end_offset == 1:
            await committed(partition, batch(b"other"))
            await committed(partition, batch(b"another"))
            await site.kill(power_loss=Random(seed))
            partition = _first(await site.start())
            assert len(partition.replica.producers) == 0
            assert await committed(partition, _idempotent(0)) == 3
        else:
            assert await committed(partition, _idempotent(0)) == 1

    Site().run(story)


def test_silent_producers_expire_by_the_monotonic_clock() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site, message_timestamp_after_max_ms=str(10**15))
        await committed(partition, _idempotent(0))
        site.clock.jumped_ms = 48 * 3600 * 1000
        partition.replica.expire()
        assert len(partition.replica.producers) == 1
        site.clock.jumped_ms = 0
        site.clock.turn(24 * 3600 * 1000)
        partition.replica.expire()
        assert len(partition.replica.producers) == 0

    Site().run(story)


def test_the_append_time_is_stored_and_returned() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site, message_timestamp_type="LogAppendTime")
        records = batch(b"a", timestamp=5, producer_id=1, producer_epoch=0, base_sequence=0)
        appended = partition.append(memoryview(bytearray(records)))
        site.clock.turn(1000)
        again = partition.append(memoryview(bytearray(records)))
        assert appended.log_append_time_ms == again.log_append_time_ms == SOME_TIME_MS
        assert appended.acknowledgement is not None
        await appended.acknowledgement
        assert [record.timestamp for record in await read_all(partition)] == [SOME_TIME_MS]
        partition = _first(await site.restart(killed=True))
        assert partition.append(memoryview(bytearray(records))).log_append_time_ms == SOME_TIME_MS

    Site().run(story)


def test_too_few_replicas_refuse_only_acks_all() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site, min_insync_replicas="2")
        with pytest.raises(MillstreamError) as error:
            partition.append(memoryview(batch()))
        assert error.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.append(memoryview(batch()), acks=1).base_offset == 0

    Site().run(story)


def test_a_write_with_acks_0_becomes_visible() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        reached = asyncio.Event()
        partition.wait(Offset(0), reached.set)
        assert partition.append(memoryview(batch()), acks=0).acknowledgement is None
        await reached.wait()
        assert len(await read_all(partition)) == 1

    Site().run(story)


def test_a_quarantined_log_refuses_appends_reads_and_lookups() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        await committed(partition, batch())
        partition.log.health.quarantined = "a batch is damaged"
        for use in (
            lambda: partition.append(memoryview(batch())),
            lambda: partition.reader.read(Offset(0), max_bytes=1000),
        ):
            with pytest.raises(MillstreamError, match="a batch is damaged") as error:
                use()
            assert error.value.code is ErrorCode.PARTITION_QUARANTINED
        for asked in (-1, -2, -3, 0):
            with pytest.raises(MillstreamError, match="a batch is damaged"):
                await partition.offset_for_time(asked)

    Site().run(story)


def test_waiting_readers_are_woken_when_their_offset_is_reached() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        woken: list[str] = []
        partition.wait(Offset(0), lambda: woken.append("next"))
        partition.wait(Offset(4), lambda: woken.append("beyond the end"))
        cancel = partition.wait(Offset(0), lambda: woken.append("gone"))
        cancel()
        await committed(partition, numbered_batch(3))
        assert woken == ["next"]
        assert partition.waiting == 1
        await committed(partition, numbered_batch(2))
        assert woken == ["next", "beyond the end"]
        partition.wait(Offset(4), lambda: woken.append("already there"))
        assert woken[-1] == "already there"

    Site().run(story)


def test_closing_wakes_readers_and_refuses_requests() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        woken: list[str] = []
        partition.wait(Offset(10), lambda: woken.append("closed"))
        partition.deleted()
        partition.wait(Offset(10), lambda: woken.append("later"))
        assert woken == ["closed", "later"]
        for use in (
            lambda: partition.append(memoryview(batch())),
            lambda: partition.reader.read(Offset(0), max_bytes=1),
        ):
            with pytest.raises(MillstreamError) as error:
                use()
            assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(MillstreamError):
            await partition.offset_for_time(0)

    Site().run(story)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (6, -1)),
        (-2, (0, -1)),
        (-3, (4, SOME_TIME_MS + 70)),
        (-4, (0, -1)),
        (-5, (-1, -1)),
        (0, (0, SOME_TIME_MS + 10)),
        (SOME_TIME_MS + 10, (0, SOME_TIME_MS + 10)),
        (SOME_TIME_MS + 11, (1, SOME_TIME_MS + 20)),
        (SOME_TIME_MS + 31, (4, SOME_TIME_MS + 70)),
        (SOME_TIME_MS + 70, (4, SOME_TIME_MS + 70)),
        (SOME_TIME_MS + 71, (-1, -1)),
    ],
)
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_timestamp_lookup_finds_the_exact_record_within_a_batch(
    asked: int, answer: tuple[int, int], compression: str
) -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        for times in ((10, 20, 30), (15, 70, 25)):
            stamps = [SOME_TIME_MS + time for time in times]
            await committed(partition, encode_batch([b"v"] * 3, timestamps=stamps, compression=compression))
        found = await partition.offset_for_time(asked)
        assert (found.offset, found.timestamp) == answer
        assert found.leader_epoch == (-1 if answer[0] < 0 else partition.leader_epoch)

    Site().run(story)


def test_unflushed_records_are_not_found_by_timestamp() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        await committed(partition, batch(timestamp=SOME_TIME_MS))
        appended = partition.append(memoryview(batch(timestamp=SOME_TIME_MS + 5)))
        assert partition.high_watermark == 1
        assert (await partition.offset_for_time(-1)).offset == 1
        assert appended.acknowledgement is not None
        await appended.acknowledgement
        assert (await partition.offset_for_time(SOME_TIME_MS + 1)).offset == 1

    Site().run(story)


def test_no_timestamp_is_found_in_an_empty_partition() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        assert [(await partition.offset_for_time(asked)).offset for asked in (-1, -2, -3, 0)] == [0, 0, -1, -1]

    Site().run(story)


def test_each_start_begins_a_new_epoch_and_keeps_the_ends_of_earlier_epochs() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        first = partition.leader_epoch
        await committed(partition, numbered_batch(3))
        await site.restart(killed=True)
        partition = _first(await site.restart())
        assert partition.leader_epoch == first + 2
        await committed(partition, numbered_batch(2))
        for _ in range(2):
            latest = partition.leader_epoch
            assert partition.epoch_end(first) == (first, 3)
            assert partition.epoch_end(LeaderEpoch(first + 1)) == (first, 3), "nothing was written in between"
            assert partition.epoch_end(latest) == (latest, 5)
            assert partition.epoch_end(LeaderEpoch(latest + 1)) == (NO_LEADER_EPOCH, NO_OFFSET)
            partition = _first(await site.restart(killed=True))

    Site().run(story)


@pytest.mark.parametrize(
    ("behind", "code"), [(1, ErrorCode.FENCED_LEADER_EPOCH), (-1, ErrorCode.UNKNOWN_LEADER_EPOCH), (0, None)]
)
def test_a_request_with_another_leader_epoch_is_refused(behind: int, code: ErrorCode | None) -> None:
    async def story(site: Site) -> None:
        await _made(site)
        partition = _first(await site.restart())
        partition.check_leader_epoch(-1)
        if code is None:
            partition.check_leader_epoch(partition.leader_epoch)
            return
        with pytest.raises(MillstreamError) as error:
            partition.check_leader_epoch(partition.leader_epoch - behind)
        assert error.value.code is code

    Site().run(story)


def test_retention_keeps_old_messages_above_the_high_watermark() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site, retention_ms="60000")
        await committed(partition, batch())
        partition.replica.release(partition)  # Flushes do not raise the high watermark.
        partition.append(memoryview(batch()))
        assert site.store is not None
        await site.store.checkpoint()
        site.clock.turn(8 * 24 * 3600 * 1000)
        partition.apply_retention()
        assert (partition.log.flushed_offset, partition.high_watermark) == (2, 1)
        assert partition.log.start_offset == 0, "the segment ends above the high watermark"
        partition.replica.assume(partition)
        partition.flushed()
        partition.apply_retention()
        assert partition.log.start_offset == 2

    Site().run(story)


def test_retention_removes_old_messages_and_offsets_continue() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site, retention_ms="60000")
        await committed(partition, numbered_batch(3))
        site.clock.turn(60_001)
        await committed(partition, batch(b"young", timestamp=site.clock.wall_ms()))
        partition.apply_retention()
        assert partition.log.start_offset == 3
        assert [(r.offset, r.value) for r in await read_all(partition)] == [(3, b"young")]
        with pytest.raises(MillstreamError) as error:
            partition.reader.read(Offset(2), max_bytes=100)
        assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        site.clock.turn(60_001)
        partition.apply_retention()
        assert (partition.log.start_offset, partition.high_watermark) == (4, 4)
        assert await committed(partition, batch(timestamp=site.clock.wall_ms())) == 4
        partition = _first(await site.restart())
        assert (partition.log.start_offset, partition.log.end_offset) == (4, 5)

    Site().run(story)


def test_a_stopped_leader_acknowledges_pending_writes_when_they_are_flushed() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        written = partition.append(memoryview(batch()), acks=1).acknowledgement
        read = list[int]()
        partition.wait(Offset(0), lambda: read.append(0))
        partition.stopped()
        assert written is not None
        assert (read, written.is_over) == ([0], False)
        await written
        with pytest.raises(MillstreamError) as refused:
            partition.append(memoryview(batch()))
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    Site().run(story)


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_resigned_leadership_fails_pending_acknowledgements(acks: int) -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        written = partition.append(memoryview(batch()), acks=acks).acknowledgement
        read = list[int]()
        partition.wait(Offset(0), lambda: read.append(0))
        partition.resigned()
        assert written is not None
        with pytest.raises(MillstreamError, match="outcome is unknown") as failed:
            await written
        assert failed.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert site.store is not None
        await site.store.checkpoint()
        assert (read, partition.log.flushed_offset, partition.waiting) == ([0], 1, 0)
        assert written.error is failed.value, "the flush changes nothing"
        with pytest.raises(MillstreamError) as refused:
            partition.append(memoryview(batch()))
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    Site().run(story)


def test_a_failed_flush_fails_waiting_writers_at_once() -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        await committed(partition, batch())
        written = partition.append(memoryview(batch())).acknowledgement
        partition.log.flush_failed(OSError(errno.EIO, "refused"))
        assert written is not None
        assert isinstance(written.error, MillstreamError)
        assert written.error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.high_watermark == 1

    Site().run(story)


@pytest.mark.parametrize(("start", "end"), [(4, 9), (0, 2)])
def test_a_leadership_asserts_that_its_high_watermark_is_within_the_log(start: int, end: int) -> None:
    async def story(site: Site) -> None:
        partition = await _made(site)
        await committed(partition, batch(b"a", b"b", b"c"))
        partition.log.start_offset, partition.log.end_offset = Offset(start), Offset(end)
        with pytest.raises(AssertionError, match="the high watermark is outside of the log"):
            partition._check()
        partition.log.start_offset, partition.log.end_offset = Offset(0), Offset(3)

    Site().run(story)
