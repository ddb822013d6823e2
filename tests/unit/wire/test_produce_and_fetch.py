"""Compares the hand-written codecs with the schema-driven codec, which is tested against kafka-python."""

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.loops import for_each
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.ids import BrokerId, TopicId
from millstream.wire.current_leader import CurrentLeader
from millstream.wire.fetch import FetchedPartition, FetchPartition, parse_fetch_request, write_fetch_response
from millstream.wire.fetch_client import parse_fetch_response, write_fetch_request
from millstream.wire.framing import Buffer, Piece
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.messages import read_request, read_response, write_request, write_response
from millstream.wire.produce import (
    ProduceResult,
    parse_produce_request,
    parse_produce_response,
    write_produce_request,
    write_produce_response,
)
from millstream.wire.puts import parse_puts_request, parse_puts_response, write_puts_request, write_puts_response

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)

quick = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

int16s = st.integers(-(1 << 15), (1 << 15) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
texts = st.none() | names
record_bytes = st.binary(max_size=300)
endpoints = [None, *(BrokerEndpoint(BrokerId(number), f"host-{number}", 9_000 + number, "r") for number in range(1, 9))]
known_ids = st.lists(st.tuples(int32s, int64s))
leaders = st.none() | st.builds(
    lambda number, epoch: CurrentLeader(number, epoch, endpoints[number]), st.integers(0, 8), st.integers(0, 9)
)


def topics(version: int, ids_from: int, partitions: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    key: st.SearchStrategy[str | TopicId] = st.uuids().map(TopicId) if version >= ids_from else names
    return st.lists(st.tuples(key, st.lists(partitions, max_size=3)), max_size=3)


def joined(pieces: Sequence[Piece]) -> bytes:
    return b"".join(cast("Sequence[Buffer]", pieces))


def key_of(topic: str | TopicId, by_name: str) -> dict[str, Any]:
    return {by_name: topic} if isinstance(topic, str) else {"topic_id": topic}


@for_each("version", PRODUCE_VERSIONS)
def test_produce_requests_match_the_schema(version: int) -> None:
    @quick
    @given(texts, int16s, int32s, topics(version, 13, st.tuples(int32s, record_bytes)))
    def check(transactional_id: str | None, acks: int, timeout_ms: int, data: Any) -> None:
        body = joined(
            write_produce_request(version, data, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id)
        )
        rows = [
            key_of(topic, "name")
            | {"partition_data": [{"index": index, "records": records} for index, records in parts]}
            for topic, parts in data
        ]
        fields = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": timeout_ms, "topic_data": rows}
        assert body == write_request("Produce", version, fields)
        parsed = parse_produce_request(version, memoryview(b"head" + body), 4)
        assert (parsed.transactional_id, parsed.acks, parsed.timeout_ms) == (transactional_id, acks, timeout_ms)
        assert [
            (topic, [(index, bytes(records or b"")) for index, records in parts]) for topic, parts in parsed.topics
        ] == data

    check()


message_ids = st.none() | st.lists(st.binary(max_size=300), max_size=3)


@quick
@given(int16s, int32s, topics(0, 1, st.tuples(int32s, int64s, record_bytes, message_ids)))
def test_puts_requests_match_the_schema(acks: int, timeout_ms: int, data: Any) -> None:
    body = joined(write_puts_request(data, acks=acks, timeout_ms=timeout_ms))
    fields = ("partition", "hash", "records", "message_ids")
    rows = [{"name": t, "entries": [dict(zip(fields, e, strict=True)) for e in entries]} for t, entries in data]
    assert body == write_request("Puts", 0, {"acks": acks, "timeout_ms": timeout_ms, "topics": rows})
    parsed = parse_puts_request(memoryview(b"head" + body), 4)
    assert parsed[:2] == (acks, timeout_ms)
    assert [(topic, [tuple(entry) for entry in entries]) for topic, entries in parsed.topics] == data
    with pytest.raises(MalformedMessageError):
        parse_puts_request(memoryview(b"head" + body + b"!"), 4)


refusals = st.tuples(texts, known_ids, leaders, st.booleans())


@quick
@given(topics(0, 1, st.tuples(*[int32s, int16s, int64s, int64s, int64s], refusals)))
def test_puts_responses_match_the_schema(data: Any) -> None:
    def made(partition: int, code: int, first: int, time: int, start: int, failure: Any) -> ProduceResult:
        # A success has only numbers.
        text, known, leader, not_appended = failure if code else (None, [], None, False)
        return ProduceResult(partition, code, first, time, start, text, (), known, leader, not_appended)

    results = [(topic, [made(*each) for each in entries]) for topic, entries in data]
    rows = [
        {
            "name": topic,
            "entries": [
                leader_field(each.current_leader)
                | {
                    "error_code": each.error,
                    "error_message": each.message,
                    "partition": each.partition,
                    "base_offset": each.base_offset,
                    "log_append_time_ms": each.append_time_ms,
                    "log_start_offset": each.log_start_offset,
                    "known": [{"index": index, "offset": offset} for index, offset in each.known],
                    "not_appended": each.not_appended,
                }
                for each in entries
            ],
        }
        for topic, entries in results
    ]
    body = write_puts_response(results)
    told = [each.current_leader for _, entries in results for each in entries if each.current_leader is not None]
    assert body == write_response("Puts", 0, {"topics": rows, "node_endpoints": endpoint_rows(told)})
    assert parse_puts_response(memoryview(b"head" + body), 4) == results


@for_each("version", PRODUCE_VERSIONS)
def test_produce_responses_match_the_schema(version: int) -> None:
    errors = st.lists(st.tuples(int32s, texts), max_size=2)
    results = st.builds(
        ProduceResult, int32s, int16s, int64s, int64s, int64s, texts, errors, known=st.just(()), current_leader=leaders
    ).map(lambda result: result if result.error else replace(result, current_leader=None))

    @quick
    @given(topics(version, 13, results))
    def check(data: list[tuple[str | TopicId, list[ProduceResult]]]) -> None:
        body = write_produce_response(version, data)
        rows = [
            key_of(topic, "name") | {"partition_responses": [result_row(part, version) for part in parts]}
            for topic, parts in data
        ]
        told = [part.current_leader for _, parts in data for part in parts if part.current_leader is not None]
        fields = {"responses": rows, "node_endpoints": endpoint_rows(told)}
        assert body == write_response("Produce", version, fields)
        again = parse_produce_response(version, memoryview(b"head" + body), 4)
        assert write_produce_response(version, again) == body

    check()


def endpoint_rows(told: list[CurrentLeader]) -> list[dict[str, Any]]:
    """The address of each leader, once, in the order in which they are named."""
    return [endpoint._asdict() for endpoint in dict.fromkeys(leader.endpoint for leader in told) if endpoint]


def leader_field(leader: CurrentLeader | None) -> dict[str, Any]:
    if leader is None:
        return {}
    return {"current_leader": {"leader_id": leader.leader_id, "leader_epoch": leader.leader_epoch}}


def result_row(result: ProduceResult, version: int) -> dict[str, Any]:
    return leader_field(result.current_leader if version >= 10 else None) | {
        "index": result.partition,
        "error_code": result.error,
        "base_offset": result.base_offset,
        "log_append_time_ms": result.append_time_ms,
        "log_start_offset": result.log_start_offset,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": message} for index, message in result.record_errors
        ],
        "error_message": result.message,
    }


@for_each("version", FETCH_VERSIONS)
def test_fetch_requests_match_the_schema(version: int) -> None:
    wanted = st.builds(FetchPartition, int32s, int64s, int32s, int32s, int32s, int64s)

    @quick
    @given(topics(version, 13, wanted), topics(version, 13, int32s), st.tuples(*[int32s] * 5), names)
    def check(data: Any, forgotten: Any, numbers: tuple[int, ...], rack: str) -> None:
        max_wait_ms, min_bytes, max_bytes, session_id, session_epoch = numbers
        settings_of: dict[str, Any] = {
            "max_wait_ms": max_wait_ms,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": 1,
            "session_id": session_id,
            "session_epoch": session_epoch,
        }
        body = write_fetch_request(version, data, forgotten=forgotten, rack=rack, **settings_of)
        gone = [key_of(topic, "topic") | {"partitions": parts} for topic, parts in forgotten]
        fields = settings_of | {"topics": want_rows(data), "forgotten_topics_data": gone, "rack_id": rack}
        assert body == write_request("Fetch", version, fields)
        parsed = parse_fetch_request(version, memoryview(b"head" + body), 4)
        assert parsed[:5] == (-1, max_wait_ms, min_bytes, max_bytes, 1)
        again = write_fetch_request(
            version,
            parsed.topics,
            forgotten=parsed.forgotten,
            rack=parsed.rack,
            **settings_of | {"session_id": parsed.session_id, "session_epoch": parsed.session_epoch},
        )
        assert again == body

    check()


def want_rows(data: Any) -> list[dict[str, Any]]:
    return [
        key_of(topic, "topic")
        | {
            "partitions": [
                {
                    "partition": want.partition,
                    "fetch_offset": want.offset,
                    "partition_max_bytes": want.max_bytes,
                    "current_leader_epoch": want.leader_epoch,
                    "last_fetched_epoch": want.last_fetched_epoch,
                    "log_start_offset": want.log_start_offset,
                }
                for want in parts
            ]
        }
        for topic, parts in data
    ]


@for_each("version", FETCH_VERSIONS)
def test_fetch_responses_match_the_schema(version: int) -> None:
    aborted = st.none() | st.lists(st.tuples(int64s, int64s), max_size=2)
    fetched = st.builds(
        FetchedPartition,
        int32s,
        int16s,
        int64s,
        int64s,
        int64s,
        record_bytes,
        aborted,
        int32s,
        place=st.none(),
        next_offset=st.just(-1),
        current_leader=leaders,
    )

    @quick
    @given(topics(version, 13, fetched), int16s, int32s)
    def check(data: list[tuple[str | TopicId, list[FetchedPartition]]], error: int, session_id: int) -> None:
        told = [part.current_leader for _, parts in data for part in parts if part.current_leader is not None]
        body = joined(write_fetch_response(version, data, error=error, session_id=session_id, leaders=told))
        rows = [key_of(topic, "topic") | {"partitions": list(map(fetched_row, parts))} for topic, parts in data]
        fields = {"error_code": error, "session_id": session_id, "responses": rows}
        fields["node_endpoints"] = endpoint_rows(told)
        assert body == write_response("Fetch", version, fields)
        again = parse_fetch_response(version, memoryview(b"head" + body), 4)
        pieces = write_fetch_response(version, again.topics, error=again.error, session_id=again.session_id)
        # This client reads the leaders, and not their addresses.
        assert joined(pieces) == joined(write_fetch_response(version, data, error=error, session_id=session_id))

    check()


def fetched_row(fetched: FetchedPartition) -> dict[str, Any]:
    aborted = fetched.aborted
    return leader_field(fetched.current_leader) | {
        "partition_index": fetched.partition,
        "error_code": fetched.error,
        "high_watermark": fetched.high_watermark,
        "last_stable_offset": fetched.last_stable_offset,
        "log_start_offset": fetched.log_start_offset,
        "aborted_transactions": None
        if aborted is None
        else [{"producer_id": producer, "first_offset": first} for producer, first in aborted],
        "preferred_read_replica": fetched.preferred_replica,
        "records": fetched.records,
    }


@for_each("version", [15, 17, 18])
def test_the_replica_id_is_read_from_its_tag(version: int) -> None:
    partition = {"partition": 3, "replica_directory_id": UUID(int=5), "high_watermark": 9}
    topic = {"topic_id": TopicId(UUID(int=7)), "partitions": [partition]}
    fields = {"replica_state": {"replica_id": 4, "replica_epoch": 2}, "topics": [topic]}
    parsed = parse_fetch_request(version, memoryview(write_request("Fetch", version, fields)), 0)
    assert parsed.replica_id == 4
    assert parsed.topics[0][1][0].partition == 3


def test_parsed_records_are_views_of_the_frame() -> None:
    frame = bytearray(joined(write_produce_request(9, [("t", [(0, b"records")])], acks=1, timeout_ms=0)))
    (_, (piece,)) = parse_produce_request(9, memoryview(frame), 0).topics[0]
    assert piece[1] is not None
    assert piece[1].obj is frame
    piece[1][0:1] = b"R"
    assert b"Records" in frame


def test_records_of_a_response_are_not_copied() -> None:
    records = b"x" * 1000
    assert any(piece is records for piece in write_fetch_response(12, [("t", [FetchedPartition(0, records=records)])]))


@for_each("version", [*PRODUCE_VERSIONS])
def test_a_truncated_produce_request_is_refused(version: int) -> None:
    topic = "t" if version < 13 else TopicId(UUID(int=1))
    body = joined(write_produce_request(version, [(topic, [(0, b"records"), (1, b"r")])], acks=1, timeout_ms=0))
    for size in range(len(body)):
        with pytest.raises(MalformedMessageError):
            parse_produce_request(version, memoryview(body)[:size], 0)
    with pytest.raises(MalformedMessageError):
        parse_produce_request(version, memoryview(body + b"\0"), 0)


@for_each("version", [*FETCH_VERSIONS])
def test_a_truncated_fetch_request_is_refused(version: int) -> None:
    topic = "t" if version < 13 else TopicId(UUID(int=1))
    body = write_fetch_request(version, [(topic, [FetchPartition(0, 1, 2)])], max_wait_ms=1, forgotten=[(topic, [1])])
    for size in range(len(body)):
        with pytest.raises(MalformedMessageError):
            parse_fetch_request(version, memoryview(body)[:size], 0)
    with pytest.raises(MalformedMessageError):
        parse_fetch_request(version, memoryview(body + b"\0"), 0)


def test_a_response_parses_the_same_by_hand_and_by_schema() -> None:
    body = joined(
        write_fetch_response(13, [(TopicId(UUID(int=9)), [FetchedPartition(2, 0, 10, 10, 0, b"abc")])], session_id=5)
    )
    fields = read_response("Fetch", 13, memoryview(body), 0)
    assert fields["session_id"] == 5
    assert bytes(fields["responses"][0]["partitions"][0]["records"]) == b"abc"


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_383, 70_000])
@for_each("version", PRODUCE_VERSIONS)
def test_a_request_of_one_batch_is_parsed_for_any_length_of_records(version: int, size: int) -> None:
    topic = TopicId(UUID(int=7)) if version >= 13 else "events"
    records = b"r" * size
    body = joined(write_produce_request(version, [(topic, [(3, records)])], acks=-1, timeout_ms=1000))

    assert by_hand(body, version) == (None, -1, 1000, [(topic, [(3, records)])])


@for_each("version", PRODUCE_VERSIONS)
def test_a_damaged_request_of_one_batch_parses_like_the_schema(version: int) -> None:
    topic = TopicId(UUID(int=7)) if version >= 13 else "events"
    body = joined(write_produce_request(version, [(topic, [(3, b"r" * 140)])], acks=-1, timeout_ms=1000))
    damaged = [body[:end] for end in range(len(body))] + [body + b"\0"]
    for place in range(len(body)):
        damaged += [body[:place] + bytes([value]) + body[place + 1 :] for value in (0, 1, 2, 3, 0x7F, 0x80, 0xFF)]

    for each in damaged:
        try:
            parsed = by_hand(each, version)
        except MalformedMessageError:
            continue
        assert parsed == by_schema(each, version), each.hex()


def by_hand(body: bytes, version: int) -> Any:
    parsed = parse_produce_request(version, memoryview(body), 0)
    return (
        parsed.transactional_id,
        parsed.acks,
        parsed.timeout_ms,
        [
            (topic, [(number, None if records is None else bytes(records)) for number, records in partitions])
            for topic, partitions in parsed.topics
        ],
    )


def by_schema(body: bytes, version: int) -> Any:
    fields = read_request("Produce", version, memoryview(body), 0)
    return (
        *(fields[name] for name in ("transactional_id", "acks", "timeout_ms")),
        [
            (
                topic["topic_id" if version >= 13 else "name"],
                [
                    (each["index"], None if each["records"] is None else bytes(each["records"]))
                    for each in topic["partition_data"]
                ],
            )
            for topic in fields["topic_data"] or ()
        ],
    )
