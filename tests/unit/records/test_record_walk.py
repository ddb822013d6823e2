"""Tests the walk over the records of a batch, compiled and as plain Python, against the decoders of readers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from builders.batches import numbered_batch
from builders.record_lists import RecordList, bounded, record_lists
from millstream.records.batch import seal
from millstream.records.header import HEADER_BYTES, CorruptBatch, read_header
from millstream.records.record_decoder import decode_records
from millstream.records.record_walk import LOCKED_BYTES_MAX

from .conftest import Codec

BUDGET_BYTES = 2**40
TIME_MS = 1_700_000_000_000


def record(
    *,
    attributes: int = 0,
    time: int = 0,
    offset: int = 0,
    key: bytes = b"\x02k",
    value: bytes = b"\x04vv",
    headers: bytes = b"\0",
    length: int | None = None,
    tail: bytes = b"",
) -> bytes:
    """Encode a record from its fields; the blobs have their lengths already."""
    fields = bytes([attributes]) + varint(time) + varint(offset) + key + value + headers + tail
    return varint(len(fields) if length is None else length) + fields


def varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*encoded, zigzag])


def walk(
    codec: Codec, body: bytes | bytearray, count: int, base_ms: int = TIME_MS, *, start: int = 0
) -> tuple[int, int, int]:
    oldest, newest, keyless = codec.walk.walk_records(body, start, count, base_ms)
    return oldest, newest, keyless


def outcome(codec: Codec, body: bytes, count: int, base_ms: int = TIME_MS) -> object:
    try:
        return walk(codec, body, count, base_ms)
    except CorruptBatch as error:
        return type(error).__name__, error.detail


def followed(body: bytes) -> bytes:
    """Append a long record, so that the compiled loop does not leave the records before it to the careful one."""
    return body + record(offset=1, value=varint(40) + bytes(40))


@bounded(300)
@given(record_lists(gaps=False))
def test_a_walk_accepts_every_encoded_batch(compiled: Codec, plain: Codec, records: RecordList) -> None:
    batch = bytes(records.encode())
    base_ms = read_header(batch).base_timestamp
    times = [time for time in records.timestamps if time != -1]
    expected = (min(times), max(times), sum(key is None for key in records.keys))
    for codec in (compiled, plain):
        assert walk(codec, batch, len(times), base_ms, start=HEADER_BYTES) == expected


@st.composite
def damaged_bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """Generate a body with a few changed, inserted or removed bytes, and a record count that may be wrong."""
    records = draw(record_lists(gaps=False))
    body = bytearray(records.encode()[HEADER_BYTES:])
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, min(len(body), 200)))
        new = draw(st.binary(max_size=3))
        body[at : at + draw(st.integers(0, 3))] = new
    return bytes(body), len(records.keys) + draw(st.sampled_from([0, 0, 0, 0, 1, -1]))


@bounded(2000)
@given(damaged_bodies() | st.tuples(st.binary(max_size=80), st.integers(0, 5)))
def test_readers_decode_every_accepted_body(compiled: Codec, plain: Codec, damaged: tuple[bytes, int]) -> None:
    body, count = damaged
    found = outcome(compiled, body, count)
    assert found == outcome(plain, body, count)
    if not isinstance(found, tuple) or len(found) != 3:
        return
    records, _ = decode_records(body, count, 0, max(0, count - 1), TIME_MS, None, BUDGET_BYTES)
    assert [each.offset for each in records] == list(range(count))
    times = [each.timestamp for each in records if each.timestamp != -1]
    assert found == (min(times, default=-1), max([-1, *times]), sum(each.key is None for each in records))
    header = read_header(bytes(HEADER_BYTES))._replace(
        magic=2, base_timestamp=TIME_MS, record_count=count, last_offset_delta=max(0, count - 1)
    )
    batch = bytes(seal(bytearray(HEADER_BYTES) + body, header))
    if not any("\N{REPLACEMENT CHARACTER}" in key for each in records for key, _ in each.headers):
        # kafka-python requires UTF-8 in header keys; Kafka does not.
        assert [each.offset for each in DefaultRecordBatch(batch)] == list(range(count))


@pytest.mark.parametrize(
    ("invalid", "why"),
    [
        (record(length=5), "record cannot have a length of 5"),
        (record(length=500), "record cannot have a length of 500"),
        (record(length=-1), "record cannot have a length of -1"),
        (record(attributes=1), "attributes are 1"),
        (record(offset=1), "offset delta is 1"),
        (record(offset=-1), "offset delta is -1"),
        (record(key=b"\x03"), "length of -2"),
        (record(key=varint(30)), "length of 30"),
        (record(value=varint(2**31 - 1)), "length of 2147483647"),
        (record(headers=b"\x01"), "cannot have -1 headers"),
        (record(headers=varint(9)), "cannot have 9 headers"),
        (record(headers=b"\x02\x01\x00"), "header has no key"),
        (record(headers=b"\x02\x00\x05"), "length of -3"),
        (record(tail=b"\0\0"), "2 bytes follow its last field"),
        (record(value=b"\x80\x80\x80\x80\x80\x80"), "number is incomplete or too long"),
        (record(time=2**63 - 1), "timestamp delta 9223372036854775807"),
    ],
)
@pytest.mark.parametrize("is_last", [True, False])
def test_an_invalid_record_is_refused_with_its_index_and_reason(
    codec: Codec, invalid: bytes, why: str, is_last: bool
) -> None:
    body = invalid if is_last else followed(invalid)
    with pytest.raises(CorruptBatch, match=why) as caught:
        walk(codec, body, 1 if is_last else 2)
    assert getattr(caught.value, "index", None) == 0


def test_bytes_after_the_last_record_and_missing_records_are_refused(codec: Codec) -> None:
    with pytest.raises(CorruptBatch, match="3 bytes follow the last of 1 records"):
        walk(codec, record() + b"abc", 1)
    with pytest.raises(CorruptBatch, match="incomplete"):
        walk(codec, record(), 2)
    with pytest.raises(CorruptBatch, match="cannot begin at byte 61 of 10"):
        walk(codec, bytes(10), 1, start=61)


def test_timestamps_near_the_end_of_64_bits_do_not_overflow(codec: Codec) -> None:
    top, bottom = 2**63 - 1, -(2**63)
    assert walk(codec, record(), 1, top) == (top, top, 0)
    assert walk(codec, record(time=-1), 1, top) == (top - 1, top - 1, 0)
    assert walk(codec, followed(record()), 2, bottom) == (bottom, -1, 0)
    with pytest.raises(CorruptBatch, match="beyond 64 bits"):
        walk(codec, followed(record(time=1)), 2, top)
    with pytest.raises(CorruptBatch, match="beyond 64 bits"):
        walk(codec, followed(record(time=-1)), 2, bottom)


def test_timestamp_range_ignores_records_without_a_timestamp(codec: Codec) -> None:
    assert walk(codec, record(), 1, -1) == (-1, -1, 0)
    assert walk(codec, followed(record(time=-TIME_MS - 1)), 2) == (TIME_MS, TIME_MS, 0)


def test_a_body_above_the_limit_is_walked_without_the_interpreter_lock(codec: Codec) -> None:
    batch = numbered_batch(40, size_bytes=LOCKED_BYTES_MAX // 30)
    assert len(batch) > LOCKED_BYTES_MAX
    base_ms = read_header(batch).base_timestamp
    assert walk(codec, batch, 40, base_ms, start=HEADER_BYTES)[0] == base_ms
    batch[-1] = 9
    with pytest.raises(CorruptBatch, match="headers"):
        walk(codec, batch, 40, base_ms, start=HEADER_BYTES)
