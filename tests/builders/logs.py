"""Builds stores on a simulated disk, and logs with distinct values."""

import asyncio
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, TypeVar, cast
from uuid import UUID

from millstream.model.ids import LeaderEpoch, Offset, TopicId
from millstream.model.names import PartitionKey
from millstream.partition.watermark import ACKS_ALL, Acknowledgement, Watermark
from millstream.records.batch import decode_batches, encode_batch
from millstream.records.header import BatchHeader, each_batch, stamp
from millstream.seams.clock import Clock
from millstream.seams.disk import Disk
from millstream.storage.cleaning.cleaner import CleanerLimits
from millstream.storage.disk_reserve import NO_DISK_LIMITS, DiskLimits
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.clock import ManualClock
from millstream.testing.simulated.disk import PowerLoss
from millstream.testing.simulated.entropy import SimulatedEntropy
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.workers import SimulatedWorkers

T = TypeVar("T")
TOPIC = TopicId(UUID(int=1))
_ENTROPY = SimulatedEntropy(Random(0))
SMALL = LogSettings(segment_bytes=2000, segment_ms=-1, retention_ms=-1, index_interval_bytes=256)


def key(number: int) -> PartitionKey:
    return PartitionKey(TOPIC, number)


class _MachineLoop(SimulatedLoop):
    """The loop of one machine: a power loss in any callback ends it."""

    lost: PowerLoss | None = None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), PowerLoss):
            self.lost = context["exception"]
            self.stop()
        else:
            super().call_exception_handler(context)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run in simulated time; tasks that are pending when `main` ends are discarded, as in a crash."""
    loop = _MachineLoop()
    try:
        return loop.run_until_complete(main)
    except RuntimeError:
        if loop.lost is not None:
            raise loop.lost from None
        raise
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
    disk_limits: DiskLimits = NO_DISK_LIMITS,
) -> LogStore:
    """Open a store with simulated workers, by default in the directory `/data`."""
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
        disk_limits=disk_limits,
    )


def logs_of(store: LogStore) -> list[Log]:
    """Return all logs of a store, configured with small segments."""
    logs = [log for log in map(store.get, store.keys()) if log is not None]
    for log in logs:
        log.configure(SMALL)
    return logs


class FlushListener:
    """Completes acknowledgements like a leadership, and records truncations of the log."""

    def __init__(self, log: Log) -> None:
        self.watermark = Watermark(log.acknowledged_offset, leader_epoch=LeaderEpoch(0))
        self.written_headers: list[BatchHeader] = []
        self.failures: list[BaseException] = []
        self.truncated_to: list[int] = []
        self._log = log
        log.listen(self)

    def written(self, headers: Sequence[BatchHeader]) -> None:
        self.written_headers += headers

    def flushed(self) -> None:
        end = self._log.acknowledged_offset
        self.watermark.advance(own_flushed=end, high_watermark=end)

    def failed(self, offset: int, error: BaseException) -> None:
        self.failures.append(error)
        self.watermark.fail(Offset(offset), error)

    def truncated(self) -> None:
        self.truncated_to.append(self._log.end_offset)
        self.watermark.truncated(self._log.end_offset, self._log.health.storage_error("truncated"))


def commit(log: Log) -> Acknowledgement | None:
    """Request a flush of all appended batches; None if the flush policy needs none or all is flushed."""
    listener = log._listener if isinstance(log._listener, FlushListener) else FlushListener(log)
    return listener.watermark.acknowledge(log.end_offset - 1, acks=ACKS_ALL) if log.request_flush() else None


def append(log: Log, values: Sequence[bytes], *, batches: int = 1, timestamp: int = 1_000) -> None:
    """Append the values, as `batches` batches of one write."""
    whole = bytearray()
    headers = []
    offset: int = log.end_offset
    per_batch = max(1, len(values) // batches)
    for first in range(0, len(values), per_batch):
        batch = bytearray(encode_batch(values[first : first + per_batch], timestamps=timestamp))
        stamp(batch, base_offset=offset, leader_epoch=0)
        headers += [header for _, header in each_batch(batch)]
        offset += len(values[first : first + per_batch])
        whole += batch
    log.append_run(memoryview(whole), headers)


def read(log: Log, offset: int, max_bytes: int, end_offset: int) -> bytes | None:
    """Read whole batches from the one that contains `offset`, up to `end_offset`; None if the disk must be read."""
    found = log.reader.read(Offset(offset), max_bytes=max_bytes, end_offset=Offset(end_offset))
    return None if found is None else cast(bytes, found[0])


async def append_durably(store: LogStore, log: Log, values: Sequence[bytes], **options: int) -> None:
    append(log, values, **options)
    committed = commit(log)
    if committed is not None:
        await committed


def read_cold(log: Log, offset: Offset, *, max_bytes: int, end_offset: Offset) -> bytes:
    """Read whole batches from disk and verify each checksum."""
    found = log.reader.read(offset, max_bytes=max_bytes, end_offset=end_offset, cold=True)
    assert found is not None, "a cold read waits for the disk, so it returns data"
    return cast(bytes, found[0])


def values_of(log: Log, max_bytes: int = 700) -> dict[int, bytes]:
    """Read all values by offset like a consumer, and assert that each read has whole batches in order."""
    found: dict[int, bytes] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        data = read(log, offset, max_bytes, log.end_offset)
        if data is None:
            data = read_cold(log, offset, max_bytes=max_bytes, end_offset=log.end_offset)
        assert data, f"nothing at {offset}, though {log} goes on"
        for record in decode_batches(data):
            if record.offset >= log.start_offset:
                assert record.offset not in found, f"offset {record.offset} came twice"
                assert record.value is not None
                found[record.offset] = record.value
        offset = Offset(max(found) + 1)
    assert list(found) == list(range(log.start_offset, log.end_offset)), f"a gap in {log}"
    return found
