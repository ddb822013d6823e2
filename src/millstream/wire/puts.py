"""Encodes and decodes Puts messages by hand, so that records are never copied.

The only version, 0, has compact lengths and tags.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, error
from typing import NamedTuple

from millstream.wire.current_leader import put_current_leader, put_node_endpoints, read_current_leader
from millstream.wire.error_counts import error_counter
from millstream.wire.frame_reader import FrameReader
from millstream.wire.framing import Buffer
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import ANSWER_ELEMENTS_MAX
from millstream.wire.produce import ProduceResult, read_endpoints
from millstream.wire.topic_ref import NAMED_MAX
from millstream.wire.value_writers import put_count, put_data, put_string, unsigned_varint

BY_HASH = -1
"""The partition number that lets the broker choose the partition by the hash."""

_ACKS_AND_TIMEOUT = Struct(">hi")
_PARTITION_AND_HASH = Struct(">iq")
_KNOWN = Struct(">iqB")
_NUMBERS = Struct(">iqqq")
_CURRENT_LEADER_TAG = 0

# The start of a request with one topic: acks, timeout, topic count, name length. Then the fields before the records if
# it has one entry: entry count, partition, hash.
_ONE_TOPIC = Struct(">hiBB")
_ONE_ENTRY = Struct(">Biq")
_NO_IDS_AND_NO_TAGS = b"\0\0\0\0"
_TOPICS_KEPT = 4096

_count_error = error_counter("Puts")


class PutsEntry(NamedTuple):
    """One batch, whose records are a view of the frame. `message_ids` has one id per record, or is None."""

    partition: int
    hash: int
    records: memoryview | None
    message_ids: list[bytes] | None = None


class PutsRequest(NamedTuple):
    acks: int
    timeout_ms: int
    topics: list[tuple[str, list[PutsEntry]]]


def parse_puts_request(frame: memoryview, position: int) -> PutsRequest:
    """Decode the request body at `position`. Raises MalformedMessageError unless it ends at the end of the frame."""
    try:
        plain = _parse_plain(frame, position)
    except (error, IndexError, UnicodeDecodeError):
        plain = None
    return plain or _parse_any(frame, position)


def _parse_plain(frame: memoryview, position: int) -> PutsRequest | None:
    """Decode the usual request: one batch without message ids. Returns None for any other request."""
    acks, timeout_ms, topics, size = _ONE_TOPIC.unpack_from(frame, position)
    start = position + _ONE_TOPIC.size
    end = start + size - 1
    if topics != 2 or not 0 < size < 128:
        return None
    entries, partition, hashed = _ONE_ENTRY.unpack_from(frame, end)
    first = end + _ONE_ENTRY.size
    records = shift = 0
    while True:
        byte = frame[first]
        first += 1
        records |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            return None
    last = first + records - 1
    if entries != 2 or not records or frame[last:] != _NO_IDS_AND_NO_TAGS:
        return None
    topic = str(frame[start:end], "utf-8")
    return PutsRequest(acks, timeout_ms, [(topic, [PutsEntry(partition, hashed, frame[first:last])])])


def _parse_any(frame: memoryview, position: int) -> PutsRequest:
    source = FrameReader(frame, position, elements_max=NAMED_MAX)
    acks = source.int16()
    timeout_ms = source.int32()
    topics = []
    for _ in range(source.count(True, 3)):
        name = source.string(True)
        if name is None:
            raise MalformedMessageError("a topic's name may not be null")
        topics.append((name, [_parse_entry(source) for _ in range(source.count(True, 15))]))
        source.skip_tags()
    source.skip_tags()
    source.finish()
    return PutsRequest(acks, timeout_ms, topics)


def _parse_entry(source: FrameReader) -> PutsEntry:
    partition, hashed = source.int32(), source.int64()
    records = source.data(True)
    count = source.count(True, 1)
    ids = None if count < 0 else [_parse_id(source) for _ in range(count)]
    source.skip_tags()
    return PutsEntry(partition, hashed, records, ids)


def _parse_id(source: FrameReader) -> bytes:
    data = source.data(True)
    if data is None:
        raise MalformedMessageError("a message id is null")
    return bytes(data)


def write_puts_request(
    topics: Sequence[tuple[str, Sequence[tuple[int, int, Buffer, Sequence[bytes] | None]]]],
    *,
    acks: int,
    timeout_ms: int,
) -> list[Buffer]:
    """Return the request body as pieces to send in order, without copying records.

    An entry has a partition, a hash, records and, optionally, the ids of its messages.
    """
    pieces: list[Buffer] = []
    out = bytearray(_ACKS_AND_TIMEOUT.pack(acks, timeout_ms))
    put_count(out, len(topics), True)
    for topic, entries in topics:
        put_string(out, topic, True)
        put_count(out, len(entries), True)
        for partition, hashed, records, ids in entries:
            out += _PARTITION_AND_HASH.pack(partition, hashed)
            out += unsigned_varint(len(records) + 1)
            pieces += (out, records)
            out = bytearray()
            put_count(out, -1 if ids is None else len(ids), True)
            for each in ids or ():
                put_data(out, each, True)
            out.append(0)
        out.append(0)
    out.append(0)
    pieces.append(out)
    return pieces


def write_puts_response(topics: Sequence[tuple[str, Sequence[ProduceResult]]]) -> bytes:
    """Encode the response body."""
    if len(topics) == 1 and len(topics[0][1]) == 1:
        (result,) = topics[0][1]
        if not result.error:
            before, after = _around_one_success(topics[0][0])
            times = result.append_time_ms, result.log_start_offset
            return before + _NUMBERS.pack(result.partition, result.base_offset, *times) + after
    return _write_any(topics)


@lru_cache(_TOPICS_KEPT)
def _around_one_success(topic: str) -> tuple[bytes, bytes]:
    """Return the bytes before and after the numbers of the single result of a response."""
    result = ProduceResult(0)
    before, _, after = _write_any([(topic, [result])]).rpartition(_NUMBERS.pack(0, -1, -1, -1))
    return before, after


def _write_any(topics: Sequence[tuple[str, Sequence[ProduceResult]]]) -> bytes:
    out = bytearray()
    put_count(out, len(topics), True)
    for topic, results in topics:
        put_string(out, topic, True)
        put_count(out, len(results), True)
        for result in results:
            _put_result(out, result)
        out.append(0)
    put_node_endpoints(
        out, (each.current_leader for _, results in topics for each in results if each.current_leader is not None)
    )
    return bytes(out)


def _put_result(out: bytearray, result: ProduceResult) -> None:
    if result.error:
        _count_error(result.error)
    out += result.error.to_bytes(2, "big", signed=True)
    put_string(out, result.message, True)
    out += _NUMBERS.pack(result.partition, result.base_offset, result.append_time_ms, result.log_start_offset)
    put_count(out, len(result.known), True)
    for index, offset in result.known:
        out += _KNOWN.pack(index, offset, 0)
    if result.current_leader is None:
        out.append(0)
    else:
        out.append(1)
        put_current_leader(out, _CURRENT_LEADER_TAG, result.current_leader)


def parse_puts_response(frame: memoryview, position: int) -> list[tuple[str, list[ProduceResult]]]:
    """Decode the response body at `position`. Raises MalformedMessageError unless it ends at the end of the frame."""
    source = FrameReader(frame, position, elements_max=ANSWER_ELEMENTS_MAX)
    topics = []
    for _ in range(source.count(True, 3)):
        name = source.string(True)
        if name is None:
            raise MalformedMessageError("a topic's name may not be null")
        topics.append((name, [_parse_result(source) for _ in range(source.count(True, 33))]))
        source.skip_tags()
    read_endpoints(source, (results for _, results in topics))
    source.finish()
    return topics


def _parse_result(source: FrameReader) -> ProduceResult:
    code = source.int16()
    message = source.string(True)
    partition, base_offset, append_time_ms, log_start_offset = (
        source.int32(),
        source.int64(),
        source.int64(),
        source.int64(),
    )
    known = [_parse_known(source) for _ in range(source.count(True, 13))]
    leader = None
    if code:
        leader = read_current_leader(source, _CURRENT_LEADER_TAG)
    else:
        source.skip_tags()
    return ProduceResult(
        partition, code, base_offset, append_time_ms, log_start_offset, message, known=known, current_leader=leader
    )


def _parse_known(source: FrameReader) -> tuple[int, int]:
    index, offset = source.int32(), source.int64()
    source.skip_tags()
    return index, offset
