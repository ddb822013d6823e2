"""Tests the tagged fields of Fetch for a reader on the broker's machine."""

from collections.abc import Sequence
from typing import cast
from uuid import UUID

import pytest

from builders.loops import for_each
from millstream.model.ids import TopicId
from millstream.seams.file_part import FilePlace
from millstream.wire.fetch import (
    FLEXIBLE_FROM,
    PLACE,
    FetchedPartition,
    FetchPartition,
    parse_fetch_request,
    write_fetch_response,
)
from millstream.wire.fetch_client import parse_fetch_response, write_fetch_request
from millstream.wire.framing import Buffer, Piece
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import read_request, read_response

FETCH_VERSIONS = range(4, 19)


def joined(pieces: Sequence[Piece]) -> bytes:
    return b"".join(cast("Sequence[Buffer]", pieces))


@for_each("version", FETCH_VERSIONS)
@pytest.mark.parametrize("machine", ["", "here", "m" * 300])
def test_a_reader_names_its_machine_in_versions_with_tags(version: int, machine: str) -> None:
    topic = TopicId(UUID(int=7)) if version >= 13 else "events"
    body = write_fetch_request(version, [(topic, [FetchPartition(0, 1, 2)])], max_wait_ms=1, machine=machine)
    parsed = parse_fetch_request(version, memoryview(body), 0)
    assert parsed.machine == (machine if version >= FLEXIBLE_FROM else "")
    if machine and version >= FLEXIBLE_FROM:
        fields = read_request("Fetch", version, memoryview(body), 0)
        assert fields["max_wait_ms"] == 1, "who does not know the tag passes over it"


PLACED = FilePlace("/data/orders-0/00.log", 2**64 - 1, 2**63, 2**40, 2**31 - 1)


@for_each("version", range(FLEXIBLE_FROM, 19))
def test_file_positions_replace_records(version: int) -> None:
    topic = TopicId(UUID(int=7)) if version >= 13 else "events"
    told = [FetchedPartition(0, 0, 10, 10, 0, place=PLACED, next_offset=9), FetchedPartition(1, 0, 10, 10, 0, b"abc")]
    body = joined(write_fetch_response(version, [(topic, told)]))
    ((_, (first, second)),) = parse_fetch_response(version, memoryview(body), 0).topics
    assert (first.place, first.next_offset, len(first.records)) == (PLACED, 9, 0)
    assert (second.place, second.next_offset) == (None, -1)
    fields = read_response("Fetch", version, memoryview(body), 0)
    assert [bytes(row["records"]) for row in fields["responses"][0]["partitions"]] == [b"", b"abc"]


@pytest.mark.parametrize(("position", "size_bytes"), [(-1, 10), (0, 0), (0, -1), (-(2**63), 2**31 - 1)])
def test_an_invalid_file_position_is_refused(position: int, size_bytes: int) -> None:
    place = PLACED._replace(position=position, size_bytes=size_bytes)
    body = joined(write_fetch_response(12, [("events", [FetchedPartition(0, place=place, next_offset=9)])]))
    with pytest.raises(MalformedMessageError):
        parse_fetch_response(12, memoryview(body), 0)


def test_a_truncated_or_longer_file_position_is_refused() -> None:
    body = joined(write_fetch_response(12, [("events", [FetchedPartition(0, place=PLACED, next_offset=9)])]))
    for size in range(len(body)):
        with pytest.raises(MalformedMessageError):
            parse_fetch_response(12, memoryview(body)[:size], 0)
    start = body.index(PLACE.pack(9, *PLACED[1:])) - 1
    for size in (0, 1, body[start] - 1, body[start] + 1):
        with pytest.raises(MalformedMessageError):
            parse_fetch_response(12, memoryview(body[:start] + bytes([size]) + body[start + 1 :]), 0)
