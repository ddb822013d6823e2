"""Checks that acknowledged data survives write errors, flush errors, a full disk and power losses in any order."""

import asyncio
from collections import defaultdict
from contextlib import suppress
from random import Random

from builders.logs import SMALL, append, commit, key, open_store, run, values_of
from builders.loops import for_each
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.model.names import PartitionKey
from millstream.storage.log.log import Log
from millstream.storage.store import LogStore
from millstream.testing.simulated.disk import DiskOperation, PowerLoss, SimulatedDisk

LOGS = 4


def only_refusals(error: MillstreamError) -> None:
    if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
        raise error


class Chaos:
    """Writes to several logs on a disk with random faults, and tracks the acknowledged values."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(Random(seed + 1))
        self.acknowledged: dict[PartitionKey, dict[int, bytes]] = defaultdict(dict)
        self.ever_written: dict[PartitionKey, set[bytes]] = defaultdict(set)
        self.started: dict[PartitionKey, int] = defaultdict(int)
        self.count = 0

    async def run_store(self) -> None:
        """One run of a store, until power is lost or it is closed."""
        store = await open_store(self.disk, random=Random(self.random.random()), open_files_max=8)
        await self.check(store)
        self.start_faults()
        try:
            await asyncio.gather(*(self.writer(store, number) for number in range(LOGS)), self.keeper(store))
            self.end_faults()
            if self.random.random() < 0.5:
                await store.close()
        finally:
            self.end_faults()

    def start_faults(self) -> None:
        random, disk = self.random, self.disk
        disk.write_error_chance = random.choice((0, 0, 0.02, 0.2))
        disk.flush_error_chance = random.choice((0, 0, 0.02, 0.2))
        disk.is_full = random.random() < 0.1
        last = disk.operations + random.randrange(400)

        def before(operation: DiskOperation) -> None:
            if operation.number == last:
                raise PowerLoss

        disk.before = before

    def end_faults(self) -> None:
        self.disk.before = None
        self.disk.write_error_chance = self.disk.flush_error_chance = 0.0
        self.disk.is_full = False

    async def keeper(self, store: LogStore) -> None:
        for _ in range(6):
            await asyncio.sleep(0.001)
            self.disk.is_full = self.random.random() < 0.1
            try:
                if self.random.random() < 0.5:
                    await store.checkpoint()
                log = store.get(key(self.random.randrange(LOGS)))
                if log is not None and self.random.random() < 0.5:
                    self.trim(log)
            except OSError:
                continue
            except MillstreamError as error:
                only_refusals(error)

    def trim(self, log: Log) -> None:
        if log.flushed_offset > log.start_offset:
            new_start = self.random.randint(log.start_offset, log.flushed_offset)
            self.started[log.key] = max(self.started[log.key], new_start)
            log.trim(Offset(new_start))

    async def writer(self, store: LogStore, number: int) -> None:
        log = await self.log_of(store, number)
        for _ in range(15):
            if log is None:
                log = await self.log_of(store, number)
                continue
            size = self.random.choice((5, 50, 50, 500, 5000))
            values = [self.value(log, size) for _ in range(self.random.randint(1, 4))]
            base = log.end_offset
            try:
                append(log, values, batches=self.random.randint(1, 2))
                committed = commit(log)
                if committed is not None and self.random.random() < 0.8:
                    await committed
                    self.acknowledged[log.key] |= dict(enumerate(values, base))
            except MillstreamError as error:
                only_refusals(error)
                await asyncio.sleep(0.002)

    async def log_of(self, store: LogStore, number: int) -> Log | None:
        log = store.get(key(number))
        try:
            if log is None:
                log = await store.create(key(number), SMALL)
        except MillstreamError as error:
            only_refusals(error)
            return None
        log.configure(SMALL)
        return log

    def value(self, log: Log, size: int) -> bytes:
        self.count += 1
        value = b"%d." % self.count
        value = value.ljust(size, b".")
        self.ever_written[log.key].add(value)
        return value

    async def check(self, store: LogStore) -> None:
        for one, acknowledged in self.acknowledged.items():
            log = store.get(one)
            assert log is not None, f"{one} is gone"
            assert log.health.quarantined is None, log.health.quarantined
            found = values_of(log)
            assert log.start_offset <= self.started[one], "more was trimmed than asked for"
            assert len(set(found.values())) == len(found), "a message came twice"
            assert set(found.values()) <= self.ever_written[one], "something was made up"
            for offset, value in acknowledged.items():
                if offset >= log.start_offset:
                    assert found.get(offset) == value, f"{log} lost offset {offset}"


async def last_look(chaos: Chaos) -> None:
    store = await open_store(chaos.disk)
    await chaos.check(store)
    await store.close()


@for_each("seed", [*range(40), 58, 285, 303, 386, 20054, 20954])
def test_acknowledged_data_survives_any_mixture_of_faults(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(4):
        with suppress(PowerLoss):
            run(chaos.run_store())
        if chaos.disk.is_dead:
            chaos.disk.power_loss()
        else:
            chaos.disk.locks.clear()
    run(last_look(chaos))
