"""Tests the lines of a dump: their fields, and that their escapes can be reversed."""

import json
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.dump.lines import (
    DumpPartition,
    batch_json,
    batch_line,
    date_and_time,
    escaped,
    record_json,
    record_line,
)
from millstream.records.batch import decode_batch, encode_batch
from millstream.records.header import BatchHeader, read_header
from millstream.records.record import Record

WHERE = DumpPartition("orders", 3)
PLAIN = read_header(encode_batch([b"v"], timestamps=0))
CONTROL = read_header(encode_batch([b"v"], timestamps=0, control=True, transactional=True, producer_id=5))
_FIELD = re.compile(r"\[((?:[^\]\\]|\\.)*)\]")
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|.)")


def unescaped(text: str) -> bytes | None:
    """Reverses the escapes, as a program that reads the line would."""
    if text == r"\N":
        return None

    def byte(match: "re.Match[str]") -> str:
        sign = match[1]
        if sign[0] == "x":
            return bytes.fromhex(sign[1:]).decode("latin-1").encode("latin-1").decode("utf-8", "surrogateescape")
        return {"n": "\n", "r": "\r", "t": "\t"}.get(sign, sign)

    return _ESCAPE.sub(byte, text).encode("utf-8", "surrogateescape")


def line_of(record: Record, header: BatchHeader = PLAIN) -> list[str]:
    line = record_line(WHERE, header, record)
    assert line.endswith("\n")
    assert "\n" not in line[:-1]
    return _FIELD.findall(line)


def test_a_record_line_has_eight_fields() -> None:
    record = Record(17, 1_738_324_800_123, b"customer-17", b"one message", ())
    assert record_line(WHERE, PLAIN, record) == (
        "[2025-01-31] [12:00:00.123Z] [orders] [3] [17] [customer-17] [one message] [put]\n"
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, r"\N"),
        (b"", ""),
        (b"\\N", r"\\N"),
        (b"a]b[c", r"a\]b[c"),
        (b"a\nb\tc\r", r"a\nb\tc\r"),
        ("grün 水".encode(), "grün 水"),
        (b"\xff\x00", r"\xff\x00"),
        ("\u200b".encode(), r"\xe2\x80\x8b"),
    ],
)
def test_bytes_that_a_line_cannot_show_are_escaped(data: bytes | None, text: str) -> None:
    assert escaped(data) == text


@given(key=st.none() | st.binary(), value=st.none() | st.binary() | st.text().map(str.encode))
def test_key_and_value_can_be_restored_from_the_line(key: bytes | None, value: bytes | None) -> None:
    fields = line_of(Record(0, 0, key, value, ()))
    assert len(fields) == 8
    assert (unescaped(fields[5]), unescaped(fields[6])) == (key, value)


@pytest.mark.parametrize(
    ("header", "key", "value", "action"),
    [
        (PLAIN, b"k", b"v", "put"),
        (PLAIN, None, b"", "put"),
        (PLAIN, b"k", None, "delete"),
        (CONTROL, struct.pack(">hh", 0, 0), b"", "abort"),
        (CONTROL, struct.pack(">hh", 0, 1), b"", "commit"),
        (CONTROL, struct.pack(">hh", 0, 9), b"", "control"),
        (CONTROL, b"x", b"", "control"),
        (CONTROL, None, None, "control"),
    ],
)
def test_a_line_shows_put_delete_or_the_control_type_as_its_action(
    header: BatchHeader, key: bytes | None, value: bytes | None, action: str
) -> None:
    assert line_of(Record(0, 0, key, value, ()), header)[7] == action


@pytest.mark.parametrize("timestamp_ms", [-1, 2**63 - 1, -(2**63), 10**15])
def test_a_timestamp_beyond_the_calendar_is_shown_as_a_number(timestamp_ms: int) -> None:
    assert date_and_time(timestamp_ms) == ("-", f"@{timestamp_ms}")


def test_json_output_includes_the_headers() -> None:
    record = Record(1, 2, None, b"\xff", (("h", b"x"),))
    assert json.loads(record_json(WHERE, PLAIN, record)) == {
        "topic": "orders",
        "partition": 3,
        "offset": 1,
        "timestamp": 2,
        "key": None,
        "value_base64": "/w==",
        "headers": [{"name": "h", "value": "x"}],
        "action": "put",
    }


def test_an_unknown_compression_of_a_batch_is_shown_as_a_number() -> None:
    assert "compression=7 " in batch_line(WHERE, PLAIN._replace(attributes=7))


def test_a_batch_line_shows_the_fields_of_its_header() -> None:
    batch = encode_batch([b"a", b"b"], timestamps=[5, 9], compression="zstd", producer_id=7, producer_epoch=1)
    line = batch_line(WHERE, read_header(batch))
    assert line.startswith("topic=orders partition=3 base_offset=0 last_offset=1 records=2 ")
    assert "compression=zstd base_timestamp=5 max_timestamp=9 " in line
    assert "producer_id=7" in line
    assert "flags" not in line
    document = json.loads(batch_json(WHERE, CONTROL))
    assert document["flags"] == "transactional,control"
    assert document["records"] == len(decode_batch(encode_batch([b"v"], timestamps=0)))
