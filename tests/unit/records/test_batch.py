"""Tests the encoding and decoding of batches, with the compiled and the plain codec."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import batch, damaged, numbered_batch
from builders.record_lists import RecordList, bounded, record_lists
from millstream.model.message_id import MadeId
from millstream.records.batch import decode_batch, decode_batches, decode_messages, encode_batch
from millstream.records.header import CorruptBatch, check, read_header
from millstream.records.record import Record

pytestmark = pytest.mark.usefixtures("codec")

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]


@given(made=record_lists(), compression=st.sampled_from(COMPRESSIONS), base_offset=st.integers(0, 2**62))
@bounded(80)
def test_encoded_records_are_decoded_unchanged(made: RecordList, compression: str, base_offset: int) -> None:
    encoded = made.encode(compression=compression, base_offset=base_offset)
    check(encoded, 0, read_header(encoded))
    assert decode_batch(encoded) == made.records(base_offset)


def test_a_decoded_record_has_the_encoded_fields() -> None:
    (record,) = decode_batch(encode_batch([b"v"], keys=[b"k"], headers=[[("h", b"1")]], timestamps=5, base_offset=9))
    assert isinstance(record, Record)
    assert record.offset == 9
    assert record.timestamp == 5
    assert record.key == b"k"
    assert record.value == b"v"
    assert record.headers == (("h", b"1"),)


def test_each_record_gets_its_own_offset_and_timestamp() -> None:
    count = 20_000
    values = [b"%d" % number for number in range(count)]
    records = decode_batch(encode_batch(values, timestamps=range(count, 0, -1), base_offset=7))
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == list(range(7, 7 + count))
    assert [record.timestamp for record in records] == list(range(count, 0, -1))


def test_log_append_time_replaces_the_timestamps_of_all_records() -> None:
    encoded = encode_batch([b"a", b"b"], timestamps=[5, 900], append_timestamp=1234)
    assert read_header(encoded).is_log_append_time
    assert [record.timestamp for record in decode_batch(encoded)] == [1234, 1234]


@pytest.mark.parametrize(
    "timestamps", [[0, -1], [-1, 5, -1], [-(2**63), -1], [2**63 - 1, 0], [2**62 - 1, -(2**62)], [0, 2**63 - 1]]
)
def test_timestamps_may_decrease_and_differ_widely(timestamps: list[int]) -> None:
    encoded = encode_batch([None] * len(timestamps), timestamps=timestamps)
    assert [record.timestamp for record in decode_batch(encoded)] == timestamps
    assert read_header(encoded).max_timestamp == max(timestamps)


def test_a_batch_with_offset_gaps_keeps_its_offsets() -> None:
    encoded = encode_batch([b"a", b"b", b"c"], timestamps=0, offset_deltas=[2, 5, 2**31 - 1], base_offset=10)
    assert [record.offset for record in decode_batch(encoded)] == [12, 15, 10 + 2**31 - 1]


def test_an_emptied_batch_has_no_records() -> None:
    emptied = bytearray(numbered_batch(3)[:61])
    struct.pack_into(">i", emptied, 8, 49)
    struct.pack_into(">i", emptied, 57, 0)
    assert decode_batch(emptied, verify=False) == []


def test_a_control_batch_is_decoded_only_on_request() -> None:
    mark = encode_batch(
        [struct.pack(">hi", 0, 3)], keys=[struct.pack(">hh", 0, 1)], timestamps=1, control=True, transactional=True
    )
    assert read_header(mark).is_control
    assert decode_batch(mark)[0].key == b"\x00\x00\x00\x01"
    stream = numbered_batch(1) + mark + numbered_batch(1)
    assert [record.value for record in decode_batches(stream)] == [b"0", b"0"]
    assert len(decode_batches(stream, control=True)) == 3


def test_a_partial_batch_at_the_end_of_a_fetch_is_ignored() -> None:
    fetched = numbered_batch(2) + numbered_batch(2, first=2, base_offset=2) + numbered_batch(2, base_offset=4)[:70]
    assert [(record.offset, record.value) for record in decode_batches(fetched)] == [
        (number, b"%d" % number) for number in range(4)
    ]


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(
    ("writer", "expected"),
    [
        ((9, 2, 500), MadeId(9, 2, 3, 500, 4)),
        ((2**63 - 1, 32766, 2**31 - 1), MadeId(2**63 - 1, 32766, 3, 2**31 - 1, 4)),
        ((-1, 2, 500), None),
        ((9, -1, 500), None),
        ((9, 2, -1), None),
    ],
)
def test_messages_have_the_made_ids_of_their_batch(
    writer: tuple[int, int, int], expected: MadeId | None, compression: str
) -> None:
    names = ("producer_id", "producer_epoch", "base_sequence")
    fields: dict[str, Any] = {"timestamps": 5, "offset_deltas": [0, 4], "base_offset": 10, "compression": compression}
    fields |= dict(zip(names, writer, strict=True))
    plain = encode_batch([b"a", b"b"], **fields)
    stored = encode_batch([b"a", b"b"], **fields, made_ids=True)
    first, second, *others = decode_messages(bytes(stored + plain), "orders", 3)
    assert (first.offset, second.offset, second.message_id) == (10, 14, expected and expected.encode())
    assert [each.message_id for each in others] == [None, None]


def test_a_wrong_checksum_is_detected_unless_verify_is_off() -> None:
    harmed = damaged(batch(b"aaa"), -2)
    with pytest.raises(CorruptBatch, match="CRC-32C"):
        decode_batch(harmed)
    assert decode_batch(harmed, verify=False)[0].value == b"aa`"


def test_decoded_values_do_not_share_memory_with_the_buffer() -> None:
    buffer = batch(b"value")
    (record,) = decode_batch(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert record.value == b"value"


def test_invalid_utf8_in_a_header_key_is_replaced() -> None:
    odd = encode_batch([b""], headers=[[("ab", b"x")]], timestamps=0).replace(b"\x04ab\x02x", b"\x04\xffb\x02x")
    assert decode_batch(odd, verify=False)[0].headers == (("\ufffdb", b"x"),)


def test_the_size_limit_applies_to_all_batches_of_a_buffer_together() -> None:
    one = numbered_batch(10, size_bytes=100)
    body_bytes = len(one) - 61
    assert len(decode_batches(one * 3, limit_bytes=3 * body_bytes)) == 30
    with pytest.raises(CorruptBatch, match="the limit of"):
        decode_batches(one * 3, limit_bytes=3 * body_bytes - 1)


@pytest.mark.parametrize(
    ("values", "arguments", "complaint"),
    [
        ([], {"timestamps": 0}, "at least one record"),
        ([b"a"], {"timestamps": []}, "1 values but 0 timestamps"),
        ([b"a"], {"timestamps": 0, "keys": [b"a", b"b"]}, "1 values but 2 keys"),
        ([b"a"], {"timestamps": 0, "headers": []}, "1 values but 0 headers"),
        ([b"a"], {"timestamps": 0, "offset_deltas": [-1]}, "offset_deltas"),
        ([b"a", b"b"], {"timestamps": 0, "offset_deltas": [1, 1]}, "offset_deltas"),
        ([b"a"], {"timestamps": 0, "offset_deltas": [2**31]}, "offset_deltas"),
        ([b"a"], {"timestamps": 2**63}, "too far apart"),
        ([b"a", b"b"], {"timestamps": [-(2**62), 2**62]}, "too far apart"),
        ([b"a"], {"timestamps": 0, "compression": "brotli"}, "none, gzip, snappy, lz4, zstd"),
        ([b"a"], {"timestamps": 0, "level": 3}, "needs a compression"),
    ],
)
def test_contradicting_arguments_are_refused(
    values: list[bytes | None], arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_batch(values, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"values": ["text"]},
        {"values": [bytearray(b"a")]},
        {"values": [b""], "keys": [1]},
        {"values": [b""], "headers": [[("key", "text")]]},
    ],
)
def test_values_that_are_not_bytes_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"bytes or None, not (str|bytearray|int)"):
        encode_batch(**arguments, timestamps=0)


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_the_memory_of_a_used_batch_is_reused_unless_it_is_referenced(size: int) -> None:
    fresh = encode_batch([b"value"] * 50, timestamps=5)
    used = bytearray(b"x" * size)
    assert encode_batch([b"value"] * 50, timestamps=5, used=used) is used
    assert used == fresh
    other = bytearray(b"x" * size)
    with memoryview(other):
        assert encode_batch([b"value"] * 50, timestamps=5, used=other) == fresh
        assert other == b"x" * size
