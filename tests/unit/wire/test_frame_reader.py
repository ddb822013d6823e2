"""Tests the reader of single values, which checks every length against the remaining bytes."""

import tracemalloc
from collections.abc import Callable

import pytest

from builders.loops import for_each
from millstream.wire.frame_reader import FrameReader
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import read_request
from millstream.wire.value_writers import unsigned_varint


def source(data: bytes, elements_max: int = 1000) -> FrameReader:
    return FrameReader(memoryview(data), 0, elements_max=elements_max)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16_383, 16_384, 2**31 - 1, 2**32 - 1])
def test_varints_are_read_as_they_were_written(value: int) -> None:
    read = source(unsigned_varint(value))
    assert read.unsigned_varint() == value
    read.finish()


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"\xff\xff", b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x10"],
    ids=["none", "cut", "cut twice", "never ends", "too large", "33 bits"],
)
def test_endless_or_too_large_varints_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        source(data).unsigned_varint()


Read = Callable[[FrameReader], object]


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b"\x00\x05four", lambda s: s.string(compact=False)),
        (b"\xff\xfe", lambda s: s.string(compact=False)),
        (b"\x06four", lambda s: s.string(compact=True)),
        (b"\x00\x02\xc3\x28", lambda s: s.string(compact=False)),
        (b"\x00\x00\x00\x05four", lambda s: s.data(compact=False)),
        (b"\x80\x00\x00\x00", lambda s: s.data(compact=False)),
        (b"\xff\xff\xff\xfe", lambda s: s.data(compact=False)),
        (b"\x06four", lambda s: s.data(compact=True)),
        (b"\x7f\xff\xff\xff" + bytes(100), lambda s: s.count(False, 1)),
        (b"\xff\xff\xff\xfe", lambda s: s.count(False, 1)),
        (b"\xff\xff\xff\xff\x0f" + bytes(100), lambda s: s.count(True, 1)),
        (b"\x00\x00\x00\x0a" + bytes(39), lambda s: s.count(False, 4)),
        (bytes(15), lambda s: s.uuid()),
        (bytes(7), lambda s: s.int64()),
        (bytes(7), lambda s: s.float64()),
        (b"", lambda s: s.boolean()),
        (b"\x01\x00\x05abc", lambda s: s.skip_tags()),
        (b"\x02\x05\x00\x05\x00", lambda s: s.skip_tags()),
        (b"\x02\x05\x00\x04\x00", lambda s: s.skip_tags()),
        (b"\xff\xff\xff\xff\x0f", lambda s: s.skip_tags()),
    ],
)
def test_lengths_beyond_the_frame_are_refused(data: bytes, read: Read) -> None:
    with pytest.raises(MalformedMessageError):
        read(source(data))


@pytest.mark.parametrize(
    ("data", "read", "expected"),
    [
        (b"\xff\xff", lambda s: s.string(compact=False), None),
        (b"\x00", lambda s: s.string(compact=True), None),
        (b"\x00\x00", lambda s: s.string(compact=False), ""),
        (b"\x05four", lambda s: s.string(compact=True), "four"),
        (b"\xff\xff\xff\xff", lambda s: s.data(compact=False), None),
        (b"\x05four", lambda s: s.data(compact=True), b"four"),
        (b"\xff\xff\xff\xff", lambda s: s.count(False, 9), -1),
        (b"\x00\x00\x00\x0a" + bytes(40), lambda s: s.count(False, 4), 10),
        (b"\x00", lambda s: s.skip_tags(), None),
        (b"\x02\x05\x01x\x09\x00", lambda s: s.skip_tags(), None),
    ],
)
def test_lengths_within_the_frame_are_accepted(data: bytes, read: Read, expected: object) -> None:
    assert read(source(data)) == expected


def test_the_element_limit_covers_all_arrays_of_a_message_together() -> None:
    read = source(b"\x00\x00\x00\x06" + bytes(6) + b"\x00\x00\x00\x06" + bytes(6), elements_max=10)
    read.count(False, 1)
    read.take(6)
    with pytest.raises(MalformedMessageError, match="the message has more than"):
        read.count(False, 1)


def test_tags_count_towards_the_element_limit() -> None:
    many = unsigned_varint(50) + b"".join(unsigned_varint(tag) + b"\0" for tag in range(50))
    source(many, elements_max=50).skip_tags()
    with pytest.raises(MalformedMessageError, match="the message has more than"):
        source(many, elements_max=49).skip_tags()


@for_each("version", [1, 9, 13])
def test_a_large_legal_request_is_refused_before_it_is_decoded(version: int) -> None:
    count = 400_000
    if version >= 9:
        element = (bytes(16) if version >= 10 else b"") + b"\x02x\0"
        body = unsigned_varint(count + 1) + element * count + bytes(10)
    else:
        body = count.to_bytes(4) + b"\x00\x01x" * count
    frame = memoryview(body)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessageError, match="the message has more than"):
            read_request("Metadata", version, frame, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
