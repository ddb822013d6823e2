"""Builds small record batches for tests that do not depend on their content."""

from collections.abc import Sequence
from typing import Any

from millstream.model.message_id import ID_HEADER
from millstream.records.batch import encode_batch

SOME_TIME_MS = 1_700_000_000_000


def batch(
    *values: bytes | None,
    keys: list[bytes | None] | None = None,
    timestamp: int = SOME_TIME_MS,
    base_offset: int = 0,
    compression: str = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
) -> bytearray:
    """Encode a batch of these values, or of the single value `b"value"` by default."""
    return encode_batch(
        values or (b"value",),
        keys=keys,
        timestamps=timestamp,
        base_offset=base_offset,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
    )


def numbered_batch(count: int, *, first: int = 0, size_bytes: int = 0, base_offset: int = 0) -> bytearray:
    """Encode a batch whose values count from `first`, each followed by `size_bytes` of filling."""
    return batch(
        *(b"%d" % number + b"." * size_bytes for number in range(first, first + count)), base_offset=base_offset
    )


def damaged(whole: bytearray | bytes, position: int = -1) -> bytearray:
    """Return a copy with one bit flipped, by default in the last byte."""
    copy = bytearray(whole)
    copy[position] ^= 0x01
    return copy


def batch_with_ids(
    *ids: bytes, values: Sequence[bytes] | None = None, timestamp: int = SOME_TIME_MS, **options: Any
) -> bytearray:
    """Encode a batch whose messages have these ids in their headers; the values default to the ids."""
    return encode_batch(
        values or ids,
        headers=[[(ID_HEADER, each)] for each in ids],
        timestamps=timestamp,
        **options,
    )
