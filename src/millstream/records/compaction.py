"""Creates batches with fewer records, or with none, for compaction.

A log has no gaps: every offset is within a batch. So a batch that loses records keeps its first and its last offset. A
batch without records covers offsets that are removed completely. All readers continue after the last offset of such a
batch. The remaining records are copied byte by byte.
"""

from millstream.model.ids import LeaderEpoch, Offset
from millstream.model.limits import NO_PRODUCER_ID
from millstream.records.batch import seal
from millstream.records.header import COMPRESSION_MASK, DELETE_HORIZON, HEADER_BYTES, MAGIC, BatchHeader, Bytes
from millstream.records.record_keys import SLOT_BYTES, OffsetMap, filter_records, keyless_records

__all__ = ["OFFSETS_MAX", "SLOT_BYTES", "OffsetMap", "emptied", "filler", "keyless_records", "reduced"]

OFFSETS_MAX = 2**31 - 1
"""The maximum number of offsets that one batch can cover."""

_NO_TIME = -1


def reduced(header: BatchHeader, body: Bytes, kept: bytearray, horizon_ms: int | None = None) -> bytearray:
    """Encode the batch with only the records that `kept` marks, at least one. `body` comes from `batch_body`.

    `horizon_ms` becomes the batch's delete horizon; the records' timestamps stay unchanged. Raises CorruptBatch if the
    body is invalid.
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
    """Encode the batch without records. Producer, sequence numbers and offsets stay in its header."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)
    return seal(bytearray(HEADER_BYTES), header._replace(attributes=attributes, record_count=0))


def filler(*, base_offset: int, next_offset: int, leader_epoch: int) -> bytearray:
    """Encode a batch without records for the offsets before `next_offset`, at most `OFFSETS_MAX` of them."""
    assert 0 < next_offset - base_offset <= OFFSETS_MAX, "the number of offsets fits into one batch"
    header = BatchHeader(
        base_offset=Offset(base_offset),
        batch_length=0,
        leader_epoch=LeaderEpoch(leader_epoch),
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=next_offset - base_offset - 1,
        base_timestamp=_NO_TIME,
        max_timestamp=_NO_TIME,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return seal(bytearray(HEADER_BYTES), header)
