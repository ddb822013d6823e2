"""Tests that hand-written deliveries match those of the schema-driven codec."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import read_response, write_response
from millstream.wire.subscribe import Delivered, Delivery, parse_delivery, write_delivery

int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
texts = st.none() | st.text(max_size=40)
rows = st.builds(
    Delivery,
    st.text(max_size=40),
    int32,
    st.integers(-(2**15), 2**15 - 1),
    int32,
    int64,
    int64,
    int64,
    int64,
    texts,
    st.binary(max_size=300),
)


def joined(delivered: Delivered) -> bytes:
    pieces = write_delivery(delivered.partitions, delivered.error, delivered.message)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes | bytearray))


@given(st.builds(Delivered, st.integers(-(2**15), 2**15 - 1), texts, st.lists(rows, max_size=5)))
def test_deliveries_match_the_schema(delivered: Delivered) -> None:
    by_hand = joined(delivered)
    names = ("topic", "partition", "error_code", "leader_epoch", "position", "next_offset", "high_watermark")
    partitions = [
        dict(zip((*names, "log_start_offset", "error_message", "records"), row, strict=True))
        for row in delivered.partitions
    ]
    fields = {"error_code": delivered.error, "error_message": delivered.message, "partitions": partitions}
    assert by_hand == write_response("Subscribe", 0, fields)
    assert read_response("Subscribe", 0, memoryview(by_hand), 0) == fields
    assert parse_delivery(memoryview(by_hand), 0) == delivered


def test_a_truncated_or_too_long_delivery_is_malformed() -> None:
    whole = joined(Delivered(0, None, [Delivery("events", 1, records=b"batches")]))
    for wrong in (*(whole[:size] for size in range(len(whole))), whole + b"\0"):
        with pytest.raises(MalformedMessageError):
            parse_delivery(memoryview(wrong), 0)
