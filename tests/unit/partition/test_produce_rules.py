"""Tests the rules for produced batches, which use only the header and match Kafka's."""

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.batches import SOME_TIME_MS, batch, damaged, numbered_batch
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.produce_rules import check_produced, stamp_append_time
from millstream.records.batch import decode_batch, encode_batch
from millstream.records.header import check, read_header
from millstream.topics.settings import TopicSettings

Change = Callable[[bytearray], bytes | bytearray]


def _settings(**given_settings: str) -> TopicSettings:
    return TopicSettings.of({name.replace("_", "."): value for name, value in given_settings.items()})


def _refused(
    records: bytes | bytearray, topic: TopicSettings | None = None, now_ms: int = SOME_TIME_MS
) -> MillstreamError:
    with pytest.raises(MillstreamError) as error:
        check_produced(memoryview(records), topic or _settings(), now_ms)
    return error.value


def _with(layout: str, position: int, value: int) -> Change:
    """Return the batch with one header field changed and a correct checksum."""

    def change(records: bytearray) -> bytearray:
        struct.pack_into(layout, records, position, value)
        struct.pack_into(">I", records, 17, crc32c(bytes(records[21:])))
        return records

    return change


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_plain_batch_is_accepted(compression: str) -> None:
    records = batch(b"a", b"b", compression=compression)
    assert check_produced(memoryview(records), _settings(), SOME_TIME_MS) == read_header(records)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda records: b"", ErrorCode.INVALID_RECORD),
        (lambda records: records[:60], ErrorCode.INVALID_RECORD),
        (lambda records: records[:-1], ErrorCode.INVALID_RECORD),
        (lambda records: records + records, ErrorCode.INVALID_RECORD),
        (lambda records: records + b"x", ErrorCode.INVALID_RECORD),
        (damaged, ErrorCode.CORRUPT_MESSAGE),
        (_with(">b", 16, 0), ErrorCode.INVALID_RECORD),
        (_with(">b", 16, 1), ErrorCode.INVALID_RECORD),
        (_with(">b", 16, 3), ErrorCode.CORRUPT_MESSAGE),
        (_with(">b", 16, -1), ErrorCode.CORRUPT_MESSAGE),
        (_with(">i", 8, -5), ErrorCode.CORRUPT_MESSAGE),
        (_with(">i", 57, 0), ErrorCode.INVALID_RECORD),
        (_with(">i", 57, 1), ErrorCode.INVALID_RECORD),
        (_with(">i", 57, 3), ErrorCode.INVALID_RECORD),
        (_with(">i", 57, -1), ErrorCode.INVALID_RECORD),
        (_with(">i", 23, 5), ErrorCode.INVALID_RECORD),
        (_with(">i", 23, -1), ErrorCode.INVALID_RECORD),
        (_with(">h", 21, 0x05), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (_with(">h", 21, 0x07), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (_with(">h", 21, 0x20), ErrorCode.INVALID_RECORD),
        (_with(">h", 21, 0x30), ErrorCode.INVALID_RECORD),
        (_with(">h", 21, 0x10), ErrorCode.INVALID_TXN_STATE),
        (_with(">h", 21, 0x08), ErrorCode.INVALID_TIMESTAMP),
    ],
    ids=[
        "nothing",
        "half a header",
        "cut short",
        "two batches",
        "something behind it",
        "one bit turned",
        "format 0",
        "format 1",
        "format 3",
        "format -1",
        "a length below zero",
        "no records",
        "fewer records than offsets",
        "more records than offsets",
        "a count below zero",
        "more offsets than records",
        "offsets that go back",
        "compression 5",
        "compression 7",
        "control",
        "control of a transaction",
        "transactional",
        "log append time set by the producer",
    ],
)
def test_invalid_batches_are_refused_with_kafkas_error(change: Change, code: ErrorCode) -> None:
    assert _refused(change(batch(b"a", b"b"))).code is code


@pytest.mark.parametrize(
    ("producer_epoch", "base_sequence", "accepted"), [(0, 0, True), (-1, 0, False), (0, -1, False)]
)
def test_a_batch_with_a_producer_id_requires_an_epoch_and_a_sequence_number(
    producer_epoch: int, base_sequence: int, accepted: bool
) -> None:
    records = batch(producer_id=5, producer_epoch=producer_epoch, base_sequence=base_sequence)
    if accepted:
        assert check_produced(memoryview(records), _settings(), SOME_TIME_MS).producer_id == 5
    else:
        assert _refused(records).code is ErrorCode.INVALID_RECORD


def test_a_batch_must_fit_the_topic_and_the_segment() -> None:
    records = numbered_batch(10, size_bytes=3_000)
    size = len(records)
    assert check_produced(memoryview(records), _settings(max_message_bytes=str(size)), SOME_TIME_MS)
    error = _refused(records, _settings(max_message_bytes=str(size - 1)))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert str(size) in error.detail
    assert _refused(records, _settings(segment_bytes="16384")).code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_batch_with_a_huge_length_field_is_too_large() -> None:
    assert _refused(_with(">i", 8, 2**31 - 1)(batch())).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("now_ms", "accepted"),
    [
        (SOME_TIME_MS, True),
        (SOME_TIME_MS - 500, True),
        (SOME_TIME_MS - 501, False),
        (SOME_TIME_MS + 1000, True),
        (SOME_TIME_MS + 1001, False),
    ],
)
def test_a_timestamp_too_far_from_now_is_refused(now_ms: int, accepted: bool) -> None:
    topic = _settings(message_timestamp_after_max_ms="500", message_timestamp_before_max_ms="1000")
    if accepted:
        assert check_produced(memoryview(batch()), topic, now_ms)
    else:
        assert _refused(batch(), topic, now_ms).code is ErrorCode.INVALID_TIMESTAMP


def test_a_first_timestamp_that_is_too_old_is_refused() -> None:
    records = encode_batch([b"a", b"b"], timestamps=[SOME_TIME_MS - 5_000, SOME_TIME_MS])
    topic = _settings(message_timestamp_before_max_ms="1000")
    assert _refused(records, topic).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("timestamp", [-1, 0, SOME_TIME_MS])
def test_missing_and_old_timestamps_are_accepted_by_default(timestamp: int) -> None:
    assert check_produced(memoryview(batch(timestamp=timestamp)), _settings(), SOME_TIME_MS)


def test_log_append_time_ignores_the_producers_timestamps() -> None:
    topic = _settings(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms="0")
    assert check_produced(memoryview(batch(timestamp=SOME_TIME_MS + 10**9)), topic, SOME_TIME_MS)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_stamping_the_append_time_sets_all_records_and_the_checksum(compression: str) -> None:
    records = batch(b"a", b"b", b"c", timestamp=5, compression=compression)
    stamp_append_time(memoryview(records), read_header(records), SOME_TIME_MS)
    header = read_header(records)
    check(records, 0, header)
    assert header.is_log_append_time
    assert [(r.value, r.timestamp) for r in decode_batch(records)] == [(v, SOME_TIME_MS) for v in (b"a", b"b", b"c")]


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_garbage_is_refused_with_a_known_error(garbage: bytes) -> None:
    _refused(garbage)


@given(st.integers(0, 60), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_a_changed_header_byte_is_refused_unless_the_broker_sets_it(at: int, value: int) -> None:
    records = batch(b"a", b"b")
    before, records[at] = records[at], value
    stamped = at < 8 or 12 <= at < 16
    try:
        check_produced(memoryview(records), _settings(), SOME_TIME_MS)
        assert before == value or stamped
    except MillstreamError:
        assert before != value
