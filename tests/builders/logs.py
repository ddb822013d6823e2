"""Stores on a simulated disk, and logs filled with values that can be told apart."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar
from uuid import UUID

from penstock.model.names import PartitionKey
from penstock.records.batch import decode_batches, encode_batch
from penstock.records.header import each_batch, stamp
from penstock.storage.disk import Disk
from penstock.storage.log import Log, LogSettings
from penstock.storage.store import FlushPolicy, Store

T = TypeVar("T")
TOPIC = UUID(int=1)
SMALL = LogSettings(segment_bytes=2000, segment_ms=-1, retention_ms=-1, index_interval_bytes=256)


def key(number: int) -> PartitionKey:
    return PartitionKey(TOPIC, number)


class LaterWorkers:
    """Does the work on the event loop, a few turns later; how many, chance decides."""

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or Random(0)

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._later(loop, self._random.randrange(3), work, future)
        return future

    def _later(
        self, loop: asyncio.AbstractEventLoop, turns: int, work: Callable[[], T], future: asyncio.Future[T]
    ) -> None:
        if turns:
            loop.call_soon(self._later, loop, turns - 1, work, future)
            return
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            loop.call_soon(lambda: future.cancelled() or future.set_result(result))

    def close(self) -> None:
        pass


class HandClock:
    """Stands still unless a test moves it."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1000


class CountingEntropy:
    """Random numbers that are none."""

    def __init__(self) -> None:
        self._count = 0

    def token(self, size_bytes: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(size_bytes, "big")


_ENTROPY = CountingEntropy()


async def open_store(
    disk: Disk,
    *directories: str,
    policy: FlushPolicy = FlushPolicy.ALWAYS,
    clock: HandClock | None = None,
    random: Random | None = None,
    open_files_max: int = 64,
) -> Store:
    workers = LaterWorkers(random)
    return await Store.open(
        directories or ("/data",),
        disk=disk,
        clock=clock or HandClock(),
        workers=workers,
        flush_workers=workers,
        policy=policy,
        entropy=_ENTROPY,
        open_files_max=open_files_max,
    )


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


async def append_durably(store: Store, log: Log, values: Sequence[bytes], **options: int) -> None:
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
