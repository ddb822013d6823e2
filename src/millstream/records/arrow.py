"""Encodes Arrow tables into record batches and decodes batches into Arrow columns, for bulk processing.

=========== ============================================== ======================================
column      Arrow type                                     remark
=========== ============================================== ======================================
key         binary                                         null: the record has no key
value       binary                                         null: a tombstone
headers     list of struct(key string, value binary)       empty list: none
timestamp   timestamp in milliseconds, UTC
offset      int64                                          ignored when encoding
=========== ============================================== ======================================

PyArrow is large and optional, so only this module imports it, and only code that needs Arrow imports this module. The
compiled codec fills Arrow's buffers directly: no Python object is created per record.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from millstream.model.ids import LeaderEpoch, Offset, ProducerId
from millstream.model.limits import MESSAGE_BYTES_MAX, NO_LEADER_EPOCH
from millstream.records.batch import DECODED_BYTES_MAX, batch_attributes, check_times, seal, take_special
from millstream.records.header import (
    HEADER_BYTES,
    MAGIC,
    SEQUENCE_MASK,
    BatchHeader,
    Bytes,
    CorruptBatch,
    check,
    read_header,
)
from millstream.records.record_decoder import BatchRunDecoder, BinaryBuffers, RecordColumns, RecordSizes, room
from millstream.records.record_encoder import ColumnSource, TableEncoder

_TIMESTAMP = pa.timestamp("ms", tz="UTC")
_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER, nullable=False))

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", _HEADERS, nullable=False),
        pa.field("timestamp", _TIMESTAMP, nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
    ]
)

_LARGE_HEADERS = pa.large_list(pa.struct([pa.field("key", pa.large_binary()), pa.field("value", pa.large_binary())]))

_NO_HEADERS = pa.array([], _HEADER)

_KEPT_BYTES = len(bytearray(32 * 1024 * 1024 - 64 * 1024))
"""Size of a block that is allocated and freed once at import, and never touched.

Linux's C library returns freed memory to the kernel and requests it again page by page, which costs several times as
much as the decoding. It keeps blocks up to the size of the largest one that it has seen freed, and learns no more than
this size.
"""

_BODY_BYTES_MAX = (2**31 - 1) // 3
"""Arrow's columns have 32-bit offsets, and replacing a byte that is not UTF-8 can produce three bytes."""


class Arrays(NamedTuple):
    """The columns of `SCHEMA`."""

    key: pa.Array
    value: pa.Array
    headers: pa.Array
    timestamp: pa.Array
    offset: pa.Array


def decode_to_arrow(
    buffer: Bytes, *, limit_bytes: int = DECODED_BYTES_MAX, verify: bool = True, control: bool = False
) -> pa.RecordBatch:
    """Decode all whole batches in `buffer` into columns of `SCHEMA`.

    Arguments, skipped batches and errors are those of `decode_batches`. `limit_bytes` applies to all records together;
    above about 680 MiB Arrow's own limit applies. For the smallest records, the columns take about three times the
    decompressed size.
    """
    arrays = decode_to_arrays(buffer, limit_bytes=limit_bytes, verify=verify, control=control)
    return pa.RecordBatch.from_arrays(list(arrays), schema=SCHEMA)


def decode_to_arrays(
    buffer: Bytes, *, limit_bytes: int = DECODED_BYTES_MAX, verify: bool = True, control: bool = False
) -> Arrays:
    """Decode as `decode_to_arrow`, but return the arrays alone, because creating a record batch is costly."""
    run = BatchRunDecoder(buffer, min(limit_bytes, _BODY_BYTES_MAX))
    sizes = RecordSizes()
    parts: list[Callable[[RecordColumns], None]] = []
    while True:
        start = run.end
        run.measure(sizes)
        parts.append(partial(_fill_run, run, start, run.end, verify, buffer))
        try:
            special = take_special(run, buffer, verify=verify, control=control)
            if special is None:
                break
            header, body = special
            if body is not None:
                sizes.add(header.record_count, len(body))
                parts.append(partial(_fill, header, body))
        except CorruptBatch:
            _filled(sizes, parts)  # An error in an earlier batch is raised first.
            raise
    return _arrays(sizes.totals()[0], _filled(sizes, parts))


def _filled(sizes: RecordSizes, parts: Sequence[Callable[[RecordColumns], None]]) -> RecordColumns:
    columns = RecordColumns(sizes, _room)
    for fill in parts:
        fill(columns)
    return columns


def _fill_run(run: BatchRunDecoder, start: int, end: int, verify: bool, buffer: Bytes, columns: RecordColumns) -> None:
    stopped = run.fill(start, end, verify, columns)
    if stopped != end:
        check(buffer, stopped, read_header(buffer, stopped))
        raise AssertionError("a batch changed while it was read")


def _fill(header: BatchHeader, body: Bytes, columns: RecordColumns) -> None:
    columns.add(
        body,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
    )


def _arrays(rows: int, columns: RecordColumns) -> Arrays:
    """Wrap the filled buffers as Arrow arrays without copying."""
    offsets, timestamps, header_offsets = columns.buffers()
    keys, values, header_keys, header_values = columns.binary_buffers()
    headers = _headers(header_keys, header_values)
    return Arrays(
        _binary(pa.binary(), rows, keys),
        _binary(pa.binary(), rows, values),
        pa.Array.from_buffers(_HEADERS, rows, [None, header_offsets], children=[headers]),
        pa.Array.from_buffers(_TIMESTAMP, rows, [None, timestamps]),
        pa.Array.from_buffers(pa.int64(), rows, [None, offsets]),
    )


def _headers(keys: BinaryBuffers, values: BinaryBuffers) -> pa.Array:
    """The headers of all records as one array; usually it is empty."""
    total = keys[3] // 4 - 1
    if not total:
        return _NO_HEADERS
    children = [_binary(pa.string(), total, keys), _binary(pa.binary(), total, values)]
    return pa.Array.from_buffers(_HEADER, total, [None], children=children)


def _room(size_bytes: int) -> pa.Buffer:
    return pa.py_buffer(room(size_bytes))


def _binary(kind: pa.DataType, rows: int, buffers: BinaryBuffers) -> pa.Array:
    null_count, validity, offsets, offsets_bytes, data, data_bytes = buffers
    bits = pa.py_buffer(validity) if null_count else None
    parts = [bits, offsets.slice(0, offsets_bytes), data.slice(0, data_bytes)]
    return pa.Array.from_buffers(kind, rows, parts, null_count)


def encode_table(
    table: pa.Table | pa.RecordBatch,
    *,
    timestamp: int | None = None,
    batch_bytes: int = MESSAGE_BYTES_MAX,
    base_offset: int = 0,
    compression: str = "none",
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    leader_epoch: int = -1,
) -> list[bytearray]:
    """Encode the rows as batches, in order. Each has at most `batch_bytes` uncompressed, unless a row is larger.

    The table needs a column `value`. The columns `key`, `headers` and `timestamp` are optional, and others are ignored.
    Strings are encoded as UTF-8, and times of other units are rounded down to milliseconds. `timestamp` is used for
    rows without a timestamp. ValueError or TypeError reports columns of other types, and rows without any timestamp.
    """
    rows = TableRows(table, timestamp)
    attributes = batch_attributes(compression, transactional=transactional)
    batches = []
    row = 0
    while row < len(rows):
        sequence = base_sequence if base_sequence < 0 else (base_sequence + row) & SEQUENCE_MASK
        header = rows.header(attributes, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence)
        header = header._replace(base_offset=Offset(base_offset + row), leader_epoch=LeaderEpoch(leader_epoch))
        batch, count = rows.encode(row, end=len(rows), header=header, batch_bytes=batch_bytes, level=level)
        batches.append(batch)
        row += count
    return batches


class TableRows:
    """The rows of a table, to be encoded batch by batch. The constructor raises the errors of `encode_table`."""

    def __init__(self, table: pa.Table | pa.RecordBatch, timestamp: int | None) -> None:
        self._rows: int = table.num_rows
        self._encoder = _encoder(table, timestamp)
        self.keys = _key_buffers(table)
        """The buffers of the key column, or None if there is none."""

    def __len__(self) -> int:
        return self._rows

    def cut(self, limit_bytes: int, *, limit_rows: int) -> list[tuple[int, int, int]]:
        """Split the rows into batches within both limits; a row above the limit gets a batch of its own.

        Return the first row, the end row and the bytes of each batch.
        """
        return self._encoder.cut(limit_bytes - HEADER_BYTES, limit_rows)

    @staticmethod
    def header(attributes: int, *, producer_id: int, producer_epoch: int, base_sequence: int) -> BatchHeader:
        """Create a batch header without the fields that depend on the rows."""
        return BatchHeader(
            base_offset=Offset(0),
            batch_length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=0,
            base_timestamp=0,
            max_timestamp=0,
            producer_id=ProducerId(producer_id),
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=0,
        )

    def encode(
        self,
        first: int,
        *,
        end: int,
        header: BatchHeader,
        batch_bytes: int,
        level: int | None = None,
        order: Bytes | None = None,
        used: bytearray | None = None,
    ) -> tuple[bytearray, int]:
        """Encode the rows from `first` up to `end` that fit into `batch_bytes`. Return the batch and the row count.

        `order`, 64-bit numbers, is a permutation of rows; `first` and `end` are then indexes into it. The memory of
        `used`, a batch that is no longer needed, is reused.
        """
        batch, count, lowest, highest = self._encoder.encode(first, end, batch_bytes, HEADER_BYTES, order, used)
        check_times(lowest=lowest, highest=highest)
        base = first if order is None else memoryview(order)[first]
        whole = header._replace(
            last_offset_delta=count - 1,
            base_timestamp=self._encoder.timestamp(base),
            max_timestamp=highest,
            record_count=count,
        )
        return seal(batch, whole, level), count


class Keys(NamedTuple):
    """A key column: key r is between offsets `first` + r and `first` + r + 1; validity bit 0 means null."""

    offsets: memoryview
    validity: memoryview | None
    first: int
    data: memoryview


def _key_buffers(table: pa.Table | pa.RecordBatch) -> Keys | None:
    return Keys(*_binary_buffers(_whole(table, "key"))) if "key" in table.schema.names else None


def _encoder(table: pa.Table | pa.RecordBatch, timestamp: int | None) -> TableEncoder:
    """Convert the table's columns to the few types that the codec supports."""
    names = table.schema.names
    if "value" not in names:
        raise ValueError(f"the table has no column 'value' (columns: {', '.join(names) or 'none'})")
    key = _binary_source(_whole(table, "key")) if "key" in names else None
    headers = _headers_source(_whole(table, "headers")) if "headers" in names else None
    times = _whole(table, "timestamp") if "timestamp" in names else pa.nulls(table.num_rows, pa.int64())
    return TableEncoder(_binary_source(_whole(table, "value")), key, headers, _milliseconds(times, timestamp))


def _whole(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """The column as one array. It is copied only if it has several chunks."""
    column = table.column(name)
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _binary_source(array: pa.Array) -> ColumnSource:
    offsets, validity, first, data = _binary_buffers(array)
    return ColumnSource(offsets, validity, first, len(data), data)


def _binary_buffers(array: pa.Array) -> tuple[memoryview, memoryview | None, int, memoryview]:
    array = _cast(array, pa.large_binary())
    validity, offsets, data = array.buffers()
    data_view = memoryview(b"") if data is None else memoryview(data).cast("B")
    return _int64(offsets), _bits(validity), array.offset, data_view


def _headers_source(array: pa.Array) -> tuple[ColumnSource, ColumnSource, ColumnSource]:
    array = _cast(array, _LARGE_HEADERS)
    validity, offsets = array.buffers()[:2]
    keys, values = array.values.flatten()
    lists = ColumnSource(_int64(offsets), _bits(validity), array.offset, len(keys), b"")
    return lists, _binary_source(keys), _binary_source(values)


def _milliseconds(array: pa.Array, instead: int | None) -> memoryview:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False)
    array = _cast(array, pa.int64())
    if array.null_count:
        if instead is None:
            raise ValueError(f"{array.null_count} rows have no timestamp; fill the column or pass timestamp=")
        array = array.fill_null(instead)
    return _int64(array.buffers()[1])[array.offset : array.offset + len(array)]


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return array.cast(kind)
    except pa.ArrowNotImplementedError:
        raise TypeError(f"a column of type {array.type} cannot be converted to {kind}") from None


def _bits(buffer: pa.Buffer | None) -> memoryview | None:
    return None if buffer is None else memoryview(buffer).cast("B")


def _int64(buffer: pa.Buffer | None) -> memoryview:
    if buffer is None:
        return memoryview(b"").cast("q")
    whole = memoryview(buffer).cast("B")
    return whole[: len(whole) // 8 * 8].cast("q")
