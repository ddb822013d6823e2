"""Encodes Fetch requests and decodes Fetch responses. The decoded records are views of the frame."""

from collections.abc import Sequence
from typing import NamedTuple

from millstream.seams.file_part import FilePlace
from millstream.wire.current_leader import CurrentLeader
from millstream.wire.fetch import (
    CURRENT_LEADER_TAG,
    FLEXIBLE_FROM,
    LEADER_EPOCH_FROM,
    LOG_START_FROM,
    MACHINE_TAG,
    NOT_KNOWN,
    PARTITION_4,
    PARTITION_5,
    PARTITION_9,
    PARTITION_12,
    PLACE,
    PLACE_TAG,
    RACK_FROM,
    REPLICA_TAG_FROM,
    SESSION,
    SESSIONS_FROM,
    START,
    TOPIC_IDS_FROM,
    FetchedPartition,
    FetchPartition,
)
from millstream.wire.frame_reader import INT32, FrameReader
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import ANSWER_ELEMENTS_MAX
from millstream.wire.topic_ref import TopicRef, put_topic, read_topic
from millstream.wire.value_writers import put_count, put_string, unsigned_varint

_NOTHING_TAGGED = None, NOT_KNOWN, None


class FetchResponse(NamedTuple):
    error: int
    session_id: int
    topics: list[tuple[TopicRef, list[FetchedPartition]]]


def write_fetch_request(
    version: int,
    topics: Sequence[tuple[TopicRef, Sequence[FetchPartition]]],
    *,
    max_wait_ms: int,
    min_bytes: int = 1,
    max_bytes: int = 0x7FFFFFFF,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[tuple[TopicRef, Sequence[int]]] = (),
    rack: str = "",
    machine: str = "",
) -> bytes:
    """Return the request body. By default it uses no fetch session.

    A client that gives its `machine` accepts file positions instead of records.
    """
    flexible = version >= FLEXIBLE_FROM
    out = bytearray()
    if version < REPLICA_TAG_FROM:
        out += INT32.pack(-1)
    out += START.pack(max_wait_ms, min_bytes, max_bytes, isolation_level)
    if version >= SESSIONS_FROM:
        out += SESSION.pack(session_id, session_epoch)
    put_count(out, len(topics), flexible)
    for topic, partitions in topics:
        put_topic(out, topic, flexible)
        put_count(out, len(partitions), flexible)
        for partition in partitions:
            _put_partition(out, version, partition)
        if flexible:
            out.append(0)
    if version >= SESSIONS_FROM:
        _put_forgotten(out, forgotten, flexible)
    if version >= RACK_FROM:
        put_string(out, rack, flexible)
    if flexible:
        _put_machine(out, machine)
    return bytes(out)


def _put_machine(out: bytearray, machine: str) -> None:
    """Append the tagged fields of the request."""
    if not machine:
        out.append(0)
        return
    field = bytearray()
    put_string(field, machine, compact=True)
    out.append(1)
    out += unsigned_varint(MACHINE_TAG) + unsigned_varint(len(field)) + field


def _put_partition(out: bytearray, version: int, want: FetchPartition) -> None:
    if version >= FLEXIBLE_FROM:
        out += PARTITION_12.pack(
            want.partition,
            want.leader_epoch,
            want.offset,
            want.last_fetched_epoch,
            want.log_start_offset,
            want.max_bytes,
        )
        out.append(0)
    elif version >= LEADER_EPOCH_FROM:
        out += PARTITION_9.pack(want.partition, want.leader_epoch, want.offset, want.log_start_offset, want.max_bytes)
    elif version >= LOG_START_FROM:
        out += PARTITION_5.pack(want.partition, want.offset, want.log_start_offset, want.max_bytes)
    else:
        out += PARTITION_4.pack(want.partition, want.offset, want.max_bytes)


def _put_forgotten(out: bytearray, forgotten: Sequence[tuple[TopicRef, Sequence[int]]], flexible: bool) -> None:
    put_count(out, len(forgotten), flexible)
    for topic, partitions in forgotten:
        put_topic(out, topic, flexible)
        put_count(out, len(partitions), flexible)
        for partition in partitions:
            out += INT32.pack(partition)
        if flexible:
            out.append(0)


def parse_fetch_response(version: int, frame: memoryview, position: int) -> FetchResponse:
    """Decode the response body at `position`. Raises MalformedMessageError unless it ends at the end of the frame."""
    source = FrameReader(frame, position, elements_max=ANSWER_ELEMENTS_MAX)
    flexible = version >= FLEXIBLE_FROM
    source.int32()  # throttle time, which Millstream's broker never sets
    error, session_id = (source.int16(), source.int32()) if version >= SESSIONS_FROM else (0, 0)
    topics: list[tuple[TopicRef, list[FetchedPartition]]] = []
    for _ in range(source.count(flexible, 2)):
        topic = read_topic(source, version >= TOPIC_IDS_FROM, flexible)
        topics.append((topic, [_parse_fetched(source, version) for _ in range(source.count(flexible, 27))]))
        if flexible:
            source.skip_tags()
    if flexible:
        source.skip_tags()
    source.finish()
    return FetchResponse(error, session_id, topics)


def _parse_fetched(source: FrameReader, version: int) -> FetchedPartition:
    flexible = version >= FLEXIBLE_FROM
    partition, error, high_watermark, last_stable = source.int32(), source.int16(), source.int64(), source.int64()
    log_start = source.int64() if version >= LOG_START_FROM else -1
    aborted: list[tuple[int, int]] | None = None
    count = source.count(flexible, 16)
    if count >= 0:
        aborted = []
        for _ in range(count):
            aborted.append((source.int64(), source.int64()))
            if flexible:
                source.skip_tags()
    preferred = source.int32() if version >= RACK_FROM else -1
    records = source.data(flexible)
    tagged = _parse_tagged(source) if flexible else _NOTHING_TAGGED
    return FetchedPartition(
        partition,
        error,
        high_watermark,
        last_stable,
        log_start,
        b"" if records is None else records,
        aborted,
        preferred,
        *tagged,
    )


def _parse_tagged(source: FrameReader) -> tuple[FilePlace | None, int, CurrentLeader | None]:
    """Decode the file position, the next offset and the leader from the tagged fields of a partition."""
    place, next_offset, leader = None, NOT_KNOWN, None
    for tag, _end in source.tags():
        if tag == PLACE_TAG:
            next_offset, device, inode, position, size_bytes = PLACE.unpack(source.take(PLACE.size))
            path = source.string(compact=True)
            if position < 0 or size_bytes <= 0:
                raise MalformedMessageError(
                    f"{size_bytes} bytes at position {position} are not a valid range of a file"
                )
            place = FilePlace(path or "", device, inode, position, size_bytes)
        elif tag == CURRENT_LEADER_TAG:
            leader = CurrentLeader(source.int32(), source.int32())
            source.skip_tags()
    return place, next_offset, leader
