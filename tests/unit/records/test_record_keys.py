"""Tests key maps and reduced batches, with the compiled and the plain codec."""

from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import damaged
from builders.record_lists import bounded
from millstream.records.batch import batch_body, decode_batch, encode_batch
from millstream.records.compaction import OFFSETS_MAX, emptied, filler, reduced
from millstream.records.header import HEADER_BYTES, CorruptBatch, check, read_header
from millstream.records.record import Record

from .conftest import Codec

KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b"]), st.binary(max_size=40))
RECORDS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=30))), min_size=1, max_size=30)
TIMES = st.integers(-(2**40), 2**40)


def body_of(pairs: list[tuple[bytes | None, bytes | None]], times: list[int] | int = 5) -> bytes:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    return bytes(encode_batch(values, keys=keys, timestamps=times)[HEADER_BYTES:])


@bounded(60)
@given(RECORDS, st.integers(0, 35), st.booleans())
def test_both_codecs_keep_the_last_record_of_each_key(
    compiled: Codec, plain: Codec, pairs: list[tuple[bytes | None, bytes | None]], end: int, drop: bool
) -> None:
    body, count = body_of(pairs), len(pairs)
    end_offset = 100 + min(end, count)
    last = {key: number for number, (key, _) in enumerate(pairs) if 100 + number < end_offset}
    expected = bytearray(
        100 + number >= end_offset or (key is not None and last[key] == number and not (drop and value is None))
        for number, (key, value) in enumerate(pairs)
    )
    for codec in (compiled, plain):
        noted = codec.keys.OffsetMap(64, 100)
        if noted_pairs := pairs[: end_offset - 100]:
            assert noted.add(body_of(noted_pairs), len(noted_pairs), 100, count, 100) == -1
        marks, staying, tombstones = noted.judge(body, count, 100, count - 1, end_offset, drop)
        assert marks == expected
        assert staying == sum(expected)
        kept = [pair for number, pair in enumerate(pairs) if marks[number] and 100 + number < end_offset]
        assert tombstones == sum(value is None for _, value in kept)


@pytest.mark.parametrize("life", ["compiled", "plain"])
def test_a_full_offset_map_returns_the_first_offset_that_did_not_fit(life: str, request: pytest.FixtureRequest) -> None:
    codec: Codec = request.getfixturevalue(life)
    noted = codec.keys.OffsetMap(16, 0)
    body = body_of([(b"%d" % (number % 20), b"") for number in range(40)])
    assert noted.add(body, 40, 0, 39, 0) == 12
    assert len(noted) == 12
    marks, staying, _ = noted.judge(body, 40, 0, 39, 12, False)
    assert (marks, staying) == (bytearray(b"\1" * 40), 40)
    assert noted.add(body_of([(b"3", b"")]), 1, 20, 0, 0) == -1, "a key that is known needs no room"
    assert noted.judge(body, 40, 0, 39, 12, False)[0][:6] == b"\1\1\1\0\1\1"


def test_an_offset_map_distinguishes_many_keys(codec: Codec) -> None:
    count = 20_000
    noted = codec.keys.OffsetMap(2**15, 0)
    body = body_of([(b"key %d" % number, None) for number in range(count)])
    assert noted.add(body, count, 0, count - 1, 0) == -1
    assert len(noted) == count
    assert noted.judge(body, count, 0, count - 1, count, False)[1] == count


@bounded(60)
@given(RECORDS, st.data(), st.sampled_from(["none", "gzip", "zstd"]), st.one_of(st.none(), TIMES))
def test_a_reduced_batch_contains_the_kept_records_unchanged(
    pairs: list[tuple[bytes | None, bytes | None]], data: st.DataObject, compression: str, horizon_ms: int | None
) -> None:
    times = data.draw(st.lists(TIMES, min_size=len(pairs), max_size=len(pairs)))
    marks = bytearray(data.draw(st.lists(st.integers(0, 1), min_size=len(pairs), max_size=len(pairs)).filter(any)))
    values, keys = [value for _, value in pairs], [key for key, _ in pairs]
    headers = [[("h", b"%d" % number)] for number in range(len(pairs))]
    whole = encode_batch(values, keys=keys, timestamps=times, headers=headers, base_offset=7, compression=compression)
    before, records = read_header(whole), decode_batch(whole)
    body = batch_body(whole, 0, before, limit_bytes=2**20, verify=False)
    batch = reduced(before, body, marks, horizon_ms)
    after = read_header(batch)
    check(batch, 0, after)
    staying = [record for record, mark in zip(records, marks, strict=True) if mark]
    assert decode_batch(batch) == staying
    assert (after.base_offset, after.next_offset) == (before.base_offset, before.next_offset)
    assert after.max_timestamp == max(record.timestamp for record in staying)
    assert after.delete_horizon_ms == horizon_ms
    assert after.compression == before.compression


def test_a_reduced_batch_keeps_its_log_append_time() -> None:
    whole = encode_batch([b"a", b"b"], timestamps=[1, 2], append_timestamp=99)
    header = read_header(whole)
    body = batch_body(whole, 0, header, limit_bytes=2**20, verify=False)
    assert decode_batch(reduced(header, body, bytearray(b"\0\1"), 50)) == [Record(1, 99, None, b"b")]


def test_batches_without_records_cover_their_offsets() -> None:
    whole = encode_batch(
        [b"a", b"b"], timestamps=1, compression="zstd", producer_id=4, producer_epoch=1, base_sequence=8
    )
    header = read_header(emptied(read_header(whole)))
    assert (header.record_count, header.last_sequence, header.next_offset, header.compression) == (0, 9, 2, 0)
    batch = filler(base_offset=5, next_offset=5 + OFFSETS_MAX, leader_epoch=3)
    header = read_header(batch)
    check(batch, 0, header)
    assert (header.base_offset, header.next_offset, header.producer_id, header.leader_epoch) == (
        5,
        5 + OFFSETS_MAX,
        -1,
        3,
    )
    assert decode_batch(batch) == []


@bounded(60)
@given(st.binary(max_size=60), st.integers(-1, 12), st.integers(0, 12))
def test_both_codecs_refuse_invalid_records_with_the_same_error(
    compiled: Codec, plain: Codec, data: bytes, count: int, delta: int
) -> None:
    outcomes = []
    for codec in (compiled, plain):
        try:
            outcomes.append(repr(codec.keys.keyless_records(data, count, delta)))
        except CorruptBatch as error:
            outcomes.append(error.detail)
    assert outcomes[0] == outcomes[1]


@bounded(60)
@given(RECORDS, st.integers(0, 10_000))
def test_a_damaged_body_raises_only_corrupt_batch(
    compiled: Codec, plain: Codec, pairs: list[tuple[bytes | None, bytes | None]], place: int
) -> None:
    body, count = body_of(pairs), len(pairs)
    body = bytes(damaged(body, place % len(body)))
    uses: tuple[Callable[[ModuleType], object], ...] = (
        lambda keys: keys.OffsetMap(64, 0).add(body, count, 0, count - 1, 0),
        lambda keys: keys.OffsetMap(64, 0).judge(body, count, 0, count - 1, 99, True),
        lambda keys: keys.filter_records(body, count, count - 1, bytearray(b"\1" * count), 2**62, 61),
    )
    for codec in (compiled, plain):
        for use in uses:
            try:
                use(codec.keys)
            except CorruptBatch:
                continue
