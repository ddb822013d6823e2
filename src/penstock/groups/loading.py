"""From the log of one partition back to the state it tells of: read and opened by workers, replayed in slices."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from penstock.groups.effects import Record
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.workers import Workers
from penstock.partition.partition import Partition
from penstock.records.batch import decode_batches
from penstock.records.header import each_batch

READ_BYTES = 1024 * 1024
"""So much of the log is read and opened at a time."""

SLICE = 1_000
"""So many records are replayed before others get their turn."""

Replay = Callable[[Record, int], None]
"""Takes a record and its offset."""


class _Opened(NamedTuple):
    records: list[tuple[int, Record]]
    next_offset: int


async def replay_log(partition: Partition, workers: Workers, replay: Replay) -> int:
    """Replay everything, in order, and give the offset at which the log ends.

    Raises KAFKA_STORAGE_ERROR when the log cannot be read now, or was cut or not wholly durable when its end was
    reached; PARTITION_QUARANTINED or CorruptBatch when it is damaged. What was replayed by then is worth nothing.
    """
    cuts, end = partition.cuts, partition.log.end_offset
    offset = partition.log.start_offset
    while offset < end:
        data = await partition.read_cold(offset, READ_BYTES)
        if not data:
            raise _unsettled(partition)
        opened = await workers.run(lambda data=data, offset=offset: _open(data, offset))  # type: ignore[misc]
        for first in range(0, len(opened.records), SLICE):
            for at, record in opened.records[first : first + SLICE]:
                replay(record, at)
            await asyncio.sleep(0)
        offset = opened.next_offset
    if partition.is_suspended or partition.cuts != cuts or partition.log.end_offset != end:
        raise _unsettled(partition)
    return end


def _open(data: bytes, offset: int) -> _Opened:
    """The records from `offset` on. A batch without any is what the cleaner leaves: it says where the next one is."""
    records = [
        (record.offset, Record(record.key, record.value))
        for record in decode_batches(data)
        if record.offset >= offset and record.key is not None
    ]
    next_offset = offset
    for _, header in each_batch(data):
        next_offset = header.next_offset
    return _Opened(records, next_offset)


def _unsettled(partition: Partition) -> PenstockError:
    return PenstockError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.topic}-{partition.number} is not settled yet")
