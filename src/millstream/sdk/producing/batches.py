"""Encodes batches, writes sequence numbers into encoded batches, and splits batches."""

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import ID_HEADER
from millstream.records.batch import batch_attributes, decode_batch, encode_batch
from millstream.records.checksum import crc32c
from millstream.records.header import CRC_START, HEADER_BYTES, MADE_IDS
from millstream.records.record import Record, RecordHeader
from millstream.sdk.producing.chunk import ProducerBatch, ProducerChunk
from millstream.sdk.producing.row_partitioning import picked
from millstream.sdk.responses import ProducerIdentity

if TYPE_CHECKING:
    from millstream.records.arrow import TableRows

NOBODY = ProducerIdentity(-1, -1)

_PRODUCER_AT = 43
_pack_producer = struct.Struct(">qhi").pack_into
_pack_crc = struct.Struct(">I").pack_into
_ATTRIBUTES = struct.Struct(">h")
_unpack_attributes, _pack_attributes = _ATTRIBUTES.unpack_from, _ATTRIBUTES.pack_into


def has_ids(batch: ProducerBatch) -> bool:
    """Return True if messages of the batch have ids of their own, which then replace the sequence number.

    With acks=0 it is always false: brokers refuse ids without an acknowledgement.
    """
    if batch.chunk.options.acks == 0:
        return False
    if batch.is_claimed:
        return batch.ids is not None
    ids = batch.chunk.ids
    return ids is not None and any(ids[row] is not None for row in batch.places())


def number(batch: ProducerBatch, identity: ProducerIdentity, sequence: int) -> None:
    """Give the batch a producer id and a sequence number, also in its bytes. Encodes the batch if necessary.

    A batch whose messages have ids gets none. A batch whose number is part of an id that the caller has read keeps its
    number. Raises INVALID_RECORD if the messages cannot be encoded.
    """
    chunk: ProducerChunk = batch.chunk
    with chunk.receipt_waiters.lock:
        if batch.is_shown and batch.encoded is not None:
            return
        is_new = claim_ids(batch)
        if batch.ids is not None:
            identity, sequence = NOBODY, -1
        is_same = (identity, sequence) == (batch.identity, batch.base_sequence)
        batch.identity, batch.base_sequence = identity, sequence
        batch.is_claimed = True
    if batch.encoded is None:
        keep(batch, encode(batch))
    elif is_new:
        batch.encoded = with_own_ids(batch)
    elif not is_same:
        _pack_producer(batch.encoded, _PRODUCER_AT, *identity, sequence)
        if not mark(batch, made_ids=sequence >= 0):
            _write_crc(batch.encoded)


def claim_ids(batch: ProducerBatch) -> bool:
    """Switch the batch to message ids if its messages have some; returns whether the batch has changed."""
    chunk: ProducerChunk = batch.chunk
    with chunk.receipt_waiters.lock:
        if batch.ids is not None or not has_ids(batch):
            return False
        batch.ids = [chunk.receipt_waiters.own_id(chunk, row) for row in batch.places()]
        batch.is_claimed = True
        return True


def keep(batch: ProducerBatch, encoded: bytearray) -> None:
    """Store the encoded bytes of a batch. The chunk drops its rows after its last batch."""
    batch.encoded = encoded
    batch.chunk.unencoded -= 1
    if batch.chunk.unencoded == 0:
        batch.chunk.drop_rows()


def with_own_ids(batch: ProducerBatch) -> bytearray:
    """Encode the batch again, with its current ids."""
    return _encode_records(batch.chunk, decode_batch(batch.encoded), batch.ids)


def mark(batch: ProducerBatch, *, made_ids: bool) -> bool:
    """Set or clear the attribute bit for made ids, which saves Millstream brokers work; other brokers ignore it.

    Returns whether the bit has changed; then the checksum is updated too.
    """
    (attributes,) = _unpack_attributes(batch.encoded, CRC_START)
    if bool(attributes & MADE_IDS) == made_ids:
        return False
    _pack_attributes(batch.encoded, CRC_START, attributes ^ MADE_IDS)
    _write_crc(batch.encoded)
    return True


def _write_crc(encoded: bytearray) -> None:
    _pack_crc(encoded, CRC_START - 4, crc32c(memoryview(encoded)[CRC_START:]))


def take_back(batch: ProducerBatch) -> bool:
    """Remove the sequence number of a batch that was not stored, so that the next batch can use it.

    Returns False if the caller has read an id with this number. Ids that are read afterwards do not contain it.
    """
    with batch.chunk.receipt_waiters.lock:
        if batch.is_shown:
            return False
        batch.identity, batch.base_sequence = NOBODY, -1
        return True


def encode(batch: ProducerBatch) -> bytearray:
    """Encode a batch, in any thread; raises INVALID_RECORD. A batch without a number gets producer id -1.

    The rows must not be dropped meanwhile.
    """
    try:
        return _encode_columns(batch) if batch.chunk.table is None else _encode_table(batch)
    except (TypeError, ValueError, OverflowError) as error:  # For example timestamps too far apart.
        raise MillstreamError(ErrorCode.INVALID_RECORD, f"the messages cannot be encoded: {error}") from error


def _encode_table(batch: ProducerBatch) -> bytearray:
    chunk: ProducerChunk = batch.chunk
    table: TableRows = chunk.table
    producer_id, epoch = batch.identity or NOBODY
    attributes = batch_attributes(chunk.options.compression, made_ids=batch.base_sequence >= 0)
    header = table.header(attributes, producer_id=producer_id, producer_epoch=epoch, base_sequence=batch.base_sequence)
    start = chunk.start if batch.start < 0 else batch.start
    limit_bytes = HEADER_BYTES + chunk.size_bytes
    order = None if batch.start < 0 else chunk.order
    end, level = start + batch.count, chunk.options.level
    encoded, count = table.encode(
        start,
        end=end,
        header=header,
        batch_bytes=limit_bytes,
        level=level,
        order=order,
        used=chunk.receipt_waiters.used_buffer(),
    )
    assert count == batch.count, "the estimated size of a table piece was too small"
    return encoded if batch.ids is None else _encode_records(chunk, decode_batch(encoded), batch.ids)


def _encode_columns(batch: ProducerBatch) -> bytearray:
    chunk: ProducerChunk = batch.chunk
    times = chunk.timestamps
    producer_id, epoch = batch.identity or NOBODY
    headers = picked(chunk.headers, batch.rows)
    if batch.ids is not None:
        headers = with_ids([None] * batch.count if headers is None else headers, batch.ids)
    return encode_batch(
        picked(chunk.values, batch.rows),
        keys=picked(chunk.keys, batch.rows),
        headers=headers,
        timestamps=times if isinstance(times, int) else picked(times, batch.rows),
        compression=chunk.options.compression,
        level=chunk.options.level,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=batch.base_sequence,
        made_ids=batch.base_sequence >= 0,
        used=chunk.receipt_waiters.used_buffer(),
    )


def encoded_parts(batch: ProducerBatch, positions: Sequence[Sequence[int]]) -> list[bytearray]:
    """Encode parts of a batch. Each part has the messages at the given positions."""
    records = decode_batch(batch.encoded)
    return [_encode_records(batch.chunk, [records[at] for at in share]) for share in positions]


def parts(
    batch: ProducerBatch,
    positions: Sequence[Sequence[int]],
    encoded: Sequence[bytearray],
    partitions: Sequence[int] | None = None,
) -> list[ProducerBatch]:
    """Replace a batch by parts, with the bytes from `encoded_parts`. Each message is in one part.

    The batch has ids, or no number any more. A message whose id is read meanwhile gets its own id, and its part is sent
    with ids. `partitions` has the partition of each part; by default it is that of the batch.
    """
    assert batch.base_sequence < 0, "a batch with a sequence number must not be split"
    rows = batch.places()
    made: list[ProducerBatch] = []
    for at_part, share in enumerate(positions):
        partition = batch.partition if partitions is None else partitions[at_part]
        part = ProducerBatch(batch.chunk, partition, [rows[at] for at in share], 0)
        part.held_bytes = batch.held_bytes * part.count // batch.count
        part.is_claimed = batch.ids is not None
        part.ids = None if batch.ids is None else [batch.ids[at] for at in share]
        part.encoded = encoded[at_part]
        made.append(part)
    made[-1].held_bytes += batch.held_bytes - sum(part.held_bytes for part in made)
    with batch.chunk.receipt_waiters.lock:
        for part in made:
            batch.chunk.assign(part)
    batch.chunk.unsettled += len(made) - 1
    return made


def _encode_records(chunk: ProducerChunk, records: Sequence[Record], ids: Sequence[bytes] | None = None) -> bytearray:
    """Encode records as a batch without a sequence number, with these ids if given."""
    headers = [record.headers for record in records]
    return encode_batch(
        [record.value for record in records],
        keys=[record.key for record in records],
        headers=headers if ids is None else with_ids(headers, ids),
        timestamps=[record.timestamp for record in records],
        compression=chunk.options.compression,
        level=chunk.options.level,
    )


def with_ids(headers: Sequence[Any], ids: Sequence[bytes]) -> list[list[RecordHeader]]:
    """Return each row's headers with the id header appended."""
    return [[*(pairs or ()), (ID_HEADER, own)] for pairs, own in zip(headers, ids, strict=True)]
