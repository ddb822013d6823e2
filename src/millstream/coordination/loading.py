"""Rebuilds a machine's state from the log of its partition: workers read and decode, the event loop replays in slices.

Many partitions load when a broker starts. They take turns. So each turn of the event loop replays one slice of one
partition, and only one worker competes with the loop for the interpreter. Reads from disk continue meanwhile.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from millstream.coordination.effects import LogRecord
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.partition.leadership import Leadership
from millstream.records.batch import decode_batches
from millstream.records.header import each_batch
from millstream.seams.workers import Workers

READ_BYTES = 1024 * 1024
"""Size of the parts in which the log is read and decoded."""

SLICE = 100
SLICE_BYTES = 64 * 1024
"""A slice ends after `SLICE` records, or with the record that reaches this many bytes of values."""

READABLE_WITHIN_S = 5.0
"""How long a replay waits for the high watermark before it fails; the caller retries later."""

Replay = Callable[[LogRecord, int], None]
"""Takes a record and its offset."""


class _DecodedPart(Struct, frozen=True):
    records: list[tuple[int, LogRecord]]
    next_offset: Offset


async def replay_log(partition: Leadership, workers: Workers, replay: Replay, turn: asyncio.Lock) -> None:
    """Replays the whole log in order. Waits for the high watermark if the end of the log is not readable yet. Holds
    `turn` during each slice.

    Raises KAFKA_STORAGE_ERROR if the log cannot be read now or was truncated meanwhile; PARTITION_QUARANTINED or
    CorruptBatch if it is damaged. The caller must then discard the partly replayed state.
    """
    if partition.is_suspended:
        raise _unsettled(partition)
    truncations = partition.log.truncations
    offset = Offset(partition.log.start_offset)
    while offset < partition.log.end_offset:
        if offset >= partition.high_watermark:
            await _readable(partition, offset)
        data, _ = await partition.reader.read_cold(offset, max_bytes=READ_BYTES)
        if not data:
            raise _unsettled(partition)
        async with turn:
            part = await workers.run(partial(_decode, data, offset))
            for records in _slices(part.records):
                for at, record in records:
                    replay(record, at)
                await asyncio.sleep(0)
        offset = part.next_offset
    if partition.is_suspended or partition.log.truncations != truncations:
        raise _unsettled(partition)


async def _readable(partition: Leadership, offset: Offset) -> None:
    """Waits until the high watermark has passed `offset`. Waiters are not informed of a truncation, hence the
    timeout."""
    readable = asyncio.Event()
    cancel = partition.wait(offset, readable.set)
    try:
        async with asyncio.timeout(READABLE_WITHIN_S):
            await readable.wait()
    except TimeoutError:
        raise _unsettled(partition) from None
    finally:
        cancel()


def _slices(records: Sequence[tuple[int, LogRecord]]) -> Iterator[Sequence[tuple[int, LogRecord]]]:
    first = size = 0
    for at, (_, record) in enumerate(records):
        size += len(record.value or b"")
        if at - first + 1 == SLICE or size >= SLICE_BYTES or at == len(records) - 1:
            yield records[first : at + 1]
            first, size = at + 1, 0


def _decode(data: bytes, offset: Offset) -> _DecodedPart:
    """Returns the records from `offset` on.

    A batch from which compaction removed all records still defines the offset of the next batch.
    """
    records = [
        (record.offset, LogRecord(record.key, record.value))
        for record in decode_batches(data)
        if record.offset >= offset and record.key is not None
    ]
    next_offset = offset
    for _, header in each_batch(data):
        next_offset = Offset(header.next_offset)
    return _DecodedPart(records, next_offset)


def _unsettled(partition: Leadership) -> MillstreamError:
    detail = f"{partition.topic}-{partition.number} has records that are not durable yet"
    return MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, detail)
