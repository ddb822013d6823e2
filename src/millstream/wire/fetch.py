"""Decodes Fetch requests and encodes Fetch responses, by hand, so that records are never copied.

Versions 4 to 18. The log start is there from version 5, sessions from 7, the caller's leader epoch from 9, its rack
from 11, tags and compact lengths from 12, topic ids instead of names from 13, and the replica's id in a tag from 15. A
response names the current leader of a partition from 12, and its address from 16. The client side is in
`fetch_client`.
"""

from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple

from millstream.seams.file_part import FilePlace
from millstream.wire.current_leader import CurrentLeader, put_current_leader, put_node_endpoints
from millstream.wire.error_counts import error_counter
from millstream.wire.frame_reader import INT32, FrameReader
from millstream.wire.framing import Piece
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.topic_ref import NAMED_MAX, TopicRef, put_topic, read_topic
from millstream.wire.value_writers import put_count, put_string, unsigned_varint

LOG_START_FROM = 5
SESSIONS_FROM = 7
LEADER_EPOCH_FROM = 9
RACK_FROM = 11
FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13
REPLICA_TAG_FROM = 15
NODE_ENDPOINTS_FROM = 16
_REPLICA_STATE_TAG = 1
MACHINE_TAG = 10_000
"""Tag of a request: the reader's machine, a compact string. The reader then accepts file positions for records."""
CURRENT_LEADER_TAG = 1
PLACE_TAG = 10_000
"""Tag of a partition in the response to such a request: the file position of its records, instead of the records."""

START = Struct(">iiib")
SESSION = Struct(">ii")
PARTITION_4 = Struct(">iqi")
PARTITION_5 = Struct(">iqqi")
PARTITION_9 = Struct(">iiqqi")
PARTITION_12 = Struct(">iiqiqi")

_ANSWER_START = Struct(">ihi")
_ANSWER_4 = Struct(">ihqq")
_ANSWER_5 = Struct(">ihqqq")
_ABORTED = Struct(">qq")
PLACE = Struct(">qQQqi")
NOT_KNOWN = -1

_count_error = error_counter("Fetch")


class FetchPartition(NamedTuple):
    """A partition that a reader fetches."""

    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class FetchRequest(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicRef, list[FetchPartition]]]
    forgotten: list[tuple[TopicRef, list[int]]]
    rack: str
    machine: str = ""


class FetchedPartition(NamedTuple):
    """The result of one partition."""

    partition: int
    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Piece = b""
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_replica: int = -1
    place: FilePlace | None = None
    """The file position of the records, for a reader on the same machine."""
    next_offset: int = NOT_KNOWN
    """The offset after the records. It is sent only with `place`."""
    current_leader: CurrentLeader | None = None
    """The leader, if this broker does not lead the partition or leads it under another epoch than the caller's."""


def parse_fetch_request(version: int, frame: memoryview, position: int) -> FetchRequest:
    """Decode the request body at `position`. Raises MalformedMessageError unless it ends at the end of the frame."""
    source = FrameReader(frame, position, elements_max=NAMED_MAX)
    flexible = version >= FLEXIBLE_FROM
    replica_id = source.int32() if version < REPLICA_TAG_FROM else -1
    max_wait_ms, min_bytes, max_bytes, isolation_level = _unpack(source, START)
    session_id, session_epoch = _unpack(source, SESSION) if version >= SESSIONS_FROM else (0, -1)
    topics: list[tuple[TopicRef, list[FetchPartition]]] = []
    for _ in range(source.count(flexible, 2)):
        topic = read_topic(source, version >= TOPIC_IDS_FROM, flexible)
        topics.append((topic, _parse_partitions(source, version)))
        if flexible:
            source.skip_tags()
    forgotten = _parse_forgotten(source, version) if version >= SESSIONS_FROM else []
    rack = source.string(flexible) if version >= RACK_FROM else ""
    if rack is None:
        raise MalformedMessageError("the rack is null")
    machine = ""
    if flexible:
        for tag, _end in source.tags():
            if tag == MACHINE_TAG:
                machine = source.string(compact=True) or ""
            elif tag == _REPLICA_STATE_TAG and version >= REPLICA_TAG_FROM:
                replica_id = source.int32()
                source.int64()
                source.skip_tags()
    source.finish()
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack,
        machine,
    )


def _unpack(source: FrameReader, layout: Struct) -> tuple[int, ...]:
    try:
        values = layout.unpack_from(source.buffer, source.position)
    except error:
        raise source.too_short(layout.size) from None
    source.position += layout.size
    return values


def _parse_partitions(source: FrameReader, version: int) -> list[FetchPartition]:
    flexible = version >= FLEXIBLE_FROM
    if flexible:
        layout = PARTITION_12
    elif version >= LEADER_EPOCH_FROM:
        layout = PARTITION_9
    else:
        layout = PARTITION_5 if version >= LOG_START_FROM else PARTITION_4
    partitions = []
    for _ in range(source.count(flexible, layout.size)):
        values = _unpack(source, layout)
        partitions.append(_partition(values, version))
        if flexible:
            source.skip_tags()  # a follower's directory and high watermark; there are no followers yet
    return partitions


def _partition(values: tuple[int, ...], version: int) -> FetchPartition:
    if version >= FLEXIBLE_FROM:
        partition, leader_epoch, offset, last_fetched_epoch, log_start_offset, max_bytes = values
        return FetchPartition(partition, offset, max_bytes, leader_epoch, last_fetched_epoch, log_start_offset)
    if version >= LEADER_EPOCH_FROM:
        partition, leader_epoch, offset, log_start_offset, max_bytes = values
        return FetchPartition(partition, offset, max_bytes, leader_epoch, -1, log_start_offset)
    if version >= LOG_START_FROM:
        partition, offset, log_start_offset, max_bytes = values
        return FetchPartition(partition, offset, max_bytes, -1, -1, log_start_offset)
    partition, offset, max_bytes = values
    return FetchPartition(partition, offset, max_bytes)


def _parse_forgotten(source: FrameReader, version: int) -> list[tuple[TopicRef, list[int]]]:
    flexible = version >= FLEXIBLE_FROM
    forgotten = []
    for _ in range(source.count(flexible, 2)):
        topic = read_topic(source, version >= TOPIC_IDS_FROM, flexible)
        forgotten.append((topic, [source.int32() for _ in range(source.count(flexible, 4))]))
        if flexible:
            source.skip_tags()
    return forgotten


def write_fetch_response(
    version: int,
    topics: Sequence[tuple[TopicRef, Sequence[FetchedPartition]]],
    *,
    error: int = 0,
    session_id: int = 0,
    leaders: Sequence[CurrentLeader] = (),
) -> list[Piece]:
    """Return the response body as pieces to send in order, without copying records.

    `leaders` are the leaders that partitions of the response name.
    """
    flexible = version >= FLEXIBLE_FROM
    if error and version >= SESSIONS_FROM:
        _count_error(error)
    pieces: list[Piece] = []
    out = bytearray()
    out += _ANSWER_START.pack(0, error, session_id) if version >= SESSIONS_FROM else b"\0\0\0\0"
    put_count(out, len(topics), flexible)
    for topic, partitions in topics:
        put_topic(out, topic, flexible)
        put_count(out, len(partitions), flexible)
        for fetched in partitions:
            _put_fetched(out, version, fetched)
            if fetched.records:
                pieces += (out, fetched.records)
                out = bytearray()
            if flexible:
                _put_tags(out, fetched)
        if flexible:
            out.append(0)
    if leaders and version >= NODE_ENDPOINTS_FROM:
        put_node_endpoints(out, leaders)
    elif flexible:
        out.append(0)
    if out:
        pieces.append(out)
    return pieces


def _put_fetched(out: bytearray, version: int, fetched: FetchedPartition) -> None:
    """Append the fields of one partition before its records."""
    flexible = version >= FLEXIBLE_FROM
    if fetched.error:
        _count_error(fetched.error)
    out += _ANSWER_5.pack(*fetched[:5]) if version >= LOG_START_FROM else _ANSWER_4.pack(*fetched[:4])
    if fetched.aborted is None:
        put_count(out, -1, flexible)
    else:
        put_count(out, len(fetched.aborted), flexible)
        for producer_id, first_offset in fetched.aborted:
            out += _ABORTED.pack(producer_id, first_offset)
            if flexible:
                out.append(0)
    if version >= RACK_FROM:
        out += INT32.pack(fetched.preferred_replica)
    size = len(fetched.records)
    out += unsigned_varint(size + 1) if flexible else INT32.pack(size)


def _put_tags(out: bytearray, fetched: FetchedPartition) -> None:
    """Append the tagged fields of a partition: its leader in case of an error, or the file position of its records."""
    place = fetched.place
    if place is None:
        if fetched.current_leader is None:
            out.append(0)
        else:
            out.append(1)
            put_current_leader(out, CURRENT_LEADER_TAG, fetched.current_leader)
        return
    field = bytearray(PLACE.pack(fetched.next_offset, place.device, place.inode, place.position, place.size_bytes))
    put_string(field, place.path, compact=True)
    out.append(1)
    out += unsigned_varint(PLACE_TAG) + unsigned_varint(len(field)) + field
