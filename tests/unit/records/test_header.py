"""Tests reading, checking and stamping of batch headers."""

import struct

import pytest

from builders.batches import batch, damaged, numbered_batch
from millstream.model.errors import ErrorCode
from millstream.model.ids import LeaderEpoch, Offset, ProducerId
from millstream.records.batch import decode_batch, encode_batch
from millstream.records.header import (
    HEADER_BYTES,
    BatchHeader,
    Bytes,
    CorruptBatch,
    check,
    each_batch,
    read_header,
    stamp,
)

SIMPLE = BatchHeader(
    base_offset=Offset(10),
    batch_length=100,
    leader_epoch=LeaderEpoch(3),
    magic=2,
    crc=0,
    attributes=0,
    last_offset_delta=4,
    base_timestamp=1000,
    max_timestamp=2000,
    producer_id=ProducerId(7),
    producer_epoch=1,
    base_sequence=20,
    record_count=5,
)


def with_field(whole: bytearray, layout: str, position: int, value: int) -> bytearray:
    """Copy the batch with one field of the header overwritten."""
    copy = bytearray(whole)
    struct.pack_into(layout, copy, position, value)
    return copy


def test_a_header_has_the_fields_of_the_encoded_batch() -> None:
    whole = encode_batch(
        [b"a", b"b", b"c"],
        timestamps=[50, 40, 60],
        base_offset=1_000_000_000_000,
        compression="zstd",
        producer_id=2**40,
        producer_epoch=9,
        base_sequence=2**31 - 2,
        transactional=True,
        leader_epoch=4,
    )
    header = read_header(whole)
    assert header.base_offset == 1_000_000_000_000
    assert header.size_bytes == len(whole)
    assert header.leader_epoch == 4
    assert header.magic == 2
    assert header.last_offset == 1_000_000_000_002
    assert header.next_offset == 1_000_000_000_003
    assert (header.base_timestamp, header.max_timestamp) == (50, 60)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 9, 2**31 - 2)
    assert header.record_count == 3
    assert header.compression == 4
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time


@pytest.mark.parametrize(
    ("base_sequence", "last_offset_delta", "last_sequence"),
    [(0, 0, 0), (20, 4, 24), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6), (-1, 4, -1)],
)
def test_sequence_numbers_wrap_after_the_largest(
    base_sequence: int, last_offset_delta: int, last_sequence: int
) -> None:
    header = SIMPLE._replace(base_sequence=base_sequence, last_offset_delta=last_offset_delta)
    assert header.last_sequence == last_sequence


@pytest.mark.parametrize(
    ("attributes", "compression", "append_time", "transactional", "control"),
    [(0, 0, False, False, False), (0x0C, 4, True, False, False), (0x31, 1, False, True, True)],
)
def test_each_attribute_bit_is_read_separately(
    attributes: int, compression: int, append_time: bool, transactional: bool, control: bool
) -> None:
    header = SIMPLE._replace(attributes=attributes)
    assert header.compression == compression
    assert (header.is_log_append_time, header.is_transactional, header.is_control) == (
        append_time,
        transactional,
        control,
    )


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_batch_is_read_and_checked_in_any_buffer_at_any_position(kind: type[Bytes]) -> None:
    buffer = kind(b"before" + batch(b"value", base_offset=5))
    header = read_header(buffer, 6)
    assert header.base_offset == 5
    check(buffer, 6, header)


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1])
def test_a_truncated_header_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch, match="needs 61 bytes"):
        read_header(batch()[:size])


def test_corrupt_batch_has_the_error_code_corrupt_message() -> None:
    with pytest.raises(CorruptBatch) as caught:
        read_header(b"")
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_damage_to_any_byte_from_the_checksum_on_is_detected() -> None:
    whole = batch(b"some value", keys=[b"key"])
    for position in range(17, len(whole)):
        harmed = damaged(whole, position)
        with pytest.raises(CorruptBatch):
            check(harmed, 0, read_header(harmed))


@pytest.mark.parametrize(
    ("layout", "position", "value", "complaint"),
    [
        (">b", 16, 1, "format 1"),
        (">b", 16, 3, "format 3"),
        (">i", 8, 48, "too small for a header"),
        (">i", 8, -1, "too small for a header"),
        (">i", 8, 2**31 - 1, "are left"),
        (">q", 0, -1, "base offset -1 is out of range"),
        (">q", 0, 2**63 - 1, "out of range"),
        (">h", 21, 5, "compression 5 is unknown"),
        (">i", 23, -1, "last offset delta -1 is negative"),
        (">i", 57, -1, "-1 records cannot have 3 offsets"),
        (">i", 57, 4, "4 records cannot have 3 offsets"),
        (">i", 57, 2**31 - 1, "2147483647 records cannot have 3 offsets"),
    ],
)
def test_a_header_with_impossible_values_is_corrupt(layout: str, position: int, value: int, complaint: str) -> None:
    lying = with_field(numbered_batch(3), layout, position, value)
    with pytest.raises(CorruptBatch, match=complaint):
        check(lying, 0, read_header(lying))


def test_a_record_count_too_large_for_the_batch_is_corrupt() -> None:
    lying = with_field(with_field(numbered_batch(3), ">i", 57, 2**31 - 1), ">i", 23, 2**31 - 1)
    with pytest.raises(CorruptBatch, match="2147483647 records do not fit"):
        check(lying, 0, read_header(lying))


def test_a_batch_with_fewer_records_than_offsets_is_valid() -> None:
    gaps = encode_batch([b"a", b"b"], timestamps=0, offset_deltas=[3, 9])
    check(gaps, 0, read_header(gaps))
    assert read_header(gaps).next_offset == 10


def test_stamping_sets_offset_and_epoch_and_keeps_the_checksum_valid() -> None:
    buffer = bytearray(b"before") + batch(b"value") + b"after"
    stamp(buffer, 6, base_offset=2**40, leader_epoch=17)
    header = read_header(buffer, 6)
    check(buffer, 6, header)
    assert (header.base_offset, header.leader_epoch) == (2**40, 17)
    assert decode_batch(buffer, 6)[0].offset == 2**40
    assert buffer[:6] == b"before"
    assert buffer[-5:] == b"after"


@pytest.mark.parametrize("cut", [0, 1, 11, 60, 61, 70])
def test_each_batch_yields_whole_batches_and_skips_a_partial_one(cut: int) -> None:
    first, second = numbered_batch(2), numbered_batch(3, base_offset=2)
    found = list(each_batch(first + second + batch(b"x" * 100, base_offset=5)[:cut]))
    assert [(position, header.base_offset) for position, header in found] == [(0, 0), (len(first), 2)]


@pytest.mark.parametrize(("layout", "position", "value"), [(">b", 16, 0), (">i", 8, 0), (">i", 8, -(2**31))])
def test_each_batch_raises_corrupt_batch_for_an_invalid_header(layout: str, position: int, value: int) -> None:
    first = numbered_batch(2)
    found = each_batch(first + with_field(numbered_batch(2), layout, position, value))
    assert next(found)[0] == 0
    with pytest.raises(CorruptBatch, match=f"no batch begins at byte {len(first)}"):
        next(found)
