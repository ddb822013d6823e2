"""Tests that hand-written deliveries match those of the schema-driven codec."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.ids import BrokerId
from millstream.wire.current_leader import CurrentLeader
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import read_response, write_response
from millstream.wire.subscribe import Delivered, Delivery, parse_delivery, write_delivery


def a_leader(node_id: int, epoch: int) -> CurrentLeader:
    """Return a leader whose address follows from its id. Broker 0 has no known address."""
    rack = "rack" if node_id % 2 else None
    return CurrentLeader(
        node_id, epoch, BrokerEndpoint(BrokerId(node_id), f"broker-{node_id}", 9092, rack) if node_id else None
    )


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
    st.none() | st.builds(a_leader, st.integers(0, 5), st.integers(0, 2**31 - 1)),
)


def joined(delivered: Delivered) -> bytes:
    pieces = write_delivery(delivered.partitions, delivered.error, delivered.message)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes | bytearray))


@given(st.builds(Delivered, st.integers(-(2**15), 2**15 - 1), texts, st.lists(rows, max_size=5)))
def test_deliveries_match_the_schema(delivered: Delivered) -> None:
    by_hand = joined(delivered)
    names = ("topic", "partition", "error_code", "leader_epoch", "position", "next_offset", "high_watermark")
    leaders = [row.current_leader for row in delivered.partitions]
    partitions: list[dict[str, Any]] = [
        dict(zip((*names, "log_start_offset", "error_message", "records"), row[:-1], strict=True))
        | ({} if leader is None else {"current_leader": {"leader_id": leader[0], "leader_epoch": leader[1]}})
        for row, leader in zip(delivered.partitions, leaders, strict=True)
    ]
    endpoints = {leader.endpoint: None for leader in leaders if leader is not None and leader.endpoint is not None}
    fields: dict[str, Any] = {
        "error_code": delivered.error,
        "error_message": delivered.message,
        "partitions": partitions,
        "node_endpoints": [endpoint._asdict() for endpoint in endpoints],
    }
    assert by_hand == write_response("Subscribe", 0, fields)
    told = read_response("Subscribe", 0, memoryview(by_hand), 0)
    assert list(told.pop("node_endpoints")) == fields.pop("node_endpoints")
    assert told == fields | {
        "partitions": [row | {"current_leader": row.get("current_leader", {})} for row in partitions]
    }
    assert parse_delivery(memoryview(by_hand), 0) == delivered


def test_a_truncated_or_too_long_delivery_is_malformed() -> None:
    whole = joined(Delivered(0, None, [Delivery("events", 1, records=b"batches")]))
    for wrong in (*(whole[:size] for size in range(len(whole))), whole + b"\0"):
        with pytest.raises(MalformedMessageError):
            parse_delivery(memoryview(wrong), 0)
