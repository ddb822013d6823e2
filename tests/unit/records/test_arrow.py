"""Tests Arrow columns to batches and back, with the compiled and the plain codec."""

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import numbered_batch
from builders.record_lists import RecordList, bounded, record_lists
from millstream.records.arrow import SCHEMA, decode_to_arrow, encode_table
from millstream.records.batch import decode_batch, decode_batches, encode_batch
from millstream.records.header import CorruptBatch, check, read_header
from millstream.records.record import Record

pytestmark = pytest.mark.usefixtures("codec")

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]


def rows(columns: pa.RecordBatch) -> list[Record]:
    """Convert the columns to records, to compare them with those of the other decoder."""
    columns.validate(full=True)
    assert columns.schema == SCHEMA
    times = columns.column("timestamp").cast(pa.int64()).to_pylist()
    return [
        Record(offset, timestamp, key, value, tuple((header["key"], header["value"]) for header in headers))
        for offset, timestamp, key, value, headers in zip(
            columns.column("offset").to_pylist(),
            times,
            columns.column("key").to_pylist(),
            columns.column("value").to_pylist(),
            columns.column("headers").to_pylist(),
            strict=True,
        )
    ]


def decoded(batches: list[bytearray]) -> list[Record]:
    for each in batches:
        check(each, 0, read_header(each))
    return decode_batches(b"".join(batches))


@given(made=st.lists(record_lists(), min_size=1, max_size=3), compression=st.sampled_from(COMPRESSIONS))
@bounded(60)
def test_columns_contain_the_same_values_as_decoded_records(made: list[RecordList], compression: str) -> None:
    buffer = b"".join(each.encode(compression=compression, base_offset=1000 * i) for i, each in enumerate(made))
    assert rows(decode_to_arrow(buffer)) == decode_batches(buffer)


@given(made=record_lists(gaps=False), compression=st.sampled_from(COMPRESSIONS))
@bounded(60)
def test_encoding_decoded_columns_gives_the_same_batch(made: RecordList, compression: str) -> None:
    whole = made.encode(compression=compression, base_offset=5, leader_epoch=2)
    (again,) = encode_table(decode_to_arrow(whole), compression=compression, base_offset=5, leader_epoch=2)
    assert again == whole


@given(made=record_lists(), start=st.integers(0, 12), length=st.integers(0, 12), batch_bytes=st.integers(0, 500))
@bounded(60)
def test_slices_and_chunks_of_tables_are_encoded_and_split(
    made: RecordList, start: int, length: int, batch_bytes: int
) -> None:
    columns = decode_to_arrow(made.encode())
    table = pa.Table.from_batches([columns.slice(start), columns.slice(0, start), columns.slice(start, length)])
    batches = encode_table(table, batch_bytes=batch_bytes, base_offset=50)
    expected = rows(columns.slice(start)) + rows(columns.slice(0, start)) + rows(columns.slice(start, length))
    assert decoded(batches) == [record._replace(offset=50 + number) for number, record in enumerate(expected)]
    assert all(len(each) <= batch_bytes or read_header(each).record_count == 1 for each in batches)


def test_an_empty_buffer_gives_no_rows_and_an_empty_table_no_batches() -> None:
    assert rows(decode_to_arrow(b"")) == []
    assert encode_table(decode_to_arrow(b"")) == []
    assert encode_table(pa.table({"value": pa.array([], pa.binary())})) == []


def test_log_append_time_is_the_timestamp_of_every_row() -> None:
    columns = decode_to_arrow(encode_batch([b"a", b"b"], timestamps=[1, 2], append_timestamp=77))
    assert [record.timestamp for record in rows(columns)] == [77, 77]


def test_control_batches_are_skipped_unless_requested() -> None:
    stream = numbered_batch(1) + encode_batch([b"\x00" * 6], keys=[b"\x00" * 4], timestamps=0, control=True)
    assert decode_to_arrow(stream).num_rows == 1
    assert decode_to_arrow(stream, control=True).num_rows == 2


@pytest.mark.parametrize("key", [b"\xff\xfe", b"a\xc3", b"\xc3\xbc\xff", b"\xed\xa0\x80"])
def test_invalid_header_keys_are_replaced_equally_in_columns_and_records(key: bytes) -> None:
    stand_in = "k" * len(key)
    odd = encode_batch([b"v"], headers=[[(stand_in, b"1"), ("good", None)]], timestamps=0)
    odd = odd.replace(stand_in.encode(), key)
    assert rows(decode_to_arrow(odd, verify=False)) == decode_batch(odd, verify=False)


def test_the_limit_holds_for_all_batches_together() -> None:
    one = numbered_batch(10, size_bytes=100)
    body_bytes = len(one) - 61
    assert decode_to_arrow(one * 3, limit_bytes=3 * body_bytes).num_rows == 30
    with pytest.raises(CorruptBatch, match="the limit of"):
        decode_to_arrow(one * 3, limit_bytes=3 * body_bytes - 1)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["a", None, "ü"]),
        (pa.large_string(), ["a", None, "ü"]),
        (pa.binary(), [b"a", None, b"\xff"]),
        (pa.large_binary(), [b"a", None, b"\xff"]),
        (pa.binary(2), [b"ab", None, b"cd"]),
        (pa.null(), [None, None, None]),
    ],
)
def test_columns_of_any_binary_or_string_type_are_encoded(kind: pa.DataType, values: list[Any]) -> None:
    array = pa.array(values, kind)
    records = decoded(encode_table(pa.table({"value": array, "key": array}), timestamp=1))
    expected = [value.encode() if isinstance(value, str) else value for value in values]
    assert [record.value for record in records] == expected
    assert [record.key for record in records] == expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([1, None, 3]), [1, 99, 3]),
        (pa.array([1, None, 3], pa.int32()), [1, 99, 3]),
        (pa.array([1, None, 3], pa.timestamp("s")), [1000, 99, 3000]),
        (pa.array([1500, None, 3999], pa.timestamp("us", tz="Europe/Berlin")), [1, 99, 3]),
        (pa.array([None, None, None]), [99, 99, 99]),
    ],
)
def test_timestamps_are_converted_to_milliseconds_and_missing_ones_filled(times: pa.Array, expected: list[int]) -> None:
    records = decoded(encode_table(pa.table({"value": [b""] * 3, "timestamp": times}), timestamp=99))
    assert [record.timestamp for record in records] == expected


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.list_(pa.struct([("key", pa.binary()), ("value", pa.string())])),
    ],
)
def test_headers_are_encoded_from_any_list_type(kind: pa.DataType) -> None:
    given_headers = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, []]
    table = pa.table({"value": [b""] * 3, "headers": pa.array(given_headers, kind)})
    records = decoded(encode_table(table, timestamp=0))
    assert [record.headers for record in records] == [(("a", b"1"), ("b", None)), (), ()]


def test_sequence_numbers_and_offsets_continue_across_batches() -> None:
    table = pa.table({"value": [b"x" * 50] * 4})
    batches = encode_table(
        table, timestamp=0, batch_bytes=150, producer_id=1, producer_epoch=0, base_sequence=2**31 - 1, base_offset=7
    )
    headers = [read_header(each) for each in batches]
    assert [header.base_offset for header in headers] == [7, 8, 9, 10]
    assert [header.base_sequence for header in headers] == [2**31 - 1, 0, 1, 2]


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (pa.table({"key": [b"a"]}), "has no column 'value'"),
        (pa.table({"value": [b"a"]}), "1 rows have no timestamp"),
        (pa.table({"value": [b"a", b"b"], "timestamp": [-(2**62), 2**62]}), "too far apart"),
        (
            pa.table(
                {
                    "value": [b"a"],
                    "timestamp": [0],
                    "headers": pa.array(
                        [[{"key": None, "value": b"1"}]],
                        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                    ),
                }
            ),
            "key is null",
        ),
    ],
)
def test_invalid_tables_are_refused(table: pa.Table, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_table(table)


def test_a_column_of_an_unsupported_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"list<.*> cannot be converted to large_binary"):
        encode_table(pa.table({"value": [[1, 2]]}), timestamp=0)


def test_arrow_offsets_outside_their_column_are_refused() -> None:
    offsets = pa.py_buffer(struct.pack("=qqq", 0, 255, 3))
    lying = pa.Array.from_buffers(pa.large_binary(), 2, [None, offsets, pa.py_buffer(b"abc")])
    with pytest.raises(ValueError, match="beyond the end of its data"):
        encode_table(pa.table({"value": lying}), timestamp=0)


@pytest.mark.parametrize("kinds", [("none", "lz4"), ("lz4", "none"), ("none", "none"), ("lz4", "lz4")])
def test_the_first_of_two_damaged_batches_is_reported(kinds: tuple[str, str]) -> None:
    first, second = (encode_batch([b"%d" % n] * 9, timestamps=n, compression=kind) for n, kind in enumerate(kinds))
    for batch in (first, second):
        batch[-1] ^= 1
    with pytest.raises(CorruptBatch) as alone:
        decode_to_arrow(first)
    with pytest.raises(CorruptBatch) as together:
        decode_to_arrow(first + second)
    assert str(together.value) == str(alone.value)
