"""Checks writers, readers, checkpoints and file closing on a real disk with real threads."""

import asyncio
from functools import partial
from pathlib import Path
from random import Random

import pytest

from builders.keyed import COMPACTED, append_pairs, clean, records_in, table_of
from builders.logs import SMALL, append, commit, key, logs_of, read, read_cold, values_of
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.records.header import each_batch
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy
from millstream.seams.local_disk import LocalDisk
from millstream.seams.workers import ThreadWorkers
from millstream.storage.log.log import Log
from millstream.storage.store import FlushPolicy, LogStore

LOGS = 12
BATCHES = 120


class Place:
    """Open a store with two data directories and real threads."""

    def __init__(self, path: Path, policy: FlushPolicy) -> None:
        self.directories = [f"{path}/one", f"{path}/two"]
        self.policy = policy
        self.workers = ThreadWorkers(4, "test-workers")
        self.flush_workers = ThreadWorkers(4, "test-flushes")

    async def open(self) -> LogStore:
        return await LogStore.open(
            self.directories,
            disk=LocalDisk(),
            clock=SystemClock(),
            workers=self.workers,
            flush_workers=self.flush_workers,
            policy=self.policy,
            entropy=SystemEntropy(),
            flush_interval_ms=5,
            open_files_max=8,
        )

    def close(self) -> None:
        self.workers.close()
        self.flush_workers.close()


async def write(store: LogStore, log: Log, random: Random) -> None:
    for number in range(BATCHES):
        append(log, [b"%d" % number] * random.randint(1, 3))
        committed = commit(log)
        if committed is not None and random.random() < 0.7:
            await committed
        else:
            await asyncio.sleep(0)
    last = commit(log)
    if last is not None:
        await last


async def follow(place: Place, log: Log) -> None:
    """Follow the log, and check that each batch is the next one."""
    offset, number = 0, 0
    while number < BATCHES:
        end = log.flushed_offset if place.policy is FlushPolicy.ALWAYS else log.end_offset
        data = read(log, offset, 500, end)
        if data is None:
            data = await place.workers.run(partial(read_cold, log, Offset(offset), max_bytes=500, end_offset=end))
        for _, header in each_batch(data):
            assert header.base_offset == offset
            offset = header.next_offset
            number += 1
        await asyncio.sleep(0)


async def checkpoint(store: LogStore) -> None:
    for _ in range(10):
        await store.checkpoint()


@pytest.mark.parametrize("policy", list(FlushPolicy))
def test_concurrent_readers_see_all_batches_in_order(tmp_path: Path, policy: FlushPolicy) -> None:
    place = Place(tmp_path, policy)

    async def check() -> None:
        store = await place.open()
        logs = [await store.create(key(number), SMALL) for number in range(LOGS)]
        await asyncio.gather(
            *(write(store, log, Random(number)) for number, log in enumerate(logs)),
            *(follow(place, log) for log in logs),
            checkpoint(store),
        )
        with pytest.raises(MillstreamError) as refused:
            await place.open()
        assert refused.value.code is ErrorCode.DATA_DIRECTORY_IN_USE
        before = {log.key: values_of(log) for log in logs}
        await store.close()
        store = await place.open()
        assert {log.key: values_of(log) for log in logs_of(store)} == before
        await store.close()

    try:
        asyncio.run(check())
    finally:
        place.close()


async def write_table(
    store: LogStore, log: Log, random: Random, table: dict[bytes | None, bytes], is_over: asyncio.Event
) -> None:
    while not is_over.is_set():
        name, value = b"%d" % random.randrange(5), b"." * random.randint(0, 300)
        append_pairs(log, [(name, value)])
        table[name] = value
        committed = commit(log)
        await (committed or asyncio.sleep(0.001))


async def read_again_and_again(place: Place, log: Log, random: Random, is_over: asyncio.Event) -> None:
    """Read from random offsets, and check that the batches are consecutive and begin with the requested offset."""
    while not is_over.is_set():
        end = log.flushed_offset
        offset = random.randint(log.start_offset, end)
        while offset < end:
            data = None if random.random() < 0.5 else read(log, offset, 2000, end)
            if data is None:
                data = await place.workers.run(partial(read_cold, log, Offset(offset), max_bytes=2000, end_offset=end))
            for number, (_, header) in enumerate(each_batch(data)):
                assert header.base_offset <= offset < header.next_offset
                assert number == 0 or header.base_offset == offset
                offset = header.next_offset
        headers = await place.workers.run(lambda: list(log.scan.headers_from(Offset(0))))
        assert [header.base_offset for header in headers[1:]] == [header.next_offset for header in headers[:-1]]
        await asyncio.sleep(0)


@pytest.mark.parametrize("policy", [FlushPolicy.ALWAYS, FlushPolicy.INTERVAL])
def test_reads_continue_while_segments_are_exchanged(tmp_path: Path, policy: FlushPolicy) -> None:
    place = Place(tmp_path, policy)

    async def check() -> None:
        store = await place.open()
        log, table, is_over = await store.create(key(0), COMPACTED), dict[bytes | None, bytes](), asyncio.Event()
        tasks = [read_again_and_again(place, log, Random(number), is_over) for number in range(3)]
        running = asyncio.gather(write_table(store, log, Random(9), table, is_over), *tasks)
        for _ in range(6):
            while not await clean(store, log):
                await store.checkpoint()
        is_over.set()
        await running
        await store.close()
        store = await place.open()
        (log,) = logs_of(store)
        assert table_of(records_in(log)) == table
        await store.close()

    try:
        asyncio.run(check())
    finally:
        place.close()
