"""Checks that hostile batches give a clear error with both codecs, and never a crash."""

import os
import random
import time
from itertools import count as count_from
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.record_lists import RecordList, bounded, record_lists
from millstream.model.errors import ErrorCode
from millstream.model.ids import LeaderEpoch, Offset, ProducerId
from millstream.records import arrow, batch
from millstream.records.arrow import decode_to_arrow
from millstream.records.batch import batch_attributes, decode_batch, decode_batches, encode_batch, seal
from millstream.records.header import HEADER_BYTES, MAGIC, BatchHeader, CorruptBatch
from millstream.records.record import Record

FUZZ_SECONDS = float(os.environ.get("FUZZ_SECONDS", "2"))
INT32_MAX = 2**31 - 1
MIB = 1024 * 1024


def varint(value: int) -> bytes:
    """Encode a varint. It is independent of the codec, to verify it."""
    rest = value * 2 if value >= 0 else -value * 2 - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(0x80 | rest & 0x7F)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def record(
    *, time_delta: int = 0, offset_delta: int = 0, key: bytes = b"\x01", value: bytes = b"\x01", headers: bytes = b"\0"
) -> bytes:
    """Encode one record from encoded parts, with a correct length."""
    fields = b"\x00" + varint(time_delta) + varint(offset_delta) + key + value + headers
    return varint(len(fields)) + fields


def sealed(body: bytes, record_count: int, *, compression: str = "none", base_timestamp: int = 0) -> bytearray:
    """Make a batch of any bytes, with a valid checksum."""
    header = BatchHeader(
        base_offset=Offset(0),
        batch_length=0,
        leader_epoch=LeaderEpoch(0),
        magic=MAGIC,
        crc=0,
        attributes=batch_attributes(compression),
        last_offset_delta=max(record_count - 1, 0),
        base_timestamp=base_timestamp,
        max_timestamp=0,
        producer_id=ProducerId(-1),
        producer_epoch=-1,
        base_sequence=-1,
        record_count=record_count,
    )
    return seal(bytearray(HEADER_BYTES) + body, header)


LIES: dict[str, tuple[bytes, str]] = {
    "a varint that never ends": (b"\xff" * 50, "more than 32 bits"),
    "a varint of too many bits": (b"\xff\xff\xff\xff\x10" + bytes(20), "more than 32 bits"),
    "a time that never ends": (varint(30) + b"\x00" + b"\xff" * 30, "more than 64 bits"),
    "a time of 65 bits": (varint(30) + b"\x00" + b"\xff" * 9 + b"\x02" + bytes(30), "more than 64 bits"),
    "a record longer than the batch": (varint(100) + bytes(20), "record length of 100, but only 20 bytes"),
    "a record of negative length": (varint(-1) + bytes(20), "record length of -1"),
    "a record of the most negative length": (varint(-(2**31)) + bytes(20), "record length of -2147483648"),
    "a record too short for its fields": (varint(5) + bytes(20), "record length of 5"),
    "a key longer than its record": (record(key=varint(5) + b"ab"), "length of 5, but only 4 bytes"),
    "a key as long as can be": (record(key=varint(INT32_MAX)) + bytes(9), "length of 2147483647"),
    "a key of negative length": (record(key=varint(-2)), "length of -2"),
    "a value longer than its record": (record(value=varint(3) + b"ab", headers=b""), "length of 3, but only 2"),
    "a value of negative length": (record(value=varint(-(2**31))), "length of -2147483648"),
    "headers without end": (record(headers=varint(INT32_MAX)), "header count of 2147483647"),
    "headers of negative number": (record(headers=varint(-1)), "header count of -1"),
    "more headers than bytes": (record(headers=varint(3) + b"\x00\x01" * 2), "header count of 3"),
    "a header without a key": (record(headers=varint(1) + b"\x01\x01"), "no key"),
    "a header key longer than its record": (record(headers=varint(1) + varint(9) + b"ab"), "length of 9"),
    "a header value longer than its record": (record(headers=varint(1) + b"\x02a" + varint(9)), "length of 9"),
    "a header value of negative length": (record(headers=varint(1) + b"\x02a" + varint(-7)), "length of -7"),
    "a record that ends before its value": (record(headers=b"", value=b"") + bytes(9), "record length of 4"),
    "a record that ends before its headers": (record(key=varint(3) + b"abc", headers=b""), "runs over the end"),
    "a record that goes on": (record(headers=b"\x00\x00"), "has bytes after its last field"),
    "an offset before the batch": (record(offset_delta=-1), "offset delta -1"),
    "an offset after the batch": (record(offset_delta=1), "offset delta 1 is not within 0 and 0"),
    "a time before all times": (record(time_delta=-(2**63)), "timestamp is out of range"),
    "bytes after the last record": (record() + b"\x00", "1 bytes follow"),
    "a second record": (record() * 2, "7 bytes follow"),
}


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("decode", [decode_batch, decode_to_arrow])
def test_a_batch_with_false_fields_is_corrupt(decode: Any, lie: str, compression: str) -> None:
    body, complaint = LIES[lie]
    with pytest.raises(CorruptBatch, match=complaint) as caught:
        decode(sealed(body, 1, compression=compression, base_timestamp=-5))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("decode", [decode_batch, decode_to_arrow])
def test_a_small_compressed_batch_claiming_two_billion_records_is_corrupt(decode: Any) -> None:
    with pytest.raises(CorruptBatch, match="2147483647 records do not fit into 7 bytes"):
        decode(sealed(record(), INT32_MAX, compression="lz4"))


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("decode", [decode_batch, decode_to_arrow])
def test_a_batch_with_fewer_records_than_its_count_is_corrupt(decode: Any) -> None:
    body = record(value=varint(40) + bytes(40)) + record(offset_delta=1)
    with pytest.raises(CorruptBatch, match="runs over the end"):
        decode(sealed(body, 3))


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("base_timestamp", [2**63 - 1, -(2**63)])
@pytest.mark.parametrize("time_delta", [1, -1, 2**63 - 1, -(2**63)])
def test_a_timestamp_that_overflows_is_corrupt(base_timestamp: int, time_delta: int) -> None:
    whole = sealed(record(time_delta=time_delta), 1, base_timestamp=base_timestamp)
    timestamp = base_timestamp + time_delta
    if -(2**63) <= timestamp < 2**63:
        assert decode_batch(whole)[0].timestamp == timestamp
    else:
        with pytest.raises(CorruptBatch, match="timestamp is out of range"):
            decode_batch(whole)


def many_records(size_bytes: int) -> tuple[bytes, int]:
    """Make a body of the smallest possible records."""
    count = size_bytes // len(record())
    return record() * count, count


def many_headers(size_bytes: int) -> tuple[bytes, int]:
    """Make a body of one record with the smallest possible headers."""
    count = size_bytes // 2 - 20
    return record(headers=varint(count) + b"\x00\x01" * count), 1


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("many", [many_records, many_headers])
@pytest.mark.parametrize("decode", [decode_batch, decode_batches])
def test_a_small_batch_cannot_create_more_objects_than_the_limit(decode: Any, many: Any) -> None:
    bomb = sealed(*many(MIB), compression="zstd")
    assert len(bomb) < 1000
    with pytest.raises(CorruptBatch, match="more memory as objects"):
        decode(bomb, limit_bytes=MIB)


@pytest.mark.usefixtures("codec")
def test_batches_of_one_buffer_share_the_memory_limit_of_objects() -> None:
    one = sealed(*many_records(40_000), compression="zstd")
    assert decode_batches(one, limit_bytes=MIB)
    with pytest.raises(CorruptBatch, match="more memory as objects"):
        decode_batches(one * 2, limit_bytes=MIB)


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("many", [many_records, many_headers])
def test_many_uncompressed_small_records_stay_within_the_memory_limit(many: Any) -> None:
    body, count = many(100_000)
    whole = sealed(body, count)
    assert len(decode_batch(whole, limit_bytes=len(body))) == count
    assert len(decode_batches(whole * 2, limit_bytes=2 * len(body))) == 2 * count


def outcome(decode: ModuleType, body: bytes, record_count: int, last_offset_delta: int) -> object:
    """Return the decoded records, or the error text."""
    try:
        return decode.decode_records(body, record_count, 5, last_offset_delta, 1000, None, MIB)
    except CorruptBatch as problem:
        return str(problem)


def columns_outcome(decode: ModuleType, body: bytes, record_count: int, last_offset_delta: int) -> object:
    """Return the buffers for Arrow, or the error text."""
    sizes = decode.RecordSizes()
    try:
        sizes.add(record_count, len(body))
        columns = decode.RecordColumns(sizes, bytearray)
        columns.add(body, record_count, 5, last_offset_delta, 1000, None)
    except CorruptBatch as problem:
        return str(problem)
    binaries = [
        (nulls, validity[: (ends_bytes // 4 + 6) // 8], ends[:ends_bytes], data[:data_bytes])
        for nulls, validity, ends, ends_bytes, data, data_bytes in columns.binary_buffers()
    ]
    return columns.buffers(), binaries


def check_alike(plain: ModuleType, compiled: ModuleType, body: bytes, record_count: int, last: int) -> None:
    """Check that both codecs give the same records or errors, as objects and as columns."""
    records = outcome(plain, body, record_count, last)
    assert outcome(compiled, body, record_count, last) == records
    columns = columns_outcome(plain, body, record_count, last)
    assert columns_outcome(compiled, body, record_count, last) == columns
    assert isinstance(records, str) == isinstance(columns, str)
    if isinstance(records, str):
        assert records == columns


@given(body=st.binary(max_size=60), record_count=st.integers(-2, 6), last=st.integers(0, 6))
@bounded(300)
def test_both_codecs_give_the_same_result_for_garbage(
    plain: Any, compiled: Any, body: bytes, record_count: int, last: int
) -> None:
    check_alike(plain.decode, compiled.decode, body, record_count, last)


@given(made=record_lists(), data=st.data())
@bounded(150)
def test_both_codecs_give_the_same_result_for_damaged_records(
    plain: Any, compiled: Any, made: RecordList, data: st.DataObject
) -> None:
    body = made.encode()[HEADER_BYTES:]
    for position in data.draw(st.lists(st.integers(0, min(len(body) - 1, 200)), max_size=3)):
        body[position] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    cut = data.draw(st.just(len(body)) | st.integers(0, len(body)))
    check_alike(plain.decode, compiled.decode, bytes(body[:cut]), len(made.values), made.offset_deltas[-1])


@st.composite
def buffers(draw: st.DrawFn) -> bytes:
    """Generate the batches of a fetch response: mostly valid, with some damaged bytes or a truncated end."""
    whole = bytearray()
    for made in draw(st.lists(record_lists(), min_size=1, max_size=4)):
        compression = draw(st.sampled_from(["none", "none", "none", "lz4"]))
        append_timestamp = draw(st.none() | st.just(77))
        whole += made.encode(
            compression=compression,
            append_timestamp=append_timestamp,
            base_offset=len(whole),
            control=draw(st.booleans()),
        )
    for position in draw(st.lists(st.integers(0, len(whole) - 1), max_size=2)):
        whole[position] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    return bytes(whole[: draw(st.just(len(whole)) | st.integers(0, len(whole)))])


def buffer_outcome(life: ModuleType, buffer: bytes, **options: Any) -> object:
    """Decode a buffer to records and to columns with the given codec, and return the results or errors."""
    found: list[object] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch, "BatchRunDecoder", life.BatchRunDecoder)
        for name in ("BatchRunDecoder", "RecordSizes", "RecordColumns"):
            patched.setattr(arrow, name, getattr(life, name))
        for decode in (decode_batches, decode_to_arrow):
            try:
                found.append(decode(buffer, **options))
            except CorruptBatch as problem:
                found.append(str(problem))
    return found


@given(buffer=buffers(), verify=st.booleans(), control=st.booleans(), limit_bytes=st.just(MIB) | st.integers(0, 20_000))
@bounded(300)
def test_a_run_of_batches_decodes_as_the_single_batches_do(
    plain: Any, compiled: Any, buffer: bytes, verify: bool, control: bool, limit_bytes: int
) -> None:
    options = {"verify": verify, "control": control, "limit_bytes": limit_bytes}
    assert buffer_outcome(compiled.decode, buffer, **options) == buffer_outcome(plain.decode, buffer, **options)


@pytest.mark.parametrize("damage", [False, True])
def test_a_run_verifies_the_checksums_of_batches_of_any_size(compiled: Any, damage: bool) -> None:
    for size_bytes in (*range(80), *range(900, 1100), 100_000):
        buffer = sealed(record(value=varint(size_bytes) + b"\xa5" * size_bytes), 1)
        buffer[-1] ^= damage
        sizes = compiled.decode.RecordSizes()
        run = compiled.decode.BatchRunDecoder(buffer, MIB)
        run.measure(sizes)
        assert run.end == len(buffer)
        stopped = run.fill(0, len(buffer), True, compiled.decode.RecordColumns(sizes, bytearray))
        assert stopped == (0 if damage else len(buffer))


def test_a_batch_that_changes_during_decoding_is_refused(compiled: Any) -> None:
    buffer = sealed(record(value=varint(9) + b"y" * 9), 1)
    sizes = compiled.decode.RecordSizes()
    run = compiled.decode.BatchRunDecoder(buffer, MIB)
    run.measure(sizes)
    assert run.end == len(buffer)
    more = compiled.decode.BatchRunDecoder(sealed(record(value=varint(9) + b"y" * 9) + record(offset_delta=1), 2), MIB)
    with pytest.raises(AssertionError, match="changed while it was read"):
        more.fill(0, len(buffer) + 100, True, compiled.decode.RecordColumns(sizes, bytearray))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(arrow, "BatchRunDecoder", lambda *_: _Changing(run, buffer))
        with pytest.raises(AssertionError, match="changed while it was read"):
            decode_to_arrow(sealed(record(), 1))


class _Changing:
    """A run whose batch changes between measuring and decoding."""

    def __init__(self, run: Any, buffer: bytearray) -> None:
        self.end = 0
        self.left_bytes = MIB
        self._buffer = buffer

    def measure(self, sizes: Any) -> None:
        self.end = len(self._buffer)

    def fill(self, start: int, end: int, verify: bool, columns: Any) -> int:
        return start


def _mutated(chance: random.Random, body: bytearray) -> bytes:
    for _ in range(chance.choice((1, 1, 2, 4))):
        position = chance.randrange(len(body) + 1)
        match chance.randrange(4):
            case 0:
                body[position : position + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))])
            case 1:
                body[position:position] = varint(chance.choice((-1, 0, 1, INT32_MAX, -(2**31), 2**63 - 1)))
            case 2:
                del body[position : position + chance.randrange(1, 9)]
            case _:
                body[position:position] = body[: chance.randrange(1, 40)]
    return bytes(body)


def test_both_codecs_agree_on_fuzzed_records(plain: Any, compiled: Any) -> None:
    """Try seeds until the time is over (FUZZ_SECONDS, default 2). A failure names its seed."""
    begun = time.monotonic()
    for seed in count_from():
        chance = random.Random(seed)
        body = bytearray()
        count = chance.randrange(1, 6)
        for number in range(count):
            blob = chance.randbytes(chance.choice((0, 1, 3, 70)))
            header = varint(1) + varint(2) + chance.choice((b"ab", b"\xc3\xbc", b"\xff\xfe")) + b"\x01"
            body += record(
                time_delta=chance.choice((0, 1, -1, 2**40)),
                offset_delta=number,
                key=chance.choice((b"\x01", varint(len(blob)) + blob)),
                value=chance.choice((b"\x01", varint(len(blob)) + blob)),
                headers=chance.choice((b"\x00", header)),
            )
        try:
            check_alike(plain.decode, compiled.decode, _mutated(chance, body), count, count - 1)
        except BaseException as problem:
            raise AssertionError(f"seed {seed} fails: {problem!r}") from problem
        if time.monotonic() - begun > FUZZ_SECONDS:
            break


def test_columns_never_write_beyond_their_buffers(compiled: Any) -> None:
    body = record(key=varint(9) + b"x" * 9, value=varint(9) + b"y" * 9, headers=varint(1) + b"\x02a\x02b")
    with pytest.raises(AssertionError, match="changed while it was read"):
        compiled.decode.RecordColumns(compiled.decode.RecordSizes(0, 100), bytearray).add(body, 1, 0, 0, 0, None)
    columns = compiled.decode.RecordColumns(compiled.decode.RecordSizes(1, 0), bytearray)
    columns.add(body, 1, 0, 0, 0, None)
    data = [bytes(data[:size_bytes]) for *_, data, size_bytes in columns.binary_buffers()]
    assert data == [b"x" * 9, b"y" * 9, b"a", b"b"], "room for bytes is made where there is not enough"


def test_columns_grow_for_any_number_of_keys_and_headers(compiled: Any) -> None:
    headers = [(f"name {number}", bytes([number]) * number) for number in range(7)]
    made = [
        Record(row, row, b"k" * (row % 50) or None, b"v" * (row % 7), tuple(headers[: row % 8])) for row in range(3000)
    ]
    whole = encode_batch(
        [each.value for each in made],
        keys=[each.key for each in made],
        headers=[each.headers for each in made],
        timestamps=[each.timestamp for each in made],
    )
    assert compiled.decode is not None
    table = decode_to_arrow(whole)
    assert table.column("key").to_pylist() == [each.key for each in made]
    assert table.column("value").to_pylist() == [each.value for each in made]
    rows = [[(pair["key"], pair["value"]) for pair in row] for row in table.column("headers").to_pylist()]
    assert rows == [list(each.headers) for each in made]
    assert (
        table.column("timestamp").cast("int64").to_pylist() == table.column("offset").to_pylist() == list(range(3000))
    )
