"""Stores on a simulated disk, and logs filled with values that can be told apart."""

import asyncio
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from millstream.model.names import PartitionKey
from millstream.records.batch import decode_batches, encode_batch
from millstream.records.header import each_batch, stamp
from millstream.seams.clock import Clock
from millstream.seams.disk import Disk
from millstream.storage.cleaning.cleaner import CleanerLimits
from millstream.storage.log.log import Log, LogSettings
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.clock import ManualClock
from millstream.testing.simulated.entropy import SimulatedEntropy
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.workers import SimulatedWorkers

T = TypeVar("T")
TOPIC = UUID(int=1)
_ENTROPY = SimulatedEntropy(Random(0))
SMALL = LogSettings(segment_bytes=2000, segment_ms=-1, retention_ms=-1, index_interval_bytes=256)


def key(number: int) -> PartitionKey:
    return PartitionKey(TOPIC, number)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run in simulated time; what still waits when `main` has ended is thrown away, as by a crash."""
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.end()


async def open_store(
    disk: Disk,
    *directories: str,
    policy: FlushPolicy = FlushPolicy.ALWAYS,
    clock: Clock | None = None,
    random: Random | None = None,
    open_files_max: int = 64,
    cleaner_limits: CleanerLimits | None = None,
) -> LogStore:
    """A store on simulated workers, by default in the directory `/data`."""
    chance = random or Random(0)
    workers = SimulatedWorkers(asyncio.get_running_loop(), chance)
    return await LogStore.open(
        directories or ("/data",),
        disk=disk,
        clock=clock or ManualClock(),
        workers=workers,
        flush_workers=workers,
        policy=policy,
        entropy=_ENTROPY,
        open_files_max=open_files_max,
        cleaner_limits=cleaner_limits,
    )


def logs_of(store: LogStore) -> list[Log]:
    """All logs, set to roll early."""
    logs = [log for log in map(store.get, store.keys()) if log is not None]
    for log in logs:
        log.settings = SMALL
    return logs


def append(log: Log, values: Sequence[bytes], *, batches: int = 1, timestamp: int = 1_000) -> None:
    """Append the values, in so many batches of one write."""
    whole = bytearray()
    headers = []
    offset = log.end_offset
    per_batch = max(1, len(values) // batches)
    for first in range(0, len(values), per_batch):
        batch = bytearray(encode_batch(values[first : first + per_batch], timestamps=timestamp))
        stamp(batch, 0, offset, 0)
        headers += [(len(whole) + at, header) for at, header in each_batch(batch)]
        offset += len(values[first : first + per_batch])
        whole += batch
    log.append(memoryview(whole), headers)


async def append_durably(store: LogStore, log: Log, values: Sequence[bytes], **options: int) -> None:
    append(log, values, **options)
    committed = store.commit(log)
    if committed is not None:
        await committed


def values_of(log: Log, max_bytes: int = 700) -> dict[int, bytes]:
    """Everything in the log, by offset, read as a consumer would; each read is checked for whole batches in order."""
    found: dict[int, bytes] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, max_bytes, log.end_offset)
        if data is None:
            data = log.read_cold(offset, max_bytes, log.end_offset)
        assert data, f"nothing at {offset}, though {log} goes on"
        for record in decode_batches(data):
            if record.offset >= log.start_offset:
                assert record.offset not in found, f"offset {record.offset} came twice"
                assert record.value is not None
                found[record.offset] = record.value
        offset = max(found) + 1
    assert list(found) == list(range(log.start_offset, log.end_offset)), f"a gap in {log}"
    return found
