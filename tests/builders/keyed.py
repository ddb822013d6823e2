"""Builds logs of keyed records, reads them back, and computes the records that compaction must keep."""

from collections.abc import Sequence

from msgspec.structs import replace

from builders.logs import SMALL, commit, read, read_cold
from millstream.model.ids import Offset
from millstream.records.batch import decode_batch, encode_batch
from millstream.records.header import BatchHeader, each_batch, stamp
from millstream.records.record import Record
from millstream.storage.cleaning.cleaner import CleaningJob
from millstream.storage.log.log import Log
from millstream.storage.store import LogStore

Pair = tuple[bytes | None, bytes | None]
COMPACTED = replace(SMALL, compact=True, delete=False, min_cleanable_dirty_ratio=0.0, delete_retention_ms=1000)


def append_pairs(
    log: Log,
    pairs: Sequence[Pair],
    *,
    timestamp: int = 1_000,
    compression: str = "none",
    producer: tuple[int, int] | None = None,
    leader_epoch: int = 0,
) -> int:
    """Append one batch of keys and values, optionally with a producer id and sequence number; returns its offset."""
    producer_id, sequence = producer or (-1, -1)
    batch = encode_batch(
        [value for _, value in pairs],
        keys=[key for key, _ in pairs],
        timestamps=timestamp,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=0 if producer else -1,
        base_sequence=sequence,
    )
    offset = log.end_offset
    stamp(batch, base_offset=offset, leader_epoch=leader_epoch)
    log.append_run(memoryview(batch), [header for _, header in each_batch(batch)])
    return offset


async def append_pairs_durably(store: LogStore, log: Log, pairs: Sequence[Pair], **options: int) -> int:
    offset = append_pairs(log, pairs, **options)  # type: ignore[arg-type]
    committed = commit(log)
    if committed is not None:
        await committed
    return offset


def nobody_needs(header: BatchHeader) -> bool:
    return False


async def clean(store: LogStore, *logs: Log) -> list[Log]:
    """Run one round of compaction over the durable part of the logs."""
    return await store.clean([CleaningJob(log, log.flushed_offset, nobody_needs) for log in logs])


def batches_in(log: Log, max_bytes: int = 700) -> list[tuple[BatchHeader, list[Record]]]:
    """Read all batches and their records like a consumer, and assert that there is no gap."""
    found: list[tuple[BatchHeader, list[Record]]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = read(log, offset, max_bytes, log.end_offset)
        if data is None:
            data = read_cold(log, offset, max_bytes=max_bytes, end_offset=log.end_offset)
        assert data, f"nothing at {offset}, though {log} goes on"
        for position, header in each_batch(data):
            assert header.base_offset <= offset < header.next_offset, f"a gap in {log} at {offset}"
            found.append((header, decode_batch(data, position)))
            offset = Offset(header.next_offset)
    return found


def records_in(log: Log, max_bytes: int = 700) -> list[Record]:
    """Return all records from the log start on."""
    return [
        record for _, records in batches_in(log, max_bytes) for record in records if record.offset >= log.start_offset
    ]


def table_of(records: Sequence[Record]) -> dict[bytes | None, bytes]:
    """Return the last value of each key that was not deleted."""
    table: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
