"""Loses power before every operation of a run, and checks that acknowledged data is there once and in order."""

import asyncio
from collections import defaultdict
from random import Random

from builders.logs import SMALL, append, commit, key, logs_of, open_store, run, values_of
from builders.loops import for_each
from millstream.model.ids import Offset
from millstream.model.names import PartitionKey
from millstream.storage.store import LogStore
from millstream.testing.simulated.disk import DiskOperation, PowerLoss, SimulatedDisk

DIRECTORIES = ("/a/one", "/b/two")


class Book:
    """The values written to each log, and the acknowledged ends."""

    def __init__(self) -> None:
        self.written: dict[PartitionKey, list[bytes]] = defaultdict(list)
        self.acknowledged: dict[PartitionKey, int] = defaultdict(int)
        self.trimmed: dict[PartitionKey, int] = defaultdict(int)
        self.deleted: set[PartitionKey] = set()

    async def write(self, store: LogStore, sizes: dict[int, int]) -> None:
        """Append to several logs at once and wait until all of it is durable."""
        waiting = []
        for number, size in sizes.items():
            log = store.get(key(number))
            assert log is not None
            values = [f"{number}:{log.end_offset + n}:".encode().ljust(size, b".") for n in range(3)]
            append(log, values, batches=1 + size % 3)
            self.written[log.key] += values
            waiting.append((log, log.end_offset, commit(log)))
        for log, end, committed in waiting:
            if committed is not None:
                await committed
            self.acknowledged[log.key] = max(self.acknowledged[log.key], end)

    def check(self, store: LogStore) -> None:
        for one, values in self.written.items():
            log = store.get(one)
            if one in self.deleted and (log is None or not log.end_offset):
                continue
            assert log is not None, f"{one} is gone"
            assert log.health.quarantined is None
            assert log.start_offset <= max(self.trimmed[one], 0)
            assert log.end_offset >= self.acknowledged[one], f"{log} lost what was acknowledged"
            for offset, value in values_of(log).items():
                assert value == values[offset]
            del values[log.end_offset :]
            self.trimmed[one] = log.start_offset
            self.acknowledged[one] = log.end_offset


async def script(disk: SimulatedDisk, book: Book) -> None:
    """Write to one and to many logs, in small and large batches; roll, trim, checkpoint, delete and restart."""
    store = await open_store(disk, *DIRECTORIES, random=Random(1))
    for number in range(5):
        await store.create(key(number), SMALL)
    for size in (10, 40, 200):
        await asyncio.gather(book.write(store, {0: size}), book.write(store, dict.fromkeys(range(5), size)))
    await book.write(store, {1: 30_000, 2: 5, 3: 5})
    await store.checkpoint()
    for size in (300, 400):
        await book.write(store, dict.fromkeys(range(4), size))
    log = store.get(key(0))
    assert log is not None
    book.trimmed[log.key] = log.segments[-1].base_offset + 1
    log.trim(Offset(book.trimmed[log.key]))
    book.deleted.add(key(4))
    await store.delete(key(4))
    await book.write(store, {0: 20, 1: 20})
    await store.checkpoint()
    await book.write(store, {0: 20, 1: 20, 2: 20})
    await store.close()
    store = await open_store(disk, *DIRECTORIES, random=Random(2))
    logs_of(store)
    await book.write(store, {0: 300, 1: 300, 2: 300})
    await book.write(store, {2: 10})


def run_until(disk: SimulatedDisk, book: Book, number: int) -> bool:
    """Run the script until power is lost before operation `number`; return False if it ended before that."""

    def before(operation: DiskOperation) -> None:
        if operation.number == number:
            raise PowerLoss

    disk.before = before
    try:
        run(script(disk, book))
    except PowerLoss:
        return True
    finally:
        disk.before = None
    return False


async def recover_and_go_on(disk: SimulatedDisk, book: Book) -> None:
    store = await open_store(disk, *DIRECTORIES)
    book.check(store)
    numbers = [log.key.partition for log in logs_of(store) if log.key not in book.deleted]
    for size in (10, 300):
        await book.write(store, dict.fromkeys(numbers, size))


def operations_of_script() -> int:
    disk, book = SimulatedDisk(Random(0)), Book()
    assert not run_until(disk, book, -1)
    return disk.operations


@for_each("seed", range(4))
def test_no_acknowledged_data_is_lost_wherever_power_is_lost(seed: int) -> None:
    for number in range(1 + seed, operations_of_script() + 1, 4):
        disk, book = SimulatedDisk(Random(1000 * seed + number)), Book()
        assert run_until(disk, book, number)
        for _ in range(2):
            disk.power_loss()
            run(recover_and_go_on(disk, book))
