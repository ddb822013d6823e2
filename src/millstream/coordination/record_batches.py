"""Packs the records of a step into record batches."""

from collections.abc import Sequence

from millstream.coordination.effects import LogRecord
from millstream.records.batch import encode_batch
from millstream.records.header import HEADER_BYTES

_RECORD_OVERHEAD_BYTES = 32
"""An upper bound for the bytes of a record in a batch apart from its key and value."""


def split(records: Sequence[LogRecord], size_max: int) -> Sequence[Sequence[LogRecord]]:
    """Splits the records into as few batches as possible. A record that exceeds the maximum gets a batch of its own."""
    if len(records) == 1:
        return (records,)
    parts: list[list[LogRecord]] = [[]]
    size = HEADER_BYTES
    for record in records:
        more = len(record.key) + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
        if parts[-1] and size + more > size_max:
            parts.append([])
            size = HEADER_BYTES
        parts[-1].append(record)
        size += more
    return parts


def encode(records: Sequence[LogRecord], wall_ms: int) -> memoryview:
    """Encodes one record batch, in which all records have this timestamp."""
    values, keys = [record.value for record in records], [record.key for record in records]
    return memoryview(encode_batch(values, keys=keys, timestamps=wall_ms))
