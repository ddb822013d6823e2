"""Checks that power losses and disk errors during a compaction lose no current value."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from builders.keyed import (
    COMPACTED,
    append_pairs,
    clean,
    records_in,
    table_of,
)
from builders.logs import SMALL, append_durably, commit, key, open_store, run, values_of
from builders.loops import for_each
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.records.record import Record
from millstream.storage.cleaning.segment_exchange import SwapStage
from millstream.storage.log.log import Log
from millstream.storage.store import LogStore
from millstream.testing.simulated.disk import DiskOperation, PowerLoss, SimulatedDisk

KEYS = 4


class Table:
    """The records written to a compacted log, and the acknowledged end."""

    def __init__(self) -> None:
        self.written: list[Record] = []
        self.acknowledged = 0
        self.trimmed = 0

    def note(self, offset: int, one: int, value: bytes) -> None:
        del self.written[offset:]
        self.written.append(Record(offset, 1000, b"k%d" % one, value))

    async def write(self, store: LogStore, log: Log, one: int, size: int = 100) -> None:
        offset = log.end_offset
        value = b"%d:" % offset + b"." * size
        append_pairs(log, [(b"k%d" % one, value)])
        self.note(offset, one, value)
        committed = commit(log)
        if committed is not None:
            await committed
        self.acknowledged = max(self.acknowledged, offset + 1)

    def check(self, log: Log) -> None:
        """Compare the log with the table.

        All records must have been written. The table must be a state since the last acknowledgement. The log start must
        be at most the requested one.
        """
        assert log.health.quarantined is None, log.health.quarantined
        assert log.start_offset <= self.trimmed
        assert log.end_offset >= self.acknowledged
        found = records_in(log)
        assert all(self.written[record.offset] == record for record in found)
        expected = table_of([r for r in self.written[: log.end_offset] if r.offset >= log.start_offset])
        assert table_of(found) == expected
        del self.written[log.end_offset :]
        self.acknowledged = log.end_offset


async def log_of(store: LogStore) -> Log:
    log = store.get(key(0)) or await store.create(key(0), COMPACTED)
    log.configure(COMPACTED)
    return log


async def script(disk: SimulatedDisk, table: Table) -> None:
    """Write, clean and trim twice, beside another log whose appends share the journal."""
    store = await open_store(disk, random=Random(1))
    log, other = await log_of(store), await store.create(key(1), SMALL)
    for rounds in range(2):
        for number in range(20):
            await asyncio.gather(table.write(store, log, number % KEYS), append_durably(store, other, [b"%d" % number]))
        if rounds:
            table.trimmed = log.segments[1].base_offset
            log.trim(table.trimmed)
        await clean(store, log)
    await store.close()


def run_until(disk: SimulatedDisk, table: Table, number: int) -> bool:
    """Run the script until power is lost before operation `number`; return False if it ended before that."""

    def before(operation: DiskOperation) -> None:
        if operation.number == number:
            raise PowerLoss

    disk.before = before
    try:
        run(script(disk, table))
    except PowerLoss:
        return True
    finally:
        disk.before = None
    return False


async def recover_and_clean(disk: SimulatedDisk, table: Table) -> None:
    store = await open_store(disk)
    if store.get(key(0)) is None:
        assert not table.acknowledged
        return
    log = await log_of(store)
    table.check(log)
    if (other := store.get(key(1))) is not None:
        values_of(other)
    for number in range(6):
        await table.write(store, log, number % KEYS, size=300)
    await clean(store, log)
    table.check(log)


@for_each("seed", range(3))
def test_last_values_survive_a_power_loss_anywhere_in_a_compaction(seed: int) -> None:
    disk = SimulatedDisk(Random(0))
    assert not run_until(disk, Table(), -1)
    for number in range(1 + seed, disk.operations + 1, 3):
        disk, table = SimulatedDisk(Random(1000 * seed + number)), Table()
        assert run_until(disk, table, number)
        for _ in range(2):
            disk.power_loss()
            run(recover_and_clean(disk, table))


@pytest.mark.parametrize("fault", ["write", "flush", "full", "rename", "remove"])
def test_compaction_succeeds_later_after_a_disk_error(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(disk: SimulatedDisk, nth: int) -> bool:
        """Fail from the nth operation of its kind on, and return True if there was one."""
        store = await open_store(disk, random=Random(nth))
        log, table = await log_of(store), Table()
        for number in range(40):
            await table.write(store, log, number % KEYS)
        log.roll()
        await store.checkpoint()
        count = 0

        def before(operation: DiskOperation) -> float | None:
            nonlocal count
            is_one = operation.kind.startswith(fault) or (fault == "full" and operation.kind in ("write", "create"))
            if operation.path.startswith(log.path) and is_one:
                count += 1
                if count >= nth:
                    raise OSError(28 if fault == "full" else 5, "simulated", operation.path)
            return None

        disk.before = before
        await clean(store, log)
        disk.before = None
        table.check(log)
        await table.write(store, log, 0)
        for _ in range(2):
            await clean(store, log)
        table.check(log)
        assert len(records_in(log)) <= KEYS + 2, "it was cleaned in the end"
        if nth % 2:
            await store.close()
        disk.locks.clear()
        log = await log_of(await open_store(disk))
        table.check(log)
        return count >= nth

    nth = 1
    while run(story(SimulatedDisk(Random(nth)), nth)):
        nth += 1
        assert nth < 100
    assert nth > 1
    if fault != "remove":
        assert "compaction failed" in caplog.text


@for_each("seed", range(12))
def test_an_exchange_of_trimmed_segments_is_ignored_after_a_power_loss(seed: int) -> None:
    disk, table = SimulatedDisk(Random(seed)), Table()

    async def forget_all() -> None:
        """Write a checkpoint while the name of the only remaining segment cannot be flushed."""
        store = await open_store(disk)
        log = await log_of(store)
        for number in range(40):
            await table.write(store, log, number % KEYS)
        log.roll()
        await clean(store, log)
        assert log.cleaning.stage is SwapStage.DONE
        await table.write(store, log, 0)
        log.trim(log.end_offset)
        table.trimmed = log.end_offset

        def before(operation: DiskOperation) -> None:
            if operation.kind == "flush directory" and operation.path == log.path:
                raise OSError(5, "simulated", operation.path)

        disk.before = before
        await store.checkpoint()
        disk.before = None

    async def look() -> None:
        table.check(await log_of(await open_store(disk)))

    run(forget_all())
    disk.power_loss()
    run(look())


def test_a_log_quarantined_after_an_exchange_recovers_when_its_file_is_back() -> None:
    disk, table = SimulatedDisk(Random(0)), Table()

    async def exchange() -> str:
        store = await open_store(disk)
        log = await log_of(store)
        for number in range(40):
            await table.write(store, log, number % KEYS)
        await clean(store, log)
        assert log.cleaning.stage is SwapStage.DONE
        return log.segments[-1].path

    async def look(*, is_whole: bool) -> None:
        log = await log_of(await open_store(disk))
        assert (log.health.quarantined is None) == is_whole, log.health.quarantined
        if is_whole:
            table.check(log)

    last = run(exchange())
    disk.power_loss()
    disk.rename(last, last + ".away")
    for _ in range(2):
        run(look(is_whole=False))
        disk.locks.clear()
    disk.rename(last + ".away", last)
    run(look(is_whole=True))


def only(error: MillstreamError, *codes: ErrorCode) -> None:
    if error.code not in codes:
        raise error


class Chaos:
    """Writes, cleans and trims a compacted log on a disk with random faults."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(Random(seed + 1))
        self.table = Table()

    async def run_store(self) -> None:
        store = await open_store(self.disk, random=Random(self.random.random()), open_files_max=8)
        log = await log_of(store)
        self.table.check(log)
        self.start_faults()
        try:
            await asyncio.gather(self.writer(store, log), self.keeper(store, log), self.reader(log))
            self.end_faults()
            if self.random.random() < 0.5:
                await store.close()
        finally:
            self.end_faults()

    def start_faults(self) -> None:
        random, disk = self.random, self.disk
        disk.write_error_chance = random.choice((0, 0, 0.02, 0.2))
        disk.flush_error_chance = random.choice((0, 0, 0.02, 0.2))
        last = disk.operations + random.randrange(600)

        def before(operation: DiskOperation) -> None:
            if operation.number == last:
                raise PowerLoss

        disk.before = before

    def end_faults(self) -> None:
        self.disk.before = None
        self.disk.write_error_chance = self.disk.flush_error_chance = 0.0
        self.disk.is_full = False

    async def keeper(self, store: LogStore, log: Log) -> None:
        for _ in range(8):
            await asyncio.sleep(0.002)
            self.disk.is_full = self.random.random() < 0.1
            with suppress(OSError, MillstreamError):
                if self.random.random() < 0.2 and log.flushed_offset > log.start_offset:
                    self.table.trimmed = self.random.randint(log.start_offset, log.flushed_offset)
                    log.trim(Offset(self.table.trimmed))
                await clean(store, log)

    async def writer(self, store: LogStore, log: Log) -> None:
        for _ in range(30):
            try:
                await self.table.write(store, log, self.random.randrange(KEYS), self.random.choice((10, 100, 900)))
            except MillstreamError as error:
                only(error, ErrorCode.KAFKA_STORAGE_ERROR)
                await asyncio.sleep(0.002)

    async def reader(self, log: Log) -> None:
        for _ in range(10):
            await asyncio.sleep(0.001)
            try:
                found = records_in(log)
            except MillstreamError as error:
                only(error, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_OUT_OF_RANGE)
                continue
            assert [record.offset for record in found] == sorted(record.offset for record in found)


@for_each("seed", range(60))
def test_a_compacted_log_survives_any_mixture_of_faults(seed: int) -> None:
    chaos = Chaos(seed)

    async def last_look() -> None:
        store = await open_store(chaos.disk)
        log = await log_of(store)
        chaos.table.check(log)
        await clean(store, log)
        chaos.table.check(log)
        await store.close()

    for _ in range(4):
        with suppress(PowerLoss):
            run(chaos.run_store())
        if chaos.disk.is_dead:
            chaos.disk.power_loss()
        else:
            chaos.disk.locks.clear()
    run(last_look())
