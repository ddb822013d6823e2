"""Encodes and decodes the frames of a push subscription by hand, so that records are never copied.

The response to Subscribe and the deliveries after it have the same layout. Its schema is SubscribeResponse.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from millstream.wire.current_leader import (
    CurrentLeader,
    put_current_leader,
    put_node_endpoints,
    read_current_leader,
    read_node_endpoints,
    with_endpoint,
)
from millstream.wire.error_counts import error_counter
from millstream.wire.frame_reader import INT16, FrameReader
from millstream.wire.framing import Piece
from millstream.wire.messages import ANSWER_ELEMENTS_MAX
from millstream.wire.value_writers import put_count, put_string, unsigned_varint

END, BEGINNING, NOWHERE = -1, -2, -3
COMMITTED = -3
"""Instead of an offset: the committed offset of the group."""

LEADER_TAG = 0
"""Tag of a row: the id and epoch of the partition's leader."""

_ROW = Struct(">ihiqqqq")
_count_error = error_counter("Subscribe")


class Delivery(NamedTuple):
    """The row of one partition in a frame."""

    topic: str
    partition: int
    error: int = 0
    leader_epoch: int = -1
    position: int = -1
    next_offset: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1
    message: str | None = None
    records: Piece = b""
    current_leader: CurrentLeader | None = None
    """With NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH: the broker that leads the partition."""


class Delivered(NamedTuple):
    """One decoded frame. A frame with an error is the last one of its subscription."""

    error: int
    message: str | None
    partitions: list[Delivery]


def write_delivery(rows: Sequence[Delivery], error: int = 0, message: str | None = None) -> list[Piece]:
    """Return the body of a frame as pieces to send in order."""
    pieces: list[Piece] = []
    leaders: list[CurrentLeader] = []
    if error:
        _count_error(error)
    out = bytearray(INT16.pack(error))
    put_string(out, message, compact=True)
    put_count(out, len(rows), compact=True)
    for row in rows:
        put_string(out, row.topic, compact=True)
        if row.error:
            _count_error(row.error)
        out += _ROW.pack(*row[1:8])
        put_string(out, row.message, compact=True)
        out += unsigned_varint(len(row.records) + 1)
        if row.records:
            pieces += (out, row.records)
            out = bytearray()
        if row.current_leader is None:
            out.append(0)
        else:
            out.append(1)
            put_current_leader(out, LEADER_TAG, row.current_leader)
            leaders.append(row.current_leader)
    if leaders:
        put_node_endpoints(out, leaders)
    else:
        out.append(0)
    pieces.append(out)
    return pieces


def parse_delivery(frame: memoryview, position: int) -> Delivered:
    """Decode the body at `position` without copying records. Raises MalformedMessageError unless it fills the frame."""
    source = FrameReader(frame, position, elements_max=ANSWER_ELEMENTS_MAX)
    error, message = source.int16(), source.string(compact=True)
    rows = [_parse_row(source) for _ in range(source.count(True, _ROW.size))]
    endpoints = read_node_endpoints(source)
    source.finish()
    if endpoints:
        rows = [row._replace(current_leader=with_endpoint(row.current_leader, endpoints)) for row in rows]
    return Delivered(error, message, rows)


def _parse_row(source: FrameReader) -> Delivery:
    topic = source.string(compact=True) or ""
    numbers = source.int32(), source.int16(), source.int32(), source.int64(), source.int64(), source.int64()
    log_start, message = source.int64(), source.string(compact=True)
    records = source.data(True)
    leader = read_current_leader(source, LEADER_TAG)
    return Delivery(topic, *numbers, log_start, message, b"" if records is None else records, leader)
