"""Tests GET /events: positions, waits, formats and live tails."""

import asyncio
import gzip
import json
from typing import Any

import pytest

from builders.gateways.web import Web, with_web


async def put(web: Web, *values: str, topic: str = "t", **fields: Any) -> None:
    events = [{"value": value, **fields} for value in values]
    answer = await web.ask("POST", "/events", {"topic": topic, "events": events})
    assert answer.status == 200, answer.body


def values(answer: Any) -> list[str]:
    return [event["value"] for event in answer.json["events"]]


def test_a_read_continues_from_the_next_position_of_the_last_answer() -> None:
    async def story(web: Web) -> None:
        await put(web, *"abcde")
        first = await web.ask("GET", "/events?topic=t&offset=beginning&max_messages=2")
        assert (values(first), first.json["next"]) == (["a", "b"], "0:2")
        second = await web.ask("GET", f"/events?topic=t&offset={first.json['next']}")
        assert (values(second), second.json["next"]) == (["c", "d", "e"], "0:5")
        of_one = await web.ask("GET", "/events?topic=t&partition=0&offset=4")
        assert (values(of_one), of_one.json["next"]) == (["e"], "5")

    with_web(story)


def test_an_event_is_returned_with_key_headers_timestamp_and_id() -> None:
    async def story(web: Web) -> None:
        await put(web, "a", key="k", headers={"h": "v", "none": None}, timestamp=7_000, message_id="mine")
        (event,) = (await web.ask("GET", "/events?topic=t")).json["events"]
        assert event == {
            "partition": 0,
            "offset": 0,
            "timestamp": 7_000,
            "key": "k",
            "value": "a",
            "headers": {"h": "v", "none": None},
            "message_id": "mine",
        }

    with_web(story)


def test_readers_see_the_message_id_that_the_write_returned() -> None:
    async def story(web: Web) -> None:
        stored = await web.ask("POST", "/events", {"topic": "t", "value": "a"})
        (event,) = (await web.ask("GET", "/events?topic=t")).json["events"]
        assert event["message_id"] == stored.json["message_id"]

    with_web(story)


def test_get_parameters_may_be_in_a_json_body() -> None:
    async def story(web: Web) -> None:
        await put(web, *"abc")
        answer = await web.ask("GET", "/events", {"topic": "t", "offset": 1, "wait": 0, "partition": 0})
        assert values(answer) == ["b", "c"]
        assert values(await web.ask("GET", "/events?offset=2", {"topic": "t", "offset": 0})) == ["c"]

    with_web(story)


def test_a_poll_waits_for_a_message_at_most_its_wait() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(web.ask("GET", "/events?topic=t&offset=latest&wait=60&max_bytes=1MiB"))
        beyond = asyncio.ensure_future(web.ask("GET", "/events?topic=t&offset=2&wait=1m"))
        await asyncio.sleep(20)
        assert not waiting.done()
        await put(web, "b")
        assert values(await waiting) == ["b"]
        await asyncio.sleep(1)
        assert not beyond.done(), "the log has not reached this offset yet"
        await put(web, "c")
        assert values(await beyond) == ["c"]
        begun_s = loop.time()
        empty = await web.ask("GET", "/events?topic=t&offset=latest")
        assert (values(empty), empty.json["next"]) == ([], "0:3")
        assert 5 <= loop.time() - begun_s < 6

    with_web(story)


def test_a_read_may_start_at_a_time() -> None:
    async def story(web: Web) -> None:
        await put(web, "a", timestamp=1_000)
        await put(web, "b", timestamp=86_400_000)
        assert values(await web.ask("GET", "/events?topic=t&time=1970-01-01T12:00:00Z")) == ["b"]
        assert values(await web.ask("GET", "/events?topic=t&time=1000")) == ["a", "b"]

    with_web(story)


def test_ndjson_answers_have_the_next_position_in_a_header() -> None:
    async def story(web: Web) -> None:
        await put(web, *"ab")
        answer = await web.ask("GET", "/events?topic=t", accept="application/x-ndjson")
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert [json.loads(line)["value"] for line in answer.body.splitlines()] == ["a", "b"]
        assert answer.headers["millstream-next"] == "0:2"

    with_web(story)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/events", (422, "INVALID_REQUEST", "topic")),
        ("/events?topic=t&ofset=1", (422, "INVALID_REQUEST", "ofset")),
        ("/events?topic=t&offset=soon", (422, "INVALID_SETTING", "offset")),
        ("/events?topic=t&offset=1:1", (422, "INVALID_REQUEST", "offset")),
        ("/events?topic=t&time=soon", (422, "INVALID_SETTING", "time")),
        ("/events?topic=t&time=1738324800", (422, "INVALID_SETTING", "time")),
        ("/events?topic=t&offset=1&time=5", (422, "INVALID_REQUEST", "time")),
        ("/events?topic=t&wait=61", (422, "INVALID_REQUEST", "wait")),
        ("/events?topic=t&wait=2m", (422, "INVALID_REQUEST", "wait")),
        ("/events?topic=t&wait=long", (422, "INVALID_SETTING", "wait")),
        ("/events?topic=t&wait=-1", (422, "INVALID_SETTING", "wait")),
        ("/events?topic=t&max_bytes=big", (422, "INVALID_SETTING", "max_bytes")),
        ("/events?topic=t&max_bytes=1GiB", (422, "INVALID_REQUEST", "max_bytes")),
        ("/events?topic=t&max_messages=0", (422, "INVALID_REQUEST", "max_messages")),
        ("/events?topic=t&topic=u", (422, "INVALID_REQUEST", "topic")),
        ("/events?topic=%ff", (422, "INVALID_REQUEST", "query")),
        ("/events?topic=t&format=xml", (422, "INVALID_REQUEST", "format")),
        ("/events?topic=t&group=g", (422, "INVALID_REQUEST", "consumer")),
        ("/events?topic=nowhere", (404, "UNKNOWN_TOPIC_OR_PARTITION", None)),
        ("/events?topic=t&partition=9&offset=0", (404, "UNKNOWN_TOPIC_OR_PARTITION", None)),
        ("/events?topic=a%20b", (422, "INVALID_TOPIC", "topic")),
        ("/events?topic=t&cluster=none", (404, "UNKNOWN_CLUSTER", "cluster")),
        ("/events?topic=t&follow=true", (422, "INVALID_REQUEST", "follow")),
        ("/events?topic=t&auto_commit=true", (422, "INVALID_REQUEST", "auto_commit")),
    ],
)
def test_an_invalid_read_is_refused_with_code_and_field(target: str, expected: tuple[int, str, str | None]) -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        assert (await web.ask("GET", target)).problem == expected

    with_web(story)


def test_a_removed_offset_is_refused_with_the_log_start_offset() -> None:
    async def story(web: Web) -> None:
        await put(web, *"abc")
        removed = await web.ask("DELETE", "/v1/topics/t/messages", {"before": {"0": 2}})
        assert removed.json["first_offsets"] == {"0": 2}
        answer = await web.ask("GET", "/events?topic=t&offset=0")
        assert answer.problem == (416, "OFFSET_OUT_OF_RANGE", "offset")
        assert "2" in answer.json["detail"]

    with_web(story)


def test_a_live_tail_runs_until_the_gateway_drains() -> None:
    async def story(web: Web) -> None:
        await put(web, "before")
        tail = asyncio.ensure_future(web.ask("GET", "/events?topic=t", accept="text/event-stream"))
        await asyncio.sleep(1)
        await put(web, "a", "b")
        await asyncio.sleep(20)
        await put(web, "c")
        await asyncio.sleep(1)
        web.site.draining.begin()
        answer = await tail
        assert answer.headers["content-type"] == "text/event-stream"
        begin, *blocks = answer.body.decode().split("\n\n")
        assert begin == "id: 0:1", "a client that reconnects before the first event resumes here"
        events = [
            dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks if block.startswith("id")
        ]
        assert [(each["id"], json.loads(each["data"])["value"]) for each in events] == [
            ("0:2", "a"),
            ("0:3", "b"),
            ("0:4", "c"),
        ]
        assert ": keep-alive" in blocks

    with_web(story)


def test_a_reconnected_tail_resumes_after_the_last_event_id() -> None:
    async def story(web: Web) -> None:
        await put(web, *"abc")
        tail = asyncio.ensure_future(
            web.ask("GET", "/events?topic=t&follow=true", accept="application/x-ndjson", last_event_id="0:1")
        )
        await asyncio.sleep(1)
        web.site.draining.begin()
        lines = [line for line in (await tail).body.splitlines() if line]
        assert [json.loads(line)["value"] for line in lines] == ["b", "c"]

    with_web(story)


def test_a_tail_from_a_time_resumes_after_the_last_event_id() -> None:
    async def story(web: Web) -> None:
        await put(web, *"abc")
        tail = asyncio.ensure_future(
            web.ask("GET", "/events?topic=t&time=1h", accept="text/event-stream", last_event_id="0:2")
        )
        await asyncio.sleep(1)
        web.site.draining.begin()
        begin, event, _ = (await tail).body.decode().split("\n\n")
        assert begin == "id: 0:2"
        assert '"value":"c"' in event

    with_web(story)


@pytest.mark.parametrize(("query", "expected"), [("", ["a", "b"]), ("&partition=0", ["a"])])
def test_a_tail_of_all_partitions_includes_added_partitions(query: str, expected: list[str]) -> None:
    async def story(web: Web) -> None:
        await put(web, "before")
        target = f"/events?topic=t&follow=true{query}"
        tail = asyncio.ensure_future(web.ask("GET", target, accept="application/x-ndjson"))
        await asyncio.sleep(1)
        assert (await web.ask("POST", "/v1/topics/t/partitions", {"total": 2})).status == 200
        await put(web, "a", partition=0)
        await put(web, "b", partition=1)
        await asyncio.sleep(40)
        web.site.draining.begin()
        lines = [line for line in (await tail).body.splitlines() if line]
        assert [json.loads(line)["value"] for line in lines] == expected

    with_web(story)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("/events?topic=t&offset=0", "text/event-stream"),
        ("/events?topic=t&offset=latest&wait=60", "application/json"),
        ("/events?topic=t&group=g&consumer=a&wait=60", "application/x-ndjson"),
    ],
)
def test_head_requests_answer_at_once_and_deliver_nothing(target: str, kind: str) -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        async with asyncio.timeout(1):
            answer = await web.ask("HEAD", target, accept=kind)
        assert (answer.status, answer.headers, answer.body) == (200, {"content-type": kind}, b"")
        assert (await web.ask("HEAD", target.replace("topic=t", "topic=none"), accept=kind)).status == 404
        assert (await web.ask("GET", "/v1/groups")).json["groups"] == []
        assert web.site.traffic.events_read == 0

    with_web(story)


def test_a_tail_ends_with_the_error() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        tail = asyncio.ensure_future(web.ask("GET", "/events?topic=t", accept="text/event-stream"))
        await asyncio.sleep(1)
        assert (await web.ask("DELETE", "/v1/topics/t")).status == 204
        answer = await tail
        assert b"event: error\n" in answer.body
        assert json.loads(answer.body.rpartition(b"data: ")[2])["code"] == "UNKNOWN_TOPIC_OR_PARTITION"

    with_web(story)


def test_long_answers_are_compressed_for_clients_that_accept_gzip() -> None:
    async def story(web: Web) -> None:
        await put(web, "x" * 10_000)
        packed = await web.ask("GET", "/events?topic=t", accept_encoding="gzip, br")
        assert packed.headers["content-encoding"] == "gzip"
        assert len(packed.body) < 2_000
        plain = await web.ask("GET", "/events?topic=t")
        assert "content-encoding" not in plain.headers
        assert gzip.decompress(packed.body) == plain.body

    with_web(story)


def test_a_poll_still_waits_while_a_drain_is_only_announced() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        web.site.draining.announce()
        waiting = asyncio.ensure_future(web.ask("GET", "/events?topic=t&offset=latest&wait=60"))
        await asyncio.sleep(1)
        await put(web, "b")
        assert values(await waiting) == ["b"]

    with_web(story)


def test_a_waiting_poll_returns_empty_when_the_gateway_drains() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        waiting = asyncio.ensure_future(web.ask("GET", "/events?topic=t&offset=latest&wait=60"))
        await asyncio.sleep(1)
        web.site.draining.begin()
        answer = await waiting
        assert (answer.status, values(answer), answer.json["next"]) == (200, [], "0:1")

    with_web(story)
