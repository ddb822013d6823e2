"""Tests that the writers of responses count each error code once, and that successes and kept bytes count nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from millstream.wire.error_counts import count_errors, error_counts
from millstream.wire.fetch import FetchedPartition, write_fetch_response
from millstream.wire.messages import (
    kept_element_writer,
    response_element_writer,
    write_kept_response,
    write_request,
    write_response,
)
from millstream.wire.produce import ProduceResult, write_produce_response
from millstream.wire.puts import write_puts_response
from millstream.wire.schema_writers import EncodedArray
from millstream.wire.subscribe import Delivery, write_delivery

Counts = dict[str, dict[int, int]]


def counted(write: Callable[[], object]) -> Counts:
    """Return the errors that `write` counts, by API and code."""
    before = error_counts()
    write()
    found: Counts = {}
    for api, after in error_counts().items():
        was = before.get(api, {})
        if more := {code: count - was.get(code, 0) for code, count in after.items() if count != was.get(code)}:
            found[api] = more
    return found


def joined(code: int) -> dict[str, Any]:
    return {"error_code": code, "generation_id": 1, "protocol_name": "", "leader": "", "member_id": "", "members": []}


CASES: dict[str, tuple[Callable[[], object], Counts]] = {
    "a success": (lambda: write_response("JoinGroup", 5, joined(0)), {}),
    "an error at the top": (lambda: write_response("JoinGroup", 5, joined(25)), {"JoinGroup": {25: 1}}),
    "errors in nested rows": (
        lambda: write_response(
            "OffsetCommit",
            8,
            {
                "topics": [
                    {"name": "a", "partitions": [{"partition_index": n, "error_code": code} for n, code in rows]}
                    for rows in ([(0, 3), (1, 0)], [(0, 3), (1, 25)])
                ]
            },
        ),
        {"OffsetCommit": {3: 2, 25: 1}},
    ),
    "a field that the version lacks": (
        lambda: write_response("Metadata", 12, {"brokers": [], "topics": [], "error_code": 5}),
        {},
    ),
    "produced": (lambda: write_produce_response(9, [("a", [ProduceResult(0)])]), {}),
    "not produced": (
        lambda: write_produce_response(9, [("a", [ProduceResult(0, 3, message="no"), ProduceResult(1)])]),
        {"Produce": {3: 1}},
    ),
    "not produced, without a text": (
        lambda: write_produce_response(3, [("a", [ProduceResult(0, 6)])]),
        {"Produce": {6: 1}},
    ),
    "put": (lambda: write_puts_response([("a", [ProduceResult(0)])]), {}),
    "not put": (
        lambda: write_puts_response([("a", [ProduceResult(0, 3, message="no"), ProduceResult(1, 3)])]),
        {"Puts": {3: 2}},
    ),
    "fetched": (lambda: write_fetch_response(12, [("a", [FetchedPartition(0)])]), {}),
    "not fetched": (
        lambda: write_fetch_response(12, [("a", [FetchedPartition(0, 1), FetchedPartition(1)])]),
        {"Fetch": {1: 1}},
    ),
    "an unknown fetch session": (lambda: write_fetch_response(13, (), error=70), {"Fetch": {70: 1}}),
    "pushed": (lambda: write_delivery([Delivery("a", 0, records=b"x")]), {}),
    "the end of a subscription": (
        lambda: write_delivery([Delivery("a", 0, 6, message="moved")], 1001, "over"),
        {"Subscribe": {6: 1, 1001: 1}},
    ),
    "a request": (lambda: write_request("Heartbeat", 4, {}), {}),
}


@pytest.mark.parametrize("what", CASES)
def test_each_error_in_an_encoded_response_is_counted(what: str) -> None:
    write, expected = CASES[what]
    assert counted(write) == expected
    assert counted(write) == expected, "the same errors are counted again in the next response"


def test_an_array_of_encoded_rows_is_counted_when_its_rows_are_encoded() -> None:
    out = bytearray()
    row = {"name": "a", "error_code": 36}
    encoded = counted(lambda: response_element_writer("CreateTopics", 5, "topics")(out, row))
    assert encoded == {"CreateTopics": {36: 1}}
    assert counted(lambda: write_response("CreateTopics", 5, {"topics": EncodedArray(1, out)})) == {}


def test_kept_bytes_are_counted_by_their_sender() -> None:
    row = {"partition_index": 0, "leader_id": -1, "error_code": 5, "replica_nodes": [], "isr_nodes": []}
    plain, kept = bytearray(), bytearray()
    assert counted(lambda: response_element_writer("Metadata", 9, "topics", "partitions")(plain, row)) != {}
    assert counted(lambda: kept_element_writer("Metadata", 9, "topics", "partitions")(kept, row)) == {}
    assert plain == kept
    assert counted(lambda: write_kept_response("JoinGroup", 5, joined(25))) == {}
    assert write_kept_response("JoinGroup", 5, joined(25)) == write_response("JoinGroup", 5, joined(25))
    assert counted(lambda: count_errors("Metadata", 5, count=7)) == {"Metadata": {5: 7}}


def test_the_returned_counts_are_a_copy() -> None:
    count_errors("Heartbeat", 27, count=1)
    found = error_counts()["Heartbeat"][27]
    count_errors("Heartbeat", 27, count=1)
    assert error_counts()["Heartbeat"][27] == found + 1
