"""Checks that the fast path for usual batches agrees with the separate checks."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import SOME_TIME_MS, batch, damaged, numbered_batch
from builders.record_lists import bounded
from millstream.partition.produce_rules import check_closely
from millstream.records.header import BatchHeader, read_header, stamp
from millstream.topics.settings import TopicSettings

from .conftest import Codec

BEFORE_MS, AFTER_MS = 1000, 500
BYTES_MAX = 100_000
TOPIC = TopicSettings.of(
    {
        "max.message.bytes": str(BYTES_MAX),
        "message.timestamp.before.max.ms": str(BEFORE_MS),
        "message.timestamp.after.max.ms": str(AFTER_MS),
    }
)
FIELDS = [(">q", 0), (">i", 8), (">i", 12), (">b", 16), (">I", 17), (">h", 21), (">i", 23), (">q", 27), (">q", 35)]
FIELDS += [(">q", 43), (">h", 51), (">i", 53), (">i", 57)]


def usual_header(codec: Codec, records: bytes | bytearray, bytes_max: int = BYTES_MAX) -> BatchHeader | None:
    found = codec.produced_batch.usual_header(memoryview(records), bytes_max, SOME_TIME_MS, BEFORE_MS, AFTER_MS)
    assert found is None or isinstance(found, BatchHeader)
    return found


@pytest.mark.parametrize(
    "records",
    [
        batch(b"a", b"b"),
        batch(b"a", compression="lz4"),
        numbered_batch(100, size_bytes=100),
        batch(producer_id=2**40, producer_epoch=3, base_sequence=4),
        batch(base_offset=2**62, leader_epoch=5),
        batch(timestamp=-1),
        batch(timestamp=SOME_TIME_MS + AFTER_MS),
        batch(timestamp=SOME_TIME_MS - BEFORE_MS),
    ],
    ids=["plain", "compressed", "large", "idempotent", "stamped by another", "no time", "early", "late"],
)
def test_usual_header_returns_the_header_of_a_usual_batch(codec: Codec, records: bytearray) -> None:
    header = usual_header(codec, records, len(records))
    assert header == read_header(records)
    assert [type(value) for value in header] == [int] * 13
    assert usual_header(codec, records, len(records) - 1) is None


@pytest.mark.parametrize("size_bytes", [100, 2000])
def test_every_flipped_bit_is_detected(codec: Codec, size_bytes: int) -> None:
    records = batch(b"." * size_bytes)
    assert not any(usual_header(codec, damaged(records, at)) for at in range(21, len(records), 7))


@pytest.mark.parametrize("size", [0, 1, 60, 61])
def test_a_truncated_batch_is_not_usual(codec: Codec, size: int) -> None:
    assert usual_header(codec, batch()[:size]) is None


@bounded(400)
@given(
    st.sampled_from(FIELDS),
    st.one_of(
        st.integers(-130, 130),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from(
            [sign * 2**bits - less for sign in (1, -1) for bits in (15, 31, 32, 62, 63) for less in (0, 1)]
        ),
        st.integers(SOME_TIME_MS - 2 * BEFORE_MS, SOME_TIME_MS + 2 * AFTER_MS),
    ),
    st.booleans(),
)
def test_compiled_and_plain_agree_and_usual_batches_pass_each_rule(
    compiled: Codec, plain: Codec, field: tuple[str, int], value: int, sealed: bool
) -> None:
    layout, position = field
    size = struct.calcsize(layout)
    records = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
    records[position : position + size] = (value % 2 ** (8 * size)).to_bytes(size)
    if sealed:
        records[17:21] = crc32c(bytes(records[21:])).to_bytes(4)
    found = usual_header(compiled, records)
    assert found == usual_header(plain, records)
    if found is not None:
        assert found == check_closely(memoryview(records), TOPIC, SOME_TIME_MS)


@pytest.mark.parametrize(
    ("base_offset", "leader_epoch"), [(0, 0), (2**40 + 3, 17), (2**63 - 2**31 - 1, 2**31 - 1), (5, -1)]
)
def test_stamping_returns_the_new_header_of_the_batch(codec: Codec, base_offset: int, leader_epoch: int) -> None:
    records, expected = numbered_batch(3), numbered_batch(3)
    header = codec.produced_batch.placed(memoryview(records), read_header(records), base_offset, leader_epoch)
    stamp(expected, base_offset=base_offset, leader_epoch=leader_epoch)
    assert records == expected
    assert isinstance(header, BatchHeader)
    assert header == read_header(records)


def test_stamping_a_read_only_buffer_fails(codec: Codec) -> None:
    records = bytes(batch())
    with pytest.raises((BufferError, TypeError)):
        codec.produced_batch.placed(memoryview(records), read_header(records), 1, 1)
