"""Batches that lose records and keep their place: what compaction makes of a batch.

A log has no gaps: every offset lies within a batch. So a batch that loses records keeps its first and its last offset,
and what is gone altogether is covered by a batch without records. Readers of all kinds go on behind the last offset of
such a batch. The records that stay are copied byte by byte.
"""

from millstream.records.batch import seal
from millstream.records.header import COMPRESSION_MASK, DELETE_HORIZON, HEADER_BYTES, MAGIC, BatchHeader, Bytes
from millstream.records.record_keys import SLOT_BYTES, OffsetMap, filter_records, inspect_records

__all__ = ["OFFSETS_MAX", "SLOT_BYTES", "OffsetMap", "emptied", "filler", "inspect_records", "reduced"]

OFFSETS_MAX = 2**31 - 1
"""So many offsets one batch can cover."""

_NO_TIME = -1


def reduced(header: BatchHeader, body: Bytes, kept: bytearray, horizon_ms: int | None = None) -> bytearray:
    """The batch with only the records that `kept` marks, at least one; `body` is what `batch_body` gives.

    With `horizon_ms`, that becomes the batch's delete horizon; the records' times stay what they are.
    Raises CorruptBatch when the body is none.
    """
    base_timestamp, attributes = header.base_timestamp, header.attributes
    if horizon_ms is not None:
        base_timestamp, attributes = horizon_ms, attributes | DELETE_HORIZON
    batch, largest_delta = filter_records(
        body,
        header.record_count,
        header.last_offset_delta,
        kept,
        header.base_timestamp - base_timestamp,
        HEADER_BYTES,
    )
    return seal(
        batch,
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if header.is_log_append_time else base_timestamp + largest_delta,
            record_count=sum(kept),
        ),
    )


def emptied(header: BatchHeader) -> bytearray:
    """The batch without any record: its producer, its sequence numbers and its offsets are still told."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)
    return seal(bytearray(HEADER_BYTES), header._replace(attributes=attributes, record_count=0))


def filler(base_offset: int, next_offset: int, leader_epoch: int) -> bytearray:
    """A batch without records for the offsets before `next_offset`, no more than `OFFSETS_MAX` of them."""
    assert 0 < next_offset - base_offset <= OFFSETS_MAX, "a batch covers some offsets, and not too many"
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=next_offset - base_offset - 1,
        base_timestamp=_NO_TIME,
        max_timestamp=_NO_TIME,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return seal(bytearray(HEADER_BYTES), header)
