"""A batch's bytes: encoded once, numbered without being opened, and taken apart if need be."""

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from penstock.model.message_id import ID_HEADER, MADE_PREFIX
from penstock.records.batch import decode_batch, encode_batch
from penstock.records.checksum import crc32c
from penstock.records.header import CRC_START
from penstock.sdk.answers import ProducerIdentity
from penstock.sdk.producing._chunk import Batch, Chunk

NOBODY = ProducerIdentity(-1, -1)

_PRODUCER_AT = 43
_pack_producer = struct.Struct(">qhi").pack_into
_pack_crc = struct.Struct(">I").pack_into


def rows_of(batch: Batch) -> Sequence[int]:
    """The rows of the batch in its chunk."""
    return range(batch.count) if batch.rows is None else batch.rows


def has_ids(batch: Batch) -> bool:
    """Whether messages of the batch have ids of their own, so that it goes under those and not under a number."""
    if batch.is_claimed:
        return batch.ids is not None
    ids = batch.chunk.ids
    return ids is not None and any(ids[row] is not None for row in rows_of(batch))


def number(batch: Batch, identity: ProducerIdentity, sequence: int) -> None:
    """Give the batch this number, in its bytes too, which are made now if they are not there.

    A batch whose messages have ids gets none: it is known by them.
    """
    chunk: Chunk = batch.chunk
    with chunk.desk.lock:
        if has_ids(batch):
            identity, sequence = NOBODY, -1
            if batch.ids is None:
                batch.ids = [chunk.desk.own_id(chunk, row) for row in rows_of(batch)]
        is_same = (identity, sequence) == (batch.identity, batch.base_sequence)
        batch.identity, batch.base_sequence = identity, sequence
        batch.is_claimed = True
    if batch.encoded is None:
        batch.encoded = _encode(batch)
        chunk.unencoded -= 1
        if chunk.unencoded == 0:
            chunk.drop_rows()
    elif not is_same:
        _pack_producer(batch.encoded, _PRODUCER_AT, *identity, sequence)
        _pack_crc(batch.encoded, CRC_START - 4, crc32c(memoryview(batch.encoded)[CRC_START:]))


def _encode(batch: Batch) -> bytearray:
    chunk: Chunk = batch.chunk
    times = chunk.timestamps
    headers = _picked(chunk.headers, batch.rows)
    if batch.ids is not None:
        given = [None] * batch.count if headers is None else headers
        headers = [[*(pairs or ()), (ID_HEADER, own)] for pairs, own in zip(given, batch.ids, strict=True)]
    return encode_batch(
        _picked(chunk.values, batch.rows),
        keys=_picked(chunk.keys, batch.rows),
        headers=headers,
        timestamps=times if isinstance(times, int) else _picked(times, batch.rows),
        compression=chunk.options.compression,
        level=chunk.options.level,
        producer_id=batch.identity.producer_id,
        producer_epoch=batch.identity.epoch,
        base_sequence=batch.base_sequence,
    )


def _picked(column: list[Any] | None, rows: Sequence[int] | None) -> Any:
    if column is None or rows is None:
        return column
    return [column[row] for row in rows]


def halves(batch: Batch) -> list[Batch]:
    """Two batches in the place of one that its topic finds too large."""
    middle = batch.count // 2
    return parts(batch, [range(middle), range(middle, batch.count)])


def parts(batch: Batch, positions: Sequence[Sequence[int]]) -> list[Batch]:
    """Batches in the place of one: each with the messages at some of its positions, and all of them with one."""
    records = decode_batch(batch.encoded)
    rows = rows_of(batch)
    made: list[Batch] = []
    for share in positions:
        part = Batch(batch.chunk, batch.partition, [rows[at] for at in share], 0)
        part.held_bytes = batch.held_bytes * part.count // batch.count
        part.is_claimed = True
        part.ids = None if batch.ids is None else [batch.ids[at] for at in share]
        part.encoded = encode_batch(
            [records[at].value for at in share],
            keys=[records[at].key for at in share],
            headers=[records[at].headers for at in share],
            timestamps=[records[at].timestamp for at in share],
            compression=batch.chunk.options.compression,
            level=batch.chunk.options.level,
        )
        made.append(part)
    made[-1].held_bytes += batch.held_bytes - sum(part.held_bytes for part in made)
    with batch.chunk.desk.lock:
        for part in made:
            batch.chunk.assign(part)
    batch.chunk.unsettled += len(made) - 1
    return made


def runs(rows: Sequence[int], ids: Sequence[bytes | None]) -> list[Sequence[int]]:
    """Rows cut where one batch must end: those with ids of their own go apart from the others, each id once in a batch,
    and each made id, being that of a retry, alone."""
    cuts = [0]
    seen: set[bytes] = set()
    for at, row in enumerate(rows):
        own = ids[row]
        before = ids[rows[at - 1]] if at else None
        is_alone = any(each is not None and each.startswith(MADE_PREFIX) for each in (own, before))
        if at and ((own is None) != (before is None) or is_alone or own in seen):
            cuts.append(at)
            seen.clear()
        if own is not None:
            seen.add(own)
    return [rows[start:end] for start, end in pairwise([*cuts, len(rows)])]
