"""From the log of one partition back to the state it tells of: read and opened by workers, replayed in slices.

Many partitions load at a start. They take turns, so that in each turn of the event loop one slice of one of them is
replayed, and only one worker competes with the loop for the interpreter; reading goes on meanwhile.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from millstream.groups.effects import GroupLogRecord
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.partition import Partition
from millstream.records.batch import decode_batches
from millstream.records.header import each_batch
from millstream.seams.workers import Workers

READ_BYTES = 1024 * 1024
"""So much of the log is read and opened at a time."""

SLICE = 100
SLICE_BYTES = 64 * 1024
"""So many records are replayed before others get their turn, and not more than one beyond so many bytes."""

Replay = Callable[[GroupLogRecord, int], None]
"""Takes a record and its offset."""


class _Opened(NamedTuple):
    records: list[tuple[int, GroupLogRecord]]
    next_offset: int


async def replay_log(partition: Partition, workers: Workers, replay: Replay, turn: asyncio.Lock) -> int:
    """Replay everything, in order, and give the offset at which the log ends. `turn` is held while it is replayed.

    Raises KAFKA_STORAGE_ERROR when the log cannot be read now, or was cut or not wholly durable when its end was
    reached; PARTITION_QUARANTINED or CorruptBatch when it is damaged. What was replayed by then is worth nothing.
    """
    cuts, end = partition.cuts, partition.log.end_offset
    offset = partition.log.start_offset
    while offset < end:
        data = await partition.read_cold(offset, READ_BYTES)
        if not data:
            raise _unsettled(partition)
        async with turn:
            opened = await workers.run(partial(_open, data, offset))
            for records in _slices(opened.records):
                for at, record in records:
                    replay(record, at)
                await asyncio.sleep(0)
        offset = opened.next_offset
    if partition.is_suspended or partition.cuts != cuts or partition.log.end_offset != end:
        raise _unsettled(partition)
    return end


def _slices(records: Sequence[tuple[int, GroupLogRecord]]) -> Iterator[Sequence[tuple[int, GroupLogRecord]]]:
    first = size = 0
    for at, (_, record) in enumerate(records):
        size += len(record.value or b"")
        if at - first + 1 == SLICE or size >= SLICE_BYTES or at == len(records) - 1:
            yield records[first : at + 1]
            first, size = at + 1, 0


def _open(data: bytes, offset: int) -> _Opened:
    """The records from `offset` on. A batch without any is what the cleaner leaves: it says where the next one is."""
    records = [
        (record.offset, GroupLogRecord(record.key, record.value))
        for record in decode_batches(data)
        if record.offset >= offset and record.key is not None
    ]
    next_offset = offset
    for _, header in each_batch(data):
        next_offset = header.next_offset
    return _Opened(records, next_offset)


def _unsettled(partition: Partition) -> MillstreamError:
    return MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.topic}-{partition.number} is not settled yet")
