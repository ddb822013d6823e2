"""Encodes lists of values into record batches, and decodes record batches into records and messages."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from millstream.records.checksum import crc32c
from millstream.records.compression import Compression, compress, decompress
from millstream.records.header import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LAYOUT,
    LENGTH_END,
    LOG_APPEND_TIME,
    MADE_IDS,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Bytes,
    check,
    each_batch,
    read_header,
)
from millstream.records.message import Message
from millstream.records.record import Record, RecordHeader
from millstream.records.record_decoder import BatchRunDecoder, decode_records
from millstream.records.record_encoder import encode_records, time_range

T = TypeVar("T")

DECODED_BYTES_MAX = 128 * 1024 * 1024
"""The default limit for the decompressed size of a batch's records."""

_OBJECT_RATIO = 64
"""Memory limit for objects per received byte. Uncompressed records and headers need less, however small they are."""

_INT64_MAX = 2**63 - 1
_pack = LAYOUT.pack_into
_pack_crc = struct.Struct(">I").pack_into


def encode_batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Iterable[RecordHeader] | None] | None = None,
    timestamps: Sequence[int] | int,
    offset_deltas: Sequence[int] | None = None,
    base_offset: int = 0,
    compression: str = "none",
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    made_ids: bool = False,
    append_timestamp: int | None = None,
    leader_epoch: int = -1,
    used: bytearray | None = None,
) -> bytearray:
    """Encode all records, at least one, into one batch that is ready to be sent or stored.

    `timestamps` is one time for all records or one per record, in milliseconds. `offset_deltas` creates gaps, as
    compaction does. `made_ids` marks the batch as one whose messages have made ids. `append_timestamp` gives all
    records a broker's append time. The memory of `used`, a batch that is no longer needed, is reused. ValueError or
    TypeError names arguments that contradict each other.
    """
    count = len(values)
    base_timestamp, each_timestamp, max_timestamp = _timestamps(timestamps, count)
    deltas = None if offset_deltas is None else _offset_deltas(offset_deltas, count)
    batch = encode_records(
        values if type(values) is list else list(values),
        None if keys is None else _as_long(keys, count, "keys"),
        None if headers is None else _as_long(headers, count, "headers"),
        each_timestamp,
        base_timestamp,
        deltas,
        HEADER_BYTES,
        used,
    )
    attributes = batch_attributes(compression, transactional=transactional, control=control, made_ids=made_ids)
    if append_timestamp is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = append_timestamp
    batch = _packed(batch, attributes, level=level)
    # Written directly: a `BatchHeader` and `seal` would take as long as encoding a single message.
    _pack(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_END,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        count - 1 if deltas is None else deltas[-1],
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    _pack_crc(batch, CRC_START - 4, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def batch_attributes(
    compression: str, *, transactional: bool = False, control: bool = False, made_ids: bool = False
) -> int:
    """Return the attributes of a batch header. Raise ValueError if the compression does not exist."""
    attributes = 0 if compression == "none" else int(Compression.named(compression))
    attributes |= MADE_IDS if made_ids else 0
    return attributes | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)


def seal(batch: bytearray, header: BatchHeader, level: int | None = None) -> bytearray:
    """Complete a batch whose records follow the space for the header.

    Compress the records as the header specifies, and write the header with the resulting length and checksum.
    """
    batch = _packed(batch, header.attributes, level=level)
    _pack(batch, 0, header.base_offset, len(batch) - LENGTH_END, *header[2:])
    _pack_crc(batch, CRC_START - 4, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def _packed(batch: bytearray, attributes: int, *, level: int | None) -> bytearray:
    """Compress a batch without header as its attributes specify."""
    if compression := attributes & COMPRESSION_MASK:
        packed = compress(Compression(compression), memoryview(batch)[HEADER_BYTES:], level)
        batch = bytearray(HEADER_BYTES)
        batch += packed
    elif level is not None:
        raise ValueError("a compression level needs a compression; leave the level out")
    return batch


def decode_batch(
    buffer: Bytes, position: int = 0, *, limit_bytes: int = DECODED_BYTES_MAX, verify: bool = True
) -> list[Record]:
    """Decode the batch at `position`. Raise CorruptBatch if it is invalid, or decompresses to over `limit_bytes`.

    The memory of the created objects is limited too: to `limit_bytes`, or to a multiple of the batch's size if that is
    more. So only a batch that grows extremely when decompressed fails this limit. A caller that has verified the
    checksum already passes `verify=False`.
    """
    header = read_header(buffer, position)
    body = batch_body(buffer, position, header, limit_bytes=limit_bytes, verify=verify)
    return _records(header, body, max(limit_bytes, header.size_bytes * _OBJECT_RATIO))[0]


def decode_batches(
    buffer: Bytes, *, limit_bytes: int = DECODED_BYTES_MAX, verify: bool = True, control: bool = False
) -> list[Record]:
    """Decode all whole batches in `buffer`, such as a fetch response. `limit_bytes` applies to all of them together.

    Control batches contain markers for brokers and clients, not messages. They are skipped unless `control` is set.
    """
    records: list[Record] = []
    _decode_all(buffer, records, None, limit_bytes=limit_bytes, verify=verify, control=control)
    return records


def decode_messages(
    buffer: Bytes, topic: str, partition: int, *, limit_bytes: int = DECODED_BYTES_MAX, packed_bytes: int | None = None
) -> list[Message]:
    """Decode all whole batches as messages of a partition. Checksums are verified and control batches skipped.

    `packed_bytes` is the size of the buffer before `unpacked` decompressed it, if it did.
    """
    messages: list[Message] = []
    place = (topic, partition)
    _decode_all(buffer, messages, place, limit_bytes=limit_bytes, verify=True, control=False, packed_bytes=packed_bytes)
    return messages


def unpacked(buffer: Bytes, *, limit_bytes: int = DECODED_BYTES_MAX) -> bytearray:
    """Verify and decompress the whole batches of `buffer`. Raise CorruptBatch as `decode_batches` does."""
    made = bytearray()
    for position, header in each_batch(buffer):
        body = batch_body(buffer, position, header, limit_bytes=max(0, limit_bytes - len(made)), verify=True)
        start = len(made)
        made += bytes(HEADER_BYTES)
        made += body
        plain = header._replace(attributes=header.attributes & ~COMPRESSION_MASK)
        _pack(made, start, plain.base_offset, len(made) - start - LENGTH_END, *plain[2:])
        _pack_crc(made, start + CRC_START - 4, crc32c(memoryview(made)[start + CRC_START :]))
    return made


def whole_end(buffer: Bytes) -> int:
    """Return the position after the last whole batch in a buffer. Only the lengths of the batches are read."""
    return BatchRunDecoder(buffer, 0).whole()


def size_at(buffer: Bytes, position: int) -> int:
    """The size of the batch at `position` according to its length field; 0 if that is incomplete or invalid."""
    if len(buffer) - position < LENGTH_END:
        return 0
    return max(
        0, int.from_bytes(buffer[position + LENGTH_END - 4 : position + LENGTH_END], "big", signed=True) + LENGTH_END
    )


class BatchRun(NamedTuple):
    """Whole batches of a buffer, the offset after them, and whether one of them is compressed."""

    stored: memoryview
    next_offset: int
    is_packed: bool


def each_piece(buffer: memoryview, offset: int, *, size_bytes: int) -> Iterator[BatchRun]:
    """Split the buffer into runs of whole batches, without decoding or checking them.

    Each run is within `size_bytes`, unless a single batch is larger. Its next offset is at least `offset`.
    """
    run = BatchRunDecoder(buffer, 0)
    start = 0
    while start < len(buffer):
        end, offset = run.behind(start, size_bytes, offset)
        yield BatchRun(buffer[start:end], offset, run.is_packed)
        start = end


def _decode_all(
    buffer: Bytes,
    records: list[Any],
    place: tuple[str, int] | None,
    *,
    limit_bytes: int,
    verify: bool,
    control: bool,
    packed_bytes: int | None = None,
) -> None:
    budget_bytes = max(limit_bytes, (len(buffer) if packed_bytes is None else packed_bytes) * _OBJECT_RATIO)
    run = BatchRunDecoder(buffer, limit_bytes)
    while True:
        budget_bytes = run.decode(records, budget_bytes, verify, place)
        special = take_special(run, buffer, verify=verify, control=control)
        if special is None:
            return
        header, body = special
        if body is not None:
            more, budget_bytes = _records(header, body, budget_bytes, place)
            records += more


def take_special(
    run: BatchRunDecoder, buffer: Bytes, *, verify: bool, control: bool
) -> tuple[BatchHeader, Bytes | None] | None:
    """Take the batch at which the run ended, and continue the run after it.

    Return its header and its body; the body is None for a skipped control batch. Return None at the end of the buffer.
    """
    special = next(each_batch(buffer, run.end), None)
    if special is None:
        return None
    position, header = special
    if header.is_control and not control:
        run.leave_out(header.size_bytes, 0)
        return header, None
    body = batch_body(buffer, position, header, limit_bytes=run.left_bytes, verify=verify)
    run.leave_out(header.size_bytes, len(body))
    return header, body


def batch_body(buffer: Bytes, position: int, header: BatchHeader, *, limit_bytes: int, verify: bool) -> Bytes:
    """Check the batch at `position`, and return the bytes of its records, decompressed."""
    check(buffer, position, header, verify_crc=verify)
    body = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
    return decompress(Compression(header.compression), body, limit_bytes)


def _records(
    header: BatchHeader, body: Bytes, budget_bytes: int, place: tuple[str, int] | None = None
) -> tuple[list[Any], int]:
    return decode_records(
        body,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
        budget_bytes,
        place,
        None if place is None else header.made,
    )


def _timestamps(given: Sequence[int] | int, count: int) -> tuple[int, list[int] | None, int]:
    """The first timestamp, the list of all timestamps (None if there is one for all), and the largest one."""
    if count == 0:
        raise ValueError("a batch has at least one record")
    if isinstance(given, int):
        lowest = highest = base = given
        each = None
    else:
        each = _as_long(given, count, "timestamps")
        base = each[0]
        try:
            lowest, highest = time_range(each)
        except OverflowError:  # The encoder reports the value that is too large.
            lowest, highest = min(each), max(each)
    if lowest < 0 or highest > _INT64_MAX:
        check_times(lowest=lowest, highest=highest)
    return base, each, highest


def check_times(*, lowest: int, highest: int) -> None:
    """Raise ValueError unless both timestamps can be in one batch."""
    if lowest < -_INT64_MAX - 1 or highest > _INT64_MAX or highest - lowest > _INT64_MAX:
        raise ValueError(f"the timestamps of one batch, {lowest} to {highest}, are too far apart")


def _offset_deltas(given: Sequence[int], count: int) -> list[int]:
    deltas = _as_long(given, count, "offset_deltas")
    if deltas[0] < 0 or deltas[-1] >= 2**31 or any(one >= other for one, other in pairwise(deltas)):
        raise ValueError("offset_deltas must increase, and be within 0 and 2147483647")
    return deltas


def _as_long(given: Sequence[T], count: int, name: str) -> list[T]:
    each = given if type(given) is list else list(given)
    if len(each) != count:
        raise ValueError(f"there are {count} values but {len(each)} {name}")
    return each
