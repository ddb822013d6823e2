"""Tests POST /events: accepted bodies, answers and refusals."""

import gzip
import json
from base64 import b64encode
from typing import Any

import pytest

from builders.gateways.web import Web, with_web
from millstream.gateway.budget import Budget, Share
from millstream.gateway.http.web_context import WebLimits


async def read(web: Web, **parameters: Any) -> list[dict[str, Any]]:
    query = "&".join(f"{name}={value}" for name, value in {"topic": "t", "wait": 0, **parameters}.items())
    answer = await web.ask("GET", f"/events?{query}")
    assert answer.status == 200, answer.body
    events: list[dict[str, Any]] = answer.json["events"]
    return events


def test_a_single_event_is_stored_and_its_offset_returned() -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("POST", "/events", {"topic": "t", "key": "k", "value": "hello"})
        assert answer.status == 200
        stored = answer.json
        assert (stored["topic"], stored["partition"], stored["offset"]) == ("t", 0, 0)
        again = await web.ask(
            "POST", "/events", {"topic": "t", "key": "k", "value": "hello", "message_id": stored["message_id"]}
        )
        assert not stored["duplicate"]
        assert again.json == {**stored, "duplicate": True}
        (event,) = await read(web)
        assert (event["key"], event["value"]) == ("k", "hello")

    with_web(story)


def test_many_events_are_stored_in_order_and_their_offsets_returned() -> None:
    async def story(web: Web) -> None:
        events = [{"value": str(number), "headers": {"n": str(number)}} for number in range(5)]
        answer = await web.ask("POST", "/events", {"topic": "t", "events": events})
        assert [row["offset"] for row in answer.json["events"]] == [0, 1, 2, 3, 4]
        assert len({row["message_id"] for row in answer.json["events"]}) == 5
        found = await read(web)
        assert [(event["value"], event["headers"]) for event in found] == [(str(n), {"n": str(n)}) for n in range(5)]

    with_web(story)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        ('quoted "text"\n', 'quoted "text"\n'),
        ("größe", "größe"),
        ({"a": [1, 2.50, None]}, '{"a":[1,2.5,null]}'),
        (12345678901234567890123, "12345678901234567890123"),
        (True, "true"),
        ("", ""),
        (None, None),
    ],
)
def test_a_value_is_stored_as_text_or_as_json_text(value: Any, expected: str | None) -> None:
    async def story(web: Web) -> None:
        assert (await web.ask("POST", "/events", {"topic": "t", "value": value, "key": "k"})).status == 200
        (event,) = await read(web)
        assert event["value"] == expected

    with_web(story)


def test_bytes_are_posted_and_read_as_base64() -> None:
    async def story(web: Web) -> None:
        packed = b64encode(b"\x00\xff").decode()
        event = {"topic": "t", "value_base64": packed, "key_base64": packed, "headers_base64": {"h": packed}}
        assert (await web.ask("POST", "/events", event)).status == 200
        (found,) = await read(web)
        assert (found["value_base64"], found["key_base64"], found["headers_base64"]) == (packed, packed, {"h": packed})

    with_web(story)


def test_repeated_headers_are_lists() -> None:
    async def story(web: Web) -> None:
        texts = {"a": ["1", "2", None], "b": "3", "n": None}
        packed = {"c": ["/w==", "/g=="], "d": "/w=="}
        event = {"topic": "t", "value": "x", "headers": texts, "headers_base64": packed}
        assert (await web.ask("POST", "/events", event)).status == 200
        (found,) = await read(web)
        assert (found["headers"], found["headers_base64"]) == (texts, packed)

    with_web(story)


def test_repeated_headers_are_returned_in_one_format() -> None:
    async def story(web: Web) -> None:
        client = web.site.clusters.get().members[0].client
        async with client.producer() as producer:
            await producer.put("t", "x", headers=[("a", b"text"), ("a", b"\xff"), ("a", None)])
        (found,) = await read(web)
        assert ("headers" in found, found["headers_base64"]) == (False, {"a": ["dGV4dA==", "/w==", None]})

    with_web(story)


def test_values_are_returned_in_the_requested_format() -> None:
    async def story(web: Web) -> None:
        events = [{"value": {"a": 1}}, {"value": "{broken"}, {"value_base64": "AP8="}]
        await web.ask("POST", "/events", {"topic": "t", "events": events})
        assert [event.get("value") for event in await read(web, format="json")] == [{"a": 1}, "{broken", None]
        assert [event.get("value") for event in await read(web, format="text")] == ['{"a":1}', "{broken", "\0\ufffd"]
        assert [event.get("value_base64") for event in await read(web, format="base64")][2] == "AP8="

    with_web(story)


def test_ndjson_lines_are_stored_as_events() -> None:
    async def story(web: Web) -> None:
        lines = b'{"value": "a"}\n{"value": {"b": 1}, "partition": 0}\n'
        answer = await web.ask("POST", "/events?topic=t", lines, content_type="application/x-ndjson")
        assert [row["offset"] for row in answer.json["events"]] == [0, 1]
        assert [event["value"] for event in await read(web)] == ["a", '{"b":1}']

    with_web(story)


def test_a_body_of_another_media_type_is_the_value_of_one_event() -> None:
    async def story(web: Web) -> None:
        answer = await web.ask(
            "POST",
            "/events?topic=t",
            b"\x00raw",
            content_type="application/octet-stream",
            millstream_key="k",
            millstream_header_trace="abc",
            millstream_message_id="mine",
        )
        assert (answer.json["offset"], answer.json["message_id"]) == (0, "mine")
        (event,) = await read(web)
        assert (event["value"], event["key"], event["headers"]) == ("\x00raw", "k", {"trace": "abc"})
        assert event["message_id"] == "mine"

    with_web(story)


def test_a_raw_body_without_bytes_is_refused_and_json_writes_an_empty_value() -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("POST", "/events?topic=t", b"", content_type="application/octet-stream")
        assert answer.problem == (422, "INVALID_REQUEST", "body")
        assert 'send JSON with "value": ""' in answer.json["detail"]
        assert (await web.ask("POST", "/events", {"topic": "t", "value": ""})).status == 200
        assert [event["value"] for event in await read(web)] == [""]

    with_web(story)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"value": None}, "key"),
        ({"value": None, "key": None}, "key"),
        ({"events": [{"value": 1}, {"value": None}]}, "events[1].key"),
        ({"events": [{"value": None, "key": "k"}, {"value": None, "key": None}]}, "events[1].key"),
    ],
)
def test_a_tombstone_without_a_key_is_refused(body: dict[str, Any], field: str) -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("POST", "/events", {"topic": "t", **body})
        assert answer.problem == (422, "INVALID_REQUEST", field)
        assert "needs the key whose messages it deletes" in answer.json["detail"]

    with_web(story)


@pytest.mark.parametrize(
    ("target", "body", "kind", "field"),
    [
        ("/events", {"topic": "t", "value": 1, "timestamp": 1_738_324_800}, "application/json", "timestamp"),
        (
            "/events",
            {"topic": "t", "events": [{"value": 1}, {"value": 1, "timestamp": 1_738_324_800}]},
            "application/json",
            "events[1].timestamp",
        ),
        ("/events?topic=t&timestamp=1738324800", b"x", "application/octet-stream", "timestamp"),
    ],
)
def test_a_timestamp_in_seconds_is_refused_with_a_hint(target: str, body: Any, kind: str, field: str) -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("POST", target, body, content_type=kind)
        assert answer.problem == (422, "INVALID_SETTING", field)
        assert "1738324800 looks like seconds; give milliseconds (1738324800000)" in answer.json["detail"]

    with_web(story)


def test_a_repeated_http_header_becomes_two_event_headers() -> None:
    async def story(web: Web) -> None:
        kind = "application/octet-stream"
        answer = await web.ask("POST", "/events?topic=t", b"x", content_type=kind, millstream_header_via="a\nb")
        assert answer.status == 200
        assert (await read(web))[0]["headers"] == {"via": ["a", "b"]}

    with_web(story)


def test_events_of_one_request_may_have_different_topics() -> None:
    async def story(web: Web) -> None:
        events = [{"value": "a"}, {"value": "b", "topic": "other"}, {"value": "c"}]
        answer = await web.ask("POST", "/events", {"topic": "t", "events": events})
        rows = [(row["topic"], row["offset"]) for row in answer.json["events"]]
        assert rows == [("t", 0), ("other", 0), ("t", 1)]

    with_web(story)


def test_a_retry_with_an_idempotency_key_is_stored_once() -> None:
    async def story(web: Web) -> None:
        body = {"topic": "t", "events": [{"value": "a"}, {"value": "b"}]}
        first = await web.ask("POST", "/events", body, idempotency_key="batch-1")
        again = await web.ask("POST", "/events", body, idempotency_key="batch-1")
        assert [row.pop("duplicate") for row in first.json["events"]] == [False, False]
        assert [row["duplicate"] for row in again.json["events"]] == [True, True]
        assert [row["offset"] for row in again.json["events"]] == [0, 1]
        assert len(await read(web)) == 2
        single = {"topic": "t", "value": "c"}
        one = await web.ask("POST", "/events", single, idempotency_key='"one"')
        assert one.json["message_id"] == "one"
        repeated = await web.ask("POST", "/events", single, idempotency_key='"one"')
        assert repeated.json == {**one.json, "duplicate": True}

    with_web(story)


def test_an_event_may_set_partition_hash_and_timestamp() -> None:
    async def story(web: Web) -> None:
        await web.ask("POST", "/topic", {"name": "t", "partitions": 4})
        events = [{"value": "a", "partition": 3}, {"value": "b", "hash": -1}, {"value": "c", "timestamp": 5_000}]
        answer = await web.ask("POST", "/events", {"topic": "t", "events": events})
        assert [row["partition"] for row in answer.json["events"][:2]] == [3, 3]
        found = {event["value"]: event["timestamp"] for event in await read(web)}
        assert found["c"] == 5_000

    with_web(story)


def test_a_gzip_body_is_accepted() -> None:
    async def story(web: Web) -> None:
        packed = gzip.compress(b'{"topic": "t", "value": "' + b"a" * 100_000 + b'"}')
        answer = await web.ask("POST", "/events", packed, pieces=3, content_encoding="gzip")
        assert answer.status == 200
        assert len((await read(web))[0]["value"]) == 100_000

    with_web(story)


BAD: list[tuple[Any, dict[str, str], tuple[int, str, str | None]]] = [
    (b"", {}, (400, "INVALID_REQUEST", "body")),
    (b"{", {}, (400, "INVALID_REQUEST", "body")),
    (b'{"topic": "t", "value": "\xff"}', {}, (400, "INVALID_REQUEST", "body")),
    (b'{"topic": "t", "value": ' + b"[" * 100_000 + b"}", {}, (400, "INVALID_REQUEST", "body")),
    (b"[]", {}, (422, "INVALID_REQUEST", "body")),
    ({"value": "a"}, {}, (422, "INVALID_REQUEST", "topic")),
    ({"topic": "t"}, {}, (422, "INVALID_REQUEST", "value")),
    ({"topic": "t", "valeu": "a"}, {}, (422, "INVALID_REQUEST", "valeu")),
    ({"topic": 5, "value": "a"}, {}, (422, "INVALID_REQUEST", "topic")),
    ({"topic": "a b", "value": "a"}, {}, (422, "INVALID_TOPIC", "topic")),
    ({"topic": "t", "value": "a", "value_base64": "YQ=="}, {}, (422, "INVALID_REQUEST", "value")),
    ({"topic": "t", "value_base64": "%%%"}, {}, (422, "INVALID_REQUEST", "value_base64")),
    ({"topic": "t", "events": []}, {}, (422, "INVALID_REQUEST", "events")),
    ({"topic": "t", "value": "a", "events": [{"value": "a"}]}, {}, (422, "INVALID_REQUEST", "value")),
    ({"topic": "t", "key_base64": "YQ==", "events": [{"value": 1}]}, {}, (422, "INVALID_REQUEST", "key_base64")),
    ({"topic": "t", "partition": 0, "events": [{"value": 1}]}, {}, (422, "INVALID_REQUEST", "partition")),
    ({"topic": "t", "headers": {"a": "b"}, "events": [{"value": 1}]}, {}, (422, "INVALID_REQUEST", "headers")),
    ({"topic": "t", "message_id": "a", "events": [{"value": 1}]}, {}, (422, "INVALID_REQUEST", "message_id")),
    ({"topic": "t", "events": [{"value": "a"}, {}]}, {}, (422, "INVALID_REQUEST", "events[1].value")),
    ({"topic": "t", "events": [{"value": 1, "partition": -1}]}, {}, (422, "INVALID_REQUEST", "events[0].partition")),
    ({"topic": "t", "value": "a", "partition": 1, "hash": 2}, {}, (422, "INVALID_REQUEST", "hash")),
    ({"topic": "t", "value": "a", "message_id": "~nonsense"}, {}, (422, "INVALID_MESSAGE_ID", "message_id")),
    ({"topic": "t", "value": "a", "headers": {"millstream.id": "x"}}, {}, (422, "INVALID_REQUEST", "value")),
    ({"topic": "t", "value": "a", "cluster": "none"}, {}, (404, "UNKNOWN_CLUSTER", "cluster")),
    ({"topic": "t", "value": "a", "partition": 9}, {}, (404, "UNKNOWN_TOPIC_OR_PARTITION", None)),
    ({"topic": "t", "value": "a"}, {"content_encoding": "br"}, (422, "INVALID_REQUEST", "Content-Encoding")),
    (b"not gzip", {"content_encoding": "gzip"}, (400, "INVALID_REQUEST", "body")),
    (gzip.compress(b"{}" * 9, mtime=0)[:-9], {"content_encoding": "gzip"}, (400, "INVALID_REQUEST", "body")),
    (gzip.compress(b" " * 2_000_000, mtime=0), {"content_encoding": "gzip"}, (413, "MESSAGE_TOO_LARGE", "body")),
    (b" " * 1_000_001, {}, (413, "MESSAGE_TOO_LARGE", "body")),
    ({"topic": "t", "events": [{"value": 1}] * 101}, {}, (422, "INVALID_REQUEST", "events")),
    ({"topic": "t", "value": "a"}, {"content_type": "multipart/form-data"}, (422, "INVALID_REQUEST", "Content-Type")),
    ({"topic": "t", "value": "a"}, {"idempotency_key": "k" * 241}, (422, "INVALID_MESSAGE_ID", "Idempotency-Key")),
    ({"topic": "t", "value": "a"}, {"origin": "http://evil.example"}, (403, "CLUSTER_AUTHORIZATION_FAILED", "Origin")),
    (b'{"value": 1}\n{', {"content_type": "application/x-ndjson"}, (400, "INVALID_REQUEST", "body")),
]
BAD_EVENTS: list[tuple[list[Any], tuple[int, str, str | None]]] = [
    ([{"value": 1}, {"value": 2}], (422, "INVALID_REQUEST", "events[0].topic")),
    ([{"topic": "t", "value": 1}, {"topic": "t", "valu": 2}], (422, "INVALID_REQUEST", "events[1].valu")),
    ([{"topic": "t", "value": 1}, 5], (422, "INVALID_REQUEST", "events[1]")),
    ([{"topic": "t", "value": 1, "headers": {"a": 5}}], (422, "INVALID_REQUEST", "events[0].headers")),
    ([{"topic": "t", "value": 1}, {"topic": "t"}], (422, "INVALID_REQUEST", "events[1].value")),
    (
        [{"topic": "t", "value": 1}, {"topic": "u", "value_base64": "%"}],
        (422, "INVALID_REQUEST", "events[1].value_base64"),
    ),
    ([{"topic": "t", "value": 1}, {"topic": "", "value": 1}], (422, "INVALID_TOPIC", "events[1].topic")),
    ([{"topic": "t", "value": 1, "message_id": "i" * 256}], (422, "INVALID_MESSAGE_ID", "events[0].message_id")),
]


@pytest.mark.parametrize(("events", "expected"), BAD_EVENTS)
@pytest.mark.parametrize("are_lines", [False, True])
def test_an_invalid_event_gives_the_same_error_in_a_json_list_and_in_ndjson(
    events: list[Any], expected: tuple[int, str, str | None], are_lines: bool
) -> None:
    async def story(web: Web) -> None:
        body = b"\n".join(json.dumps(each).encode() for each in events) if are_lines else {"events": events}
        kind = "application/x-ndjson" if are_lines else "application/json"
        answer = await web.ask("POST", "/events", body, content_type=kind)
        assert answer.problem == expected, answer.body
        assert answer.json["detail"].startswith(f"{expected[2]}: ")

    with_web(story)


@pytest.mark.parametrize(("body", "headers", "expected"), BAD)
def test_an_invalid_post_is_refused_with_code_and_field(
    body: Any, headers: dict[str, str], expected: tuple[int, str, str | None]
) -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("POST", "/events", body, pieces=2, **headers)
        assert answer.problem == expected, answer.body
        assert web.site.budget.held_bytes == 0

    with_web(story, WebLimits(body_bytes=1_000_000, events=100))


def test_a_partly_failed_post_reports_each_event_with_its_id() -> None:
    async def story(web: Web) -> None:
        events = [{"value": "a", "partition": 0}, {"value": "b", "partition": 7}]
        answer = await web.ask("POST", "/events", {"topic": "t", "events": events})
        assert answer.problem == (404, "UNKNOWN_TOPIC_OR_PARTITION", None)
        stored, failed = answer.json["events"]
        assert (stored["offset"], "error" in stored) == (0, False)
        assert failed["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert failed["message_id"]

    with_web(story)


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
@pytest.mark.parametrize("parameter", ["key=k", "partition=0", "hash=1", "message_id=a", "timestamp=5"])
def test_event_fields_in_the_query_are_refused_with_json_bodies(parameter: str, kind: str) -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("POST", f"/events?topic=t&{parameter}", b'{"value": 1}', content_type=kind)
        assert answer.problem == (422, "INVALID_REQUEST", parameter.partition("=")[0])

    with_web(story)


def test_the_cluster_in_the_body_overrides_the_query() -> None:
    async def story(web: Web) -> None:
        named = {"topic": "t", "value": "a", "cluster": "default"}
        assert (await web.ask("POST", "/events?cluster=none", named)).status == 200
        assert (await web.ask("POST", "/events?cluster=none", {"topic": "t", "value": "a"})).status == 404

    with_web(story)


def test_a_refused_topic_does_not_fail_the_events_of_others() -> None:
    async def story(web: Web) -> None:
        events = [{"value": "a"}, {"value": "b", "topic": "no name", "message_id": "mine"}, {"value": "c"}]
        answer = await web.ask("POST", "/events", {"topic": "t", "events": events})
        assert answer.problem == (422, "INVALID_TOPIC", "topic")
        first, refused, last = answer.json["events"]
        assert (first["offset"], last["offset"]) == (0, 1)
        assert (refused["error"]["code"], refused["message_id"]) == ("INVALID_TOPIC", "mine")
        assert [event["value"] for event in await read(web)] == ["a", "c"]

    with_web(story)


def test_a_write_over_the_memory_budget_is_refused_until_there_is_room() -> None:
    async def story(web: Web) -> None:
        other = Share(web.site.budget)
        other.take(1_500)
        answer = await web.ask("POST", "/events", {"topic": "t", "value": "a" * 600})
        assert answer.problem == (503, "GATEWAY_FULL", None)
        assert answer.headers["retry-after"] == "1"
        other.give_back()
        assert (await web.ask("POST", "/events", {"topic": "t", "value": "a" * 600})).status == 200
        assert web.site.budget.held_bytes == 0

    with_web(story, budget=Budget(2_000))
