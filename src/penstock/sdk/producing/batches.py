"""A batch's bytes: encoded once, given identity and sequence number without being opened, and halved when too large."""

import struct
from collections.abc import Sequence
from typing import Any

from penstock.records.batch import decode_batch, encode_batch
from penstock.records.checksum import crc32c
from penstock.records.header import CRC_START
from penstock.sdk.answers import ProducerIdentity
from penstock.sdk.producing._chunk import Batch, Chunk

NOBODY = ProducerIdentity(-1, -1)

_PRODUCER_AT = 43
_pack_producer = struct.Struct(">qhi").pack_into
_pack_crc = struct.Struct(">I").pack_into


def number(batch: Batch, identity: ProducerIdentity, sequence: int) -> None:
    """Give the batch these, in its bytes too, which are made now if they are not there."""
    if batch.encoded is None:
        batch.encoded = _encode(batch, identity, sequence)
        batch.chunk.unencoded -= 1
        if batch.chunk.unencoded == 0:
            batch.chunk.drop_rows()
    elif (identity, sequence) != (batch.identity, batch.base_sequence):
        _pack_producer(batch.encoded, _PRODUCER_AT, *identity, sequence)
        _pack_crc(batch.encoded, CRC_START - 4, crc32c(memoryview(batch.encoded)[CRC_START:]))
    batch.identity = identity
    batch.base_sequence = sequence


def _encode(batch: Batch, identity: ProducerIdentity, sequence: int) -> bytearray:
    chunk: Chunk = batch.chunk
    times = chunk.timestamps
    return encode_batch(
        _picked(chunk.values, batch.rows),
        keys=_picked(chunk.keys, batch.rows),
        headers=_picked(chunk.headers, batch.rows),
        timestamps=times if isinstance(times, int) else _picked(times, batch.rows),
        compression=chunk.options.compression,
        level=chunk.options.level,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=sequence,
    )


def _picked(column: list[Any] | None, rows: Sequence[int] | None) -> Any:
    if column is None or rows is None:
        return column
    return [column[row] for row in rows]


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """Two batches in the place of one that its topic finds too large: each with half of the rows."""
    records = decode_batch(batch.encoded)
    rows = batch.rows if batch.rows is not None else list(range(batch.count))
    middle = batch.count // 2
    made: list[Batch] = []
    for start, end in ((0, middle), (middle, batch.count)):
        held_bytes = batch.held_bytes * middle // batch.count if start == 0 else batch.held_bytes - made[0].held_bytes
        half = Batch(batch.chunk, batch.partition, rows[start:end], held_bytes)
        part = records[start:end]
        half.encoded = encode_batch(
            [record.value for record in part],
            keys=[record.key for record in part],
            headers=[record.headers for record in part],
            timestamps=[record.timestamp for record in part],
            compression=batch.chunk.options.compression,
            level=batch.chunk.options.level,
        )
        made.append(half)
    for half in made:
        batch.chunk.assign(half)
    batch.chunk.unsettled += 1
    return made[0], made[1]
