"""Record batches whole: from lists of values to the bytes that go on the wire, and back."""

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
"""How large a batch's records may get when they are decompressed, unless the caller says otherwise."""

_OBJECT_RATIO = 64
"""Bytes of objects for each byte received: more than any uncompressed record or header needs, however small."""

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
    """One batch of all the records, at least one, ready to be sent or stored.

    `timestamps` is one time for all or one for each, in milliseconds. `offset_deltas` is for batches with gaps, as
    compaction leaves them. `made_ids` marks it as one whose messages have made ids. `append_timestamp` makes it a batch
    whose records all have the time a broker gave. `used` is a batch that nobody needs any more, whose memory is taken.
    Arguments that contradict each other are the caller's mistake: ValueError or TypeError says which.
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
    batch = _packed(batch, attributes, level)
    # Not through a `BatchHeader` and `seal`, which would take a single message as long as encoding it does.
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
    """The attributes of a batch header; ValueError when there is no such compression."""
    attributes = 0 if compression == "none" else int(Compression.named(compression))
    attributes |= MADE_IDS if made_ids else 0
    return attributes | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)


def seal(batch: bytearray, header: BatchHeader, level: int | None = None) -> bytearray:
    """Finish a batch whose records lie behind the room for its header: compress them as the header says, and put the
    header before them, with the length and the checksum that they now have."""
    batch = _packed(batch, header.attributes, level)
    _pack(batch, 0, header.base_offset, len(batch) - LENGTH_END, *header[2:])
    _pack_crc(batch, CRC_START - 4, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def _packed(batch: bytearray, attributes: int, level: int | None) -> bytearray:
    """The batch, its header still missing, compressed as its attributes say."""
    if compression := attributes & COMPRESSION_MASK:
        packed = compress(Compression(compression), memoryview(batch)[HEADER_BYTES:], level)
        batch = bytearray(HEADER_BYTES)
        batch += packed
    elif level is not None:
        raise ValueError("without compression there is no level")
    return batch


def decode_batch(
    buffer: Bytes, position: int = 0, *, limit_bytes: int = DECODED_BYTES_MAX, verify: bool = True
) -> list[Record]:
    """The records of the batch at `position`; CorruptBatch when it is none, or larger than `limit_bytes` unpacked.

    The objects made of them are bounded too: by `limit_bytes`, or by what the batch's own size justifies if that is
    more, so that only a batch that grows out of all proportion when it is decompressed is refused for it.
    Whoever has checked the batch already can save the checksum with `verify=False`.
    """
    header = read_header(buffer, position)
    body = batch_body(buffer, position, header, limit_bytes=limit_bytes, verify=verify)
    return _records(header, body, max(limit_bytes, header.size_bytes * _OBJECT_RATIO))[0]


def decode_batches(
    buffer: Bytes, *, limit_bytes: int = DECODED_BYTES_MAX, verify: bool = True, control: bool = False
) -> list[Record]:
    """The records of all whole batches in `buffer`, as a fetch brings them; `limit_bytes` bounds all of them together.

    Control batches hold marks for brokers and clients, not messages; they are left out unless `control` is set.
    """
    records: list[Record] = []
    _decode_all(buffer, records, None, limit_bytes=limit_bytes, verify=verify, control=control)
    return records


def decode_messages(
    buffer: Bytes, topic: str, partition: int, *, limit_bytes: int = DECODED_BYTES_MAX, packed_bytes: int | None = None
) -> list[Message]:
    """As `decode_batches`, for those who read a partition: its messages, checked, without control batches.

    `packed_bytes` is what the buffer took before it was `unpacked`, if it was.
    """
    messages: list[Message] = []
    place = (topic, partition)
    _decode_all(buffer, messages, place, limit_bytes=limit_bytes, verify=True, control=False, packed_bytes=packed_bytes)
    return messages


def unpacked(buffer: Bytes, *, limit_bytes: int = DECODED_BYTES_MAX) -> bytearray:
    """The whole batches of `buffer`, checked, and none of them compressed; CorruptBatch as for `decode_batches`."""
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
    """Where the whole batches of a buffer end; nothing else about them is looked at."""
    return BatchRunDecoder(buffer, 0).whole()


def size_at(buffer: Bytes, position: int) -> int:
    """How large the batch at `position` says it is; 0 where there is too little of it to tell, or what is no batch."""
    if len(buffer) - position < LENGTH_END:
        return 0
    return max(
        0, int.from_bytes(buffer[position + LENGTH_END - 4 : position + LENGTH_END], "big", signed=True) + LENGTH_END
    )


class BatchRun(NamedTuple):
    """Whole batches of a buffer, where to go on reading after them, and whether one of them is compressed."""

    stored: memoryview
    next_offset: int
    is_packed: bool


def each_piece(buffer: memoryview, offset: int, size_bytes: int) -> Iterator[BatchRun]:
    """The buffer in pieces of whole batches, closed and unchecked, within `size_bytes` unless one alone is larger; each
    with where to go on after it, at least `offset`."""
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
    """The batch that has ended the run, which goes on behind it, and its body, None where it is left out; None when it
    was the end of the buffer."""
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
    """The records' bytes, decompressed, of the batch at `position` after checking it."""
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
    """Base, each one's unless all are the same, and largest."""
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
        except OverflowError:  # Whoever looks at all of them says so.
            lowest, highest = min(each), max(each)
    if lowest < 0 or highest > _INT64_MAX:
        check_times(lowest, highest)
    return base, each, highest


def check_times(lowest: int, highest: int) -> None:
    """ValueError unless a batch can hold both times."""
    if lowest < -_INT64_MAX - 1 or highest > _INT64_MAX or highest - lowest > _INT64_MAX:
        raise ValueError(f"the times of one batch, {lowest} to {highest}, are too far apart")


def _offset_deltas(given: Sequence[int], count: int) -> list[int]:
    deltas = _as_long(given, count, "offset_deltas")
    if deltas[0] < 0 or deltas[-1] >= 2**31 or any(one >= other for one, other in pairwise(deltas)):
        raise ValueError("offset deltas rise from 0 or more, and fit into 31 bits")
    return deltas


def _as_long(given: Sequence[T], count: int, name: str) -> list[T]:
    each = given if type(given) is list else list(given)
    if len(each) != count:
        raise ValueError(f"there are {count} values but {len(each)} {name}")
    return each
