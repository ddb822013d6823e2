"""Batches that are opened before they are appended: those of compacted topics, whose records need keys, of topics that
store with a compression of their own, and those with message ids (see `put_deduplication`). All others are taken
unopened, and none of this costs them anything.

Batches are opened in workers, a few at a time for all partitions together, so that memory is bounded; those of one
partition one after another, so that they are appended in the order in which they came, also where a producer has
several under way. Each record's time is then held to the topic's rules, not only those that the header tells.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import NO_TIMESTAMP
from millstream.partition.append_result import AppendResult
from millstream.partition.partition import Partition
from millstream.partition.produce_rules import check_produced, check_times
from millstream.records.batch import DECODED_BYTES_MAX, batch_body, seal
from millstream.records.compaction import inspect_records
from millstream.records.compression import Compression
from millstream.records.header import COMPRESSION_MASK, HEADER_BYTES, BatchHeader, Bytes, CorruptBatch
from millstream.topics.settings import TopicSettings

AT_ONCE_MAX = 2
"""Batches that are open at the same time."""

WAITING_BYTES_MAX = 512 * 1024 * 1024
"""More than connections may hold together; only what those left behind that are gone gets there."""

_AS_PRODUCED = "producer"
_PLAIN = "uncompressed"


class InvalidRecords(MillstreamError):  # noqa: N818 - named as the error that it is on the wire
    """Some records of a batch cannot be taken, so none are."""

    def __init__(self, detail: str, records: list[tuple[int, str | None]]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, detail)
        self.records = records
        """The places in the batch of those that are to blame, each with the reason."""


def wants_opened(settings: TopicSettings) -> bool:
    return settings.compact or settings.compression_type != _AS_PRODUCED


def open_produced(records: memoryview, settings: TopicSettings, now_ms: int, ids: int = 0) -> Bytes:
    """The batch as the topic stores it (blocking); raises what a producer is to be told when it is not acceptable.

    `ids` as for `check_produced`.
    """
    header = check_produced(records, settings, now_ms, ids)
    try:
        body = batch_body(records, 0, header, limit_bytes=DECODED_BYTES_MAX, verify=False)
        lowest, highest, keyless = inspect_records(body, header.record_count, header.last_offset_delta)
    except CorruptBatch as error:
        raise MillstreamError(ErrorCode.INVALID_RECORD, error.detail) from None
    if settings.compact and keyless:
        why = "a compacted topic needs keys"
        raise InvalidRecords(f"{why}: record {keyless[0]} has none", [(number, why) for number in keyless])
    base = header.base_timestamp
    if not settings.log_append_time and base != NO_TIMESTAMP:
        check_times(base + lowest, base + highest, settings, now_ms)
    return _stored(records, header, body, settings)


def _stored(records: memoryview, header: BatchHeader, body: Bytes, settings: TopicSettings) -> Bytes:
    """The batch with the compression that the topic wants."""
    name = settings.compression_type
    if name == _AS_PRODUCED:
        return records
    wanted = Compression.NONE if name == _PLAIN else Compression.named(name)
    if header.compression == wanted:
        return records
    batch = bytearray(HEADER_BYTES)
    batch += body
    attributes = header.attributes & ~COMPRESSION_MASK | wanted
    return seal(batch, header._replace(attributes=attributes), settings.compression_level)


class StaleInspectionError(MillstreamError):
    """What was found out about a batch in a worker does not hold any more: it must be looked at once more."""


class AppendJob(NamedTuple):
    """How a batch is looked at, beginning on the event loop, and how it is appended with what that gave.

    The second may raise StaleInspectionError, and so may the first by its future; then both are done once more.
    """

    look: Callable[[Partition, memoryview], asyncio.Future[Any]]
    append: Callable[[Partition, Any, int], AppendResult]


def _open(partition: Partition, records: memoryview) -> asyncio.Future[Bytes]:
    return partition.run(open_produced, records)


def _append(partition: Partition, records: Bytes, acks: int) -> AppendResult:
    return partition.append(memoryview(records), acks)


_PRODUCED = AppendJob(_open, _append)


class _Waiting(NamedTuple):
    records: memoryview
    acks: int
    job: AppendJob
    appended: asyncio.Future[AppendResult]


class BatchOpener:
    """Opens and appends. Invariant: a partition is among `_queues` while it has batches that are not appended yet, and
    at most the first of them is being opened."""

    def __init__(self) -> None:
        self._queues: dict[Partition, deque[_Waiting]] = {}
        self._ready: deque[Partition] = deque()
        self._open = 0
        self._waiting_bytes = 0

    def is_needed(self, partition: Partition) -> bool:
        """Whether a batch for this partition has to come this way: also behind others that did."""
        return wants_opened(partition.settings) or partition in self._queues

    def append(
        self, partition: Partition, records: memoryview, acks: int, job: AppendJob = _PRODUCED
    ) -> asyncio.Future[AppendResult]:
        """As `Partition.append`, when the batch was opened; the future raises what that raises, or InvalidRecords."""
        appended: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        if self._waiting_bytes > WAITING_BYTES_MAX:
            appended.set_exception(MillstreamError(ErrorCode.REQUEST_TIMED_OUT, "too many batches wait to be opened"))
            return appended
        self._waiting_bytes += len(records)
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = deque()
            self._ready.append(partition)
        queue.append(_Waiting(records, acks, job, appended))
        self._go_on()
        return appended

    def _go_on(self) -> None:
        while self._ready and self._open < AT_ONCE_MAX:
            partition = self._ready.popleft()
            self._open += 1
            first = self._queues[partition][0]
            work = first.job.look(partition, first.records)
            work.add_done_callback(partial(self._opened, partition))

    def _opened(self, partition: Partition, work: asyncio.Future[Any]) -> None:
        self._open -= 1
        queue = self._queues[partition]
        records, acks, job, appended = queue[0]
        try:
            result = job.append(partition, work.result(), acks)
        except StaleInspectionError:
            self._ready.append(partition)
            self._go_on()
            return
        except Exception as error:
            self._next(partition, len(records))
            appended.set_exception(error)
        else:
            self._next(partition, len(records))
            appended.set_result(result)
        self._go_on()

    def _next(self, partition: Partition, size_bytes: int) -> None:
        """The first of a partition's batches is done with."""
        queue = self._queues[partition]
        queue.popleft()
        self._waiting_bytes -= size_bytes
        if queue:
            self._ready.append(partition)
        else:
            del self._queues[partition]
