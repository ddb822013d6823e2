"""Opens batches, which means to decompress and walk them in a worker, before they are appended.

Four kinds of batches need this: batches of compacted topics, whose records need keys; batches of topics with a
compression of their own; batches with message ids (see `put_deduplication`); and uncompressed batches that are too
large to be walked on the event loop. All other batches are appended at once and without this cost.

Workers open a few batches at a time over all partitions, which bounds memory. The batches of one partition are opened
one after another and appended in their order of arrival, also if a producer has several in flight. When a batch is
open, the timestamp of every record is checked, not only those in the header.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.append_result import AppendResult
from millstream.partition.leadership import Leadership
from millstream.partition.produce_rules import InvalidRecords, check_produced, check_walked_times, walk
from millstream.records.batch import DECODED_BYTES_MAX, batch_body, seal
from millstream.records.compaction import keyless_records
from millstream.records.compression import Compression
from millstream.records.header import COMPRESSION_MASK, HEADER_BYTES, BatchHeader, Bytes, CorruptBatch
from millstream.records.record_walk import LOCKED_BYTES_MAX
from millstream.topics.settings import TopicSettings

AT_ONCE_MAX = 2
"""Maximum number of batches that are open at the same time."""

WAITING_BYTES_MAX = 512 * 1024 * 1024
"""Maximum bytes of waiting batches. It exceeds the limit of all connections together, so only the batches of closed
connections can reach it."""

_AS_PRODUCED = "producer"
_PLAIN = "uncompressed"


def wants_opened(settings: TopicSettings) -> bool:
    return settings.compact or settings.compression_type != _AS_PRODUCED


def open_produced(records: memoryview, settings: TopicSettings, now_ms: int) -> Bytes:
    """Check a batch, and return it as the topic stores it. Blocking. Raises the error for the producer."""
    return open_checked(records, check_produced(records, settings, now_ms), settings, now_ms)


def open_checked(records: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> Bytes:
    """Check the records of a batch that `check_produced` accepted, and return it as the topic stores it. Blocking.

    A compressed batch is opened only if the topic wants that. Raises InvalidRecords and INVALID_TIMESTAMP.
    """
    if header.compression and not wants_opened(settings):
        return records
    try:
        body = batch_body(records, 0, header, limit_bytes=DECODED_BYTES_MAX, verify=False)
    except CorruptBatch as error:
        raise InvalidRecords(error.detail, []) from None
    oldest, newest, keyless = walk(body, header)
    if settings.compact and keyless:
        _refuse_keyless(body, header)
    header = check_walked_times(records, header, settings, now_ms, oldest=oldest, newest=newest)
    return _stored(records, header, body, settings)


def _refuse_keyless(body: Bytes, header: BatchHeader) -> None:
    numbers = keyless_records(body, header.record_count, header.last_offset_delta)
    why = "a record in a compacted topic needs a key"
    raise InvalidRecords(f"{why}: record {numbers[0]} has none", [(number, why) for number in numbers])


def _stored(records: memoryview, header: BatchHeader, body: Bytes, settings: TopicSettings) -> Bytes:
    """Return the batch with the compression of the topic."""
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
    """The inspection of a batch in a worker is outdated and must be repeated."""


class AppendJob(Struct, frozen=True):
    """Two steps of appending a batch: `inspect` starts work in a worker, and `append` uses its result.

    Both `append` and the future of `inspect` may raise StaleInspectionError. Then both steps are repeated.
    """

    inspect: Callable[[Leadership, memoryview], asyncio.Future[Any]]
    append: Callable[[Leadership, Any, int], AppendResult]


def _open(partition: Leadership, records: memoryview) -> asyncio.Future[Bytes]:
    return partition.run(open_produced, records)


def _append(partition: Leadership, records: Bytes, acks: int) -> AppendResult:
    return partition.append(memoryview(records), acks, walked=True)


_PRODUCED = AppendJob(_open, _append)


class _Waiting(NamedTuple):
    records: memoryview
    acks: int
    job: AppendJob
    appended: asyncio.Future[AppendResult]


class BatchOpener:
    """Opens and appends batches.

    Invariant: a partition is in `_queues` while it has batches that are not appended yet. At most the first of them is
    being opened.
    """

    def __init__(self) -> None:
        self._queues: dict[Leadership, deque[_Waiting]] = {}
        self._ready: deque[Leadership] = deque()
        self._open = 0
        self._waiting_bytes = 0

    def is_needed(self, partition: Leadership, size_bytes: int) -> bool:
        """True if a batch of this size must be opened for this partition, or must wait for earlier batches that are."""
        settings = partition.settings
        is_wanted = settings.compact or settings.compression_type != _AS_PRODUCED
        is_long_walk = size_bytes > LOCKED_BYTES_MAX and partition.walks_records
        return is_wanted or is_long_walk or (bool(self._queues) and partition in self._queues)

    def append(
        self, partition: Leadership, records: memoryview, acks: int, job: AppendJob = _PRODUCED
    ) -> asyncio.Future[AppendResult]:
        """Open a batch and append it. The future raises the errors of `Leadership.append`, or InvalidRecords."""
        appended: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        if self._waiting_bytes > WAITING_BYTES_MAX:
            appended.set_exception(
                MillstreamError(ErrorCode.REQUEST_TIMED_OUT, "too many batches wait to be decoded; retry later")
            )
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
        assert len(self._ready) + self._open == len(self._queues), (
            "the first batch of each partition is ready or being opened"
        )
        while self._ready and self._open < AT_ONCE_MAX:
            partition = self._ready.popleft()
            self._open += 1
            first = self._queues[partition][0]
            work = first.job.inspect(partition, first.records)
            work.add_done_callback(partial(self._opened, partition))

    def _opened(self, partition: Leadership, work: asyncio.Future[Any]) -> None:
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

    def _next(self, partition: Leadership, size_bytes: int) -> None:
        """Remove the first batch of a partition and make the next one ready."""
        queue = self._queues[partition]
        queue.popleft()
        self._waiting_bytes -= size_bytes
        assert self._waiting_bytes >= 0, "the bytes of waiting batches are counted once"
        if queue:
            self._ready.append(partition)
        else:
            del self._queues[partition]
