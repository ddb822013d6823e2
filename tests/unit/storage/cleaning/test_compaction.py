"""Checks that compaction keeps the last record of each key at its offset, and that reads stay correct meanwhile."""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.keyed import (
    COMPACTED,
    Pair,
    append_pairs,
    append_pairs_durably,
    batches_in,
    clean,
    nobody_needs,
    records_in,
    table_of,
)
from builders.logs import key, open_store, read_cold, run
from builders.record_lists import bounded
from millstream.model.ids import Offset
from millstream.records.batch import seal
from millstream.records.compaction import filler
from millstream.records.header import HEADER_BYTES, BatchHeader, each_batch, read_header
from millstream.records.record import Record
from millstream.storage.cleaning.cleaner import CleanerLimits, CleaningJob
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.clock import ManualClock, SimulatedClock
from millstream.testing.simulated.disk import SimulatedDisk


async def log_of(store: LogStore, settings: LogSettings = COMPACTED, number: int = 0) -> Log:
    log = store.get(key(number))
    if log is None:
        log = await store.create(key(number), settings)
    log.configure(settings)
    return log


async def write_rounds(store: LogStore, log: Log, rounds: int, *, keys: int = 5, size: int = 100) -> None:
    """Write every key once in each round, then close the segment."""
    for number in range(rounds):
        for one in range(keys):
            await append_pairs_durably(store, log, [(b"k%d" % one, b"%d:" % number + b"." * size)])
    log.roll()


def test_compaction_keeps_the_last_record_of_each_key_at_its_offset() -> None:
    async def story() -> None:
        store = await open_store(SimulatedDisk())
        log = await log_of(store)
        await write_rounds(store, log, 10)
        before = records_in(log)
        size = log.size_bytes
        assert await clean(store, log) == [log]
        assert records_in(log) == before[-5:]
        assert log.size_bytes < size / 5
        assert len(log.segments) < 4, "small neighbours have become one"
        for offset in range(log.start_offset, log.end_offset):
            data = read_cold(log, Offset(offset), max_bytes=10_000, end_offset=log.end_offset)
            assert data, "every offset can be read from, also those whose record has gone"
        assert await clean(store, log) == [], "there is nothing more to do"

    run(story())


def test_a_compacted_log_is_unchanged_after_a_restart_or_power_loss() -> None:
    async def first(disk: SimulatedDisk) -> list[Record]:
        store = await open_store(disk)
        log = await log_of(store)
        await write_rounds(store, log, 10)
        await clean(store, log)
        await append_pairs_durably(store, log, [(b"k1", b"new")])
        return records_in(log)

    async def second(disk: SimulatedDisk, expected: list[Record]) -> None:
        store = await open_store(disk)
        log = await log_of(store)
        assert records_in(log) == expected
        assert log.scan.max_timestamp()[0] == 1000
        found = log.scan.offset_for_time(0)
        assert found is not None
        assert found[0] == expected[0].offset
        await store.close()

    disk = SimulatedDisk(Random(1))
    expected = run(first(disk))
    disk.power_loss()
    run(second(disk, expected))
    run(second(disk, expected))


def test_a_tombstone_is_removed_after_its_retention_time() -> None:
    async def story() -> None:
        clock = ManualClock()
        store = await open_store(SimulatedDisk(), clock=clock)
        log = await log_of(store)
        await append_pairs_durably(store, log, [(b"gone", b"value"), (b"stays", b"value")])
        await append_pairs_durably(store, log, [(b"gone", None)], timestamp=5_000)
        log.roll()
        await clean(store, log)
        tombstone = records_in(log)[-1]
        assert (tombstone.key, tombstone.value, tombstone.timestamp) == (b"gone", None, 5_000)
        assert [record.key for record in records_in(log)] == [b"stays", b"gone"]
        clock.advance_ms(900)
        assert await clean(store, log) == []
        clock.advance_ms(200)
        assert await clean(store, log) == [log], "its time is over, though nothing was written"
        assert [record.key for record in records_in(log)] == [b"stays"]

    run(story())


def test_compaction_respects_the_minimum_and_maximum_lag() -> None:
    async def story() -> None:
        clock = ManualClock()
        store = await open_store(SimulatedDisk(), clock=clock)
        rules = replace(COMPACTED, min_compaction_lag_ms=10_000, max_compaction_lag_ms=60_000)
        log = await log_of(store, rules)
        for number in range(3):
            await append_pairs_durably(store, log, [(b"k", b"%d" % number)], timestamp=clock.wall_ms())
            log.roll()
            clock.advance_ms(6000)
        assert await clean(store, log) == [log]
        assert [record.value for record in records_in(log)] == [b"1", b"2"], "the youngest two are not old enough"
        log.configure(replace(rules, min_cleanable_dirty_ratio=0.99))
        await append_pairs_durably(store, log, [(b"k", b"3")], timestamp=clock.wall_ms())
        clock.advance_ms(40000)
        assert await clean(store, log) == [], "too little has changed to be worth it"
        clock.advance_ms(30000)
        assert await clean(store, log) == [log], "but after that time it is done all the same"

    run(story())


def test_a_log_below_the_dirty_ratio_is_not_cleaned() -> None:
    async def story() -> None:
        store = await open_store(SimulatedDisk())
        log = await log_of(store, replace(COMPACTED, min_cleanable_dirty_ratio=0.5))
        for number in range(20):
            append_pairs(log, [(b"key %d" % number, b"." * 200)])
        await store.checkpoint()
        log.roll()
        await clean(store, log)
        await write_rounds(store, log, 1, keys=3)
        assert await clean(store, log) == []
        await write_rounds(store, log, 10)
        assert await clean(store, log) == [log]

    run(story())


def test_compaction_removes_keyless_records_and_keeps_undecodable_batches() -> None:
    async def story() -> None:
        store = await open_store(SimulatedDisk())
        log = await log_of(store)
        await append_pairs_durably(store, log, [(None, b"lost"), (b"a", b"kept")])
        header = read_header(filler(base_offset=log.end_offset, next_offset=log.end_offset + 1, leader_epoch=0))
        batch = seal(bytearray(HEADER_BYTES) + b"not a record", header._replace(record_count=1))
        log.append_run(memoryview(batch), [header for _, header in each_batch(batch)])
        await append_pairs_durably(store, log, [(b"a", b"newer")])
        log.roll()
        await clean(store, log)
        data = read_cold(log, Offset(0), max_bytes=10_000, end_offset=log.end_offset)
        assert [header.record_count for _, header in each_batch(data)] == [0, 1, 1]
        assert b"not a record" in data

    run(story())


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_reduced_batch_keeps_its_compression_and_timestamps(compression: str) -> None:
    async def story() -> None:
        store = await open_store(SimulatedDisk())
        log = await log_of(store)
        append_pairs(log, [(b"%d" % n, b"old %d" % n * 20) for n in range(10)], compression=compression, timestamp=77)
        append_pairs(log, [(b"%d" % n, b"new") for n in range(9)], timestamp=88)
        log.roll()
        await store.checkpoint()
        await clean(store, log)
        (first, records), _ = batches_in(log)
        assert (first.base_offset, first.last_offset_delta, first.record_count) == (0, 9, 1)
        assert first.compression == ["none", "gzip", "snappy", "lz4", "zstd"].index(compression)
        assert records == [Record(9, 77, b"9", b"old 9" * 20)]

    run(story())


def test_a_needed_batch_header_survives_the_removal_of_its_records() -> None:
    async def story() -> None:
        store = await open_store(SimulatedDisk())
        log = await log_of(store)
        for number in range(4):
            append_pairs(log, [(b"k", b"%d" % number)], producer=(7, number))
        append_pairs(log, [(b"k", b"last")])
        log.roll()
        await store.checkpoint()

        def is_needed(header: BatchHeader) -> bool:
            return header.producer_id == 7 and header.base_offset >= 2

        await store.clean([CleaningJob(log, log.flushed_offset, is_needed)])
        seen = [
            (h.base_offset, h.next_offset, h.producer_id, h.base_sequence, h.record_count) for h, _ in batches_in(log)
        ]
        assert seen == [(0, 2, -1, -1, 0), (2, 3, 7, 2, 0), (3, 4, 7, 3, 0), (4, 5, -1, -1, 1)]

    run(story())


def test_filler_batches_keep_the_start_of_each_leader_epoch() -> None:
    async def story() -> None:
        store = await open_store(SimulatedDisk())
        log = await log_of(store)
        for number in range(6):
            append_pairs(log, [(b"k", b"%d" % number)], leader_epoch=number // 2)
        log.roll()
        await store.checkpoint()
        await clean(store, log)
        seen = [(header.base_offset, header.leader_epoch) for header, _ in batches_in(log)]
        assert seen == [(0, 0), (2, 1), (4, 2), (5, 2)]

    run(story())


def test_compaction_uses_more_passes_when_keys_exceed_memory() -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        store = await open_store(disk, cleaner_limits=CleanerLimits(map_bytes=16 * 1024))
        log = await log_of(store, replace(COMPACTED, segment_bytes=100_000))
        for _ in range(2):
            for first in range(0, 3000, 100):
                append_pairs(log, [(b"key %d" % number, b"%d" % number) for number in range(first, first + 100)])
        log.roll()
        await store.checkpoint()
        expected = records_in(log, 100_000)[-3000:]
        passes = 0
        while log.cleaning.cleaned is None or log.cleaning.cleaned.offset < log.flushed_offset:
            await clean(store, log)
            passes += 1
        assert records_in(log, 100_000) == expected
        assert passes > 5

    run(story())


def test_the_cleaner_respects_its_rate_limit_and_stops_quickly() -> None:
    async def story() -> None:
        clock = SimulatedClock(asyncio.get_running_loop())
        store = await open_store(SimulatedDisk(), clock=clock, cleaner_limits=CleanerLimits(bytes_per_s=2**20))
        log = await log_of(store, replace(COMPACTED, segment_bytes=2**21))
        for number in range(64):
            append_pairs(log, [(b"%d" % (number % 60), b"." * 2**16)])
        log.roll()
        await store.checkpoint()
        began = clock.monotonic_s()
        await clean(store, log)
        assert clock.monotonic_s() - began > 8, "four mebibytes are noted, looked at, read and written"
        before = records_in(log, 2**21)
        append_pairs(log, [(b"59", b"." * 2**20)] * 3)
        log.roll()
        await store.checkpoint()
        began = clock.monotonic_s()
        task = asyncio.create_task(clean(store, log))
        await asyncio.sleep(0.5)
        await store.stop_cleaning()
        assert await task == []
        assert clock.monotonic_s() - began < 1.5
        assert records_in(log, 2**21)[: len(before)] == before
        await store.close()

    run(story())


PAIRS = st.lists(
    st.tuples(
        st.sampled_from([b"", b"a", b"b", b"c", b"long key" * 9]), st.sampled_from([None, b"1", b"22", b"3" * 300])
    ),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), PAIRS, st.sampled_from(["none", "none", "zstd"])),
        st.tuples(st.just("roll")),
        st.tuples(st.just("clean")),
        st.tuples(st.just("wait"), st.integers(1, 1500)),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    max_size=40,
)


class Model:
    """Tracks all written records, and which of them the log must, may or must not contain."""

    def __init__(self) -> None:
        self.written: list[Record] = []
        self.cleaned_to = 0
        self.tombstones_seen: dict[int, int] = {}
        """The time of the first pass that kept each tombstone, by offset."""

    def check(self, log: Log, now_ms: int) -> None:
        cleaned_to = self.cleaned_to
        found = records_in(log)
        by_offset = {record.offset: record for record in self.written}
        assert [record.offset for record in found] == sorted(record.offset for record in found)
        assert all(by_offset[record.offset] == record for record in found), "what stays is as it was"
        assert table_of(found) == table_of(self.written), "the last value of each key can be read"
        offsets = {record.offset for record in found}
        last = {record.key: record.offset for record in self.written if record.offset < cleaned_to}
        for record in self.written:
            if record.offset >= cleaned_to:
                assert record.offset in offsets, "what was not cleaned is there"
            elif record.offset != last[record.key]:
                assert record.offset not in offsets, "an older record of a key has gone"
            elif record.value is None:
                since_ms = self.tombstones_seen.setdefault(record.offset, now_ms)
                if now_ms < since_ms + COMPACTED.delete_retention_ms:
                    assert record.offset in offsets, "a tombstone is seen for its time"


@bounded(60)
@given(STEPS, st.sampled_from([FlushPolicy.ALWAYS, FlushPolicy.INTERVAL]))
def test_compaction_agrees_with_a_dictionary_of_the_last_values(
    steps: list[tuple[object, ...]], policy: FlushPolicy
) -> None:
    disk, model, clock = SimulatedDisk(Random(0)), Model(), ManualClock()

    async def play(some: list[tuple[object, ...]]) -> int:
        """Run the steps up to the next restart, and return their number."""
        store = await open_store(disk, clock=clock, policy=policy)
        log = await log_of(store)
        model.check(log, clock.wall_ms())
        for number, step in enumerate(some):
            if step[0] == "append":
                pairs: list[Pair] = step[1]  # type: ignore[assignment]
                offset = append_pairs(log, pairs, timestamp=clock.wall_ms(), compression=str(step[2]))
                await store.checkpoint()
                model.written += [Record(offset + n, clock.wall_ms(), *pair) for n, pair in enumerate(pairs)]
            elif step[0] == "roll" and log.segments and log.segments[-1].size_bytes:
                log.roll()
            elif step[0] == "clean":
                await store.checkpoint()
                limit = log.segments[-1].base_offset if log.segments else 0
                await store.clean([CleaningJob(log, limit, nobody_needs)])
                model.cleaned_to = limit
                model.check(log, clock.wall_ms())
            elif step[0] == "wait":
                clock.advance_ms(int(step[1]))  # type: ignore[call-overload]
            elif step[0] == "restart":
                if step[1]:
                    await store.close()
                return number + 1
        return len(some)

    while steps:
        steps = steps[run(play(steps)) :]
        disk.power_loss()
