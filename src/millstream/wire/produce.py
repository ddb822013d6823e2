"""Encodes and decodes Produce messages by hand, so that records are never copied.

Versions 3 to 13. Tags and compact lengths are there from version 9, topic ids instead of names from 13. The response
has the log start from 5, error messages from 8, and the current leader from 10.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct as Layout
from struct import error

from msgspec import Struct
from msgspec.structs import replace

from millstream.model.ids import TopicId
from millstream.wire.current_leader import (
    CurrentLeader,
    put_current_leader,
    put_node_endpoints,
    read_current_leader,
    read_node_endpoints,
    with_endpoint,
)
from millstream.wire.error_counts import error_counter
from millstream.wire.frame_reader import INT32, FrameReader, as_uuid
from millstream.wire.framing import Buffer
from millstream.wire.messages import ANSWER_ELEMENTS_MAX
from millstream.wire.topic_ref import NAMED_MAX, TopicRef, put_topic, read_topic
from millstream.wire.value_writers import put_count, put_string, unsigned_varint

_FLEXIBLE_FROM = 9
_TOPIC_IDS_FROM = 13
_LOG_START_FROM = 5
_MESSAGES_FROM = 8
_LEADERS_FROM = 10
_CURRENT_LEADER_TAG = 0

_ACKS_AND_TIMEOUT = Layout(">hi")
_RESULT = Layout(">ihqq")
_RESULT_WITH_START = Layout(">ihqqq")

# The start of a request without a transaction and with one topic: transactional id, acks, timeout, topic count, name
# length. Then the fields before the records if it has one partition: partition count, number, record length.
_ONE_TOPIC = Layout(">hhiih")
_ONE_PARTITION = Layout(">iii")
_ONE_TOPIC_COMPACT = Layout(">BhiBB")
_ONE_TOPIC_BY_ID = Layout(">BhiB16s")
_ONE_PARTITION_COMPACT = Layout(">BiB")
_NO_TAGS = b"\0\0\0"
_TOPICS_KEPT = 4096

_count_error = error_counter("Produce")

PartitionRecords = tuple[int, memoryview | None]
"""A partition and the records to append to it, which are a view of the frame."""


class ProduceRequest(Struct, eq=False):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[TopicRef, list[PartitionRecords]]]


class ProduceResult(Struct):
    """The result of one partition."""

    partition: int
    error: int = 0
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    known: Sequence[tuple[int, int]] = ()
    """For Puts only: the index in the batch and the stored offset of each message whose id is known."""
    current_leader: CurrentLeader | None = None
    """The leader, if it is another broker."""


def parse_produce_request(version: int, frame: memoryview, position: int) -> ProduceRequest:
    """Decode the request body at `position`. Raises MalformedMessageError unless it ends at the end of the frame."""
    try:
        plain = (_parse_plain_compact if version >= _FLEXIBLE_FROM else _parse_plain)(version, frame, position)
    except (error, IndexError, UnicodeDecodeError):
        plain = None
    return plain or _parse_any(version, frame, position)


def _parse_plain(version: int, frame: memoryview, position: int) -> ProduceRequest | None:
    """Decode the usual request: one batch without a transaction. Returns None for any other request."""
    transactional_size, acks, timeout_ms, topics, size = _ONE_TOPIC.unpack_from(frame, position)
    start = position + _ONE_TOPIC.size
    end = start + size
    partitions, number, records = _ONE_PARTITION.unpack_from(frame, end)
    first = end + _ONE_PARTITION.size
    if transactional_size != -1 or topics != 1 or partitions != 1 or size < 0 or first + records != len(frame):
        return None
    topic = str(frame[start:end], "utf-8")
    return ProduceRequest(None, acks, timeout_ms, [(topic, [(number, frame[first:])])])


def _parse_plain_compact(version: int, frame: memoryview, position: int) -> ProduceRequest | None:
    topic: TopicRef
    if version >= _TOPIC_IDS_FROM:
        transactional_size, acks, timeout_ms, topics, data = _ONE_TOPIC_BY_ID.unpack_from(frame, position)
        end = position + _ONE_TOPIC_BY_ID.size
        topic = TopicId(as_uuid(data))
    else:
        transactional_size, acks, timeout_ms, topics, size = _ONE_TOPIC_COMPACT.unpack_from(frame, position)
        start = position + _ONE_TOPIC_COMPACT.size
        end = start + size - 1
        if not 0 < size < 128:
            return None
        topic = str(frame[start:end], "utf-8")
    partitions, number, records = _ONE_PARTITION_COMPACT.unpack_from(frame, end)
    first = end + _ONE_PARTITION_COMPACT.size
    if records >= 0x80:
        high = frame[first]
        records += (high - 1) << 7
        first += 1
        if high >= 0x80:
            higher = frame[first]
            records += (higher - 1) << 14
            first += 1
            if higher >= 0x80:
                return None
    last = first + records - 1
    if transactional_size or topics != 2 or partitions != 2 or not records or frame[last:] != _NO_TAGS:
        return None
    return ProduceRequest(None, acks, timeout_ms, [(topic, [(number, frame[first:last])])])


def _parse_any(version: int, frame: memoryview, position: int) -> ProduceRequest:
    source = FrameReader(frame, position, elements_max=NAMED_MAX)
    flexible = version >= _FLEXIBLE_FROM
    transactional_id = source.string(flexible)
    acks = source.int16()
    timeout_ms = source.int32()
    topics: list[tuple[TopicRef, list[PartitionRecords]]] = []
    for _ in range(source.count(flexible, 2)):
        topic = read_topic(source, version >= _TOPIC_IDS_FROM, flexible)
        topics.append((topic, _parse_partitions(source, flexible)))
        if flexible:
            source.skip_tags()
    if flexible:
        source.skip_tags()
    source.finish()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _parse_partitions(source: FrameReader, flexible: bool) -> list[PartitionRecords]:
    partitions: list[PartitionRecords] = []
    for _ in range(source.count(flexible, 5)):
        partitions.append((source.int32(), source.data(flexible)))
        if flexible:
            source.skip_tags()
    return partitions


def write_produce_response(version: int, topics: Sequence[tuple[TopicRef, Sequence[ProduceResult]]]) -> bytes:
    """Encode the response body."""
    if len(topics) == 1 and len(topics[0][1]) == 1:
        (result,) = topics[0][1]
        is_plain = result.message is None and not result.record_errors and result.current_leader is None
        if is_plain and not result.error:
            before, after = _around_one_success(version, topics[0][0])
            return before + _numbers(version, result) + after
    return _write_any(version, topics)


@lru_cache(_TOPICS_KEPT)
def _around_one_success(version: int, topic: TopicRef) -> tuple[bytes, bytes]:
    """Return the bytes before and after the numbers of the single result of a response."""
    result = ProduceResult(0)
    before, _, after = _write_any(version, [(topic, [result])]).rpartition(_numbers(version, result))
    return before, after


def _numbers(version: int, result: ProduceResult) -> bytes:
    """Encode the first fields of a result, which all have a fixed size."""
    partition, code, base_offset = result.partition, result.error, result.base_offset
    if version >= _LOG_START_FROM:
        return _RESULT_WITH_START.pack(partition, code, base_offset, result.append_time_ms, result.log_start_offset)
    return _RESULT.pack(partition, code, base_offset, result.append_time_ms)


def _write_any(version: int, topics: Sequence[tuple[TopicRef, Sequence[ProduceResult]]]) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    out = bytearray()
    put_count(out, len(topics), flexible)
    for topic, results in topics:
        put_topic(out, topic, flexible)
        put_count(out, len(results), flexible)
        for result in results:
            _put_result(out, version, result, flexible)
        if flexible:
            out.append(0)
    out += b"\0\0\0\0"  # never throttled
    if version >= _LEADERS_FROM:
        put_node_endpoints(
            out, (each.current_leader for _, results in topics for each in results if each.current_leader is not None)
        )
    elif flexible:
        out.append(0)
    return bytes(out)


def _put_result(out: bytearray, version: int, result: ProduceResult, flexible: bool) -> None:
    out += _numbers(version, result)
    if result.error:
        _count_error(result.error)
    if flexible and not result.record_errors and result.message is None and result.current_leader is None:
        out += b"\x01\0\0"  # The usual case: a success without errors and messages.
    elif version >= _MESSAGES_FROM:
        put_count(out, len(result.record_errors), flexible)
        for index, message in result.record_errors:
            out += INT32.pack(index)
            put_string(out, message, flexible)
            if flexible:
                out.append(0)
        put_string(out, result.message, flexible)
        if version >= _LEADERS_FROM and result.current_leader is not None:
            out.append(1)
            put_current_leader(out, _CURRENT_LEADER_TAG, result.current_leader)
        elif flexible:
            out.append(0)


def write_produce_request(
    version: int,
    topics: Sequence[tuple[TopicRef, Sequence[tuple[int, Buffer]]]],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[Buffer]:
    """Return the request body as pieces to send in order, without copying records."""
    flexible = version >= _FLEXIBLE_FROM
    pieces: list[Buffer] = []
    out = bytearray()
    put_string(out, transactional_id, flexible)
    out += _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
    put_count(out, len(topics), flexible)
    for topic, partitions in topics:
        put_topic(out, topic, flexible)
        put_count(out, len(partitions), flexible)
        for partition, records in partitions:
            out += INT32.pack(partition)
            out += unsigned_varint(len(records) + 1) if flexible else INT32.pack(len(records))
            pieces += (out, records)
            out = bytearray()
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    if out:
        pieces.append(out)
    return pieces


def parse_produce_response(
    version: int, frame: memoryview, position: int
) -> list[tuple[TopicRef, list[ProduceResult]]]:
    """Decode the response body at `position`."""
    source = FrameReader(frame, position, elements_max=ANSWER_ELEMENTS_MAX)
    flexible = version >= _FLEXIBLE_FROM
    topics = []
    for _ in range(source.count(flexible, 2)):
        topic = read_topic(source, version >= _TOPIC_IDS_FROM, flexible)
        results = [_parse_result(source, version, flexible) for _ in range(source.count(flexible, 22))]
        topics.append((topic, results))
        if flexible:
            source.skip_tags()
    source.int32()  # throttle time, which Millstream's broker never sets
    if flexible:
        read_endpoints(source, (results for _, results in topics))
    source.finish()
    return topics


def read_endpoints(source: FrameReader, rows: Iterable[list[ProduceResult]]) -> None:
    """Read the tagged fields of a response, and add the addresses of the leaders that its results name."""
    named = [
        (results, index)
        for results in rows
        for index, result in enumerate(results)
        if result.current_leader is not None
    ]
    if not named:
        source.skip_tags()
        return
    endpoints = read_node_endpoints(source)
    for results, index in named:
        leader = with_endpoint(results[index].current_leader, endpoints)
        results[index] = replace(results[index], current_leader=leader)


def _parse_result(source: FrameReader, version: int, flexible: bool) -> ProduceResult:
    partition, error, base_offset, append_time_ms = source.int32(), source.int16(), source.int64(), source.int64()
    log_start_offset = source.int64() if version >= _LOG_START_FROM else -1
    record_errors: list[tuple[int, str | None]] = []
    message = None
    leader = None
    if version >= _MESSAGES_FROM:
        for _ in range(source.count(flexible, 5)):
            record_errors.append((source.int32(), source.string(flexible)))
            if flexible:
                source.skip_tags()
        message = source.string(flexible)
        if version >= _LEADERS_FROM and error:
            leader = read_current_leader(source, _CURRENT_LEADER_TAG)
        elif flexible:
            source.skip_tags()
    return ProduceResult(
        partition,
        error,
        base_offset,
        append_time_ms,
        log_start_offset,
        message,
        record_errors,
        current_leader=leader,
    )
