"""Tests that the title of a problem names the actual problem."""

from typing import Any

import pytest

from builders.gateways.web import Web, with_web
from millstream.gateway.failures import STATUSES
from millstream.gateway.grpc.statuses import rich_status
from millstream.gateway.http.responses import problem_of
from millstream.gateway.http.web_context import WebLimits
from millstream.model.errors import ErrorCode, MillstreamError

CONTRADICTION = "fields of the request contradict each other"


@pytest.mark.parametrize(
    ("method", "body", "headers", "expected"),
    [
        ("POST", b"{", {}, (400, "the request body is malformed")),
        ("POST", {"topic": "t", "valu": 1}, {}, (422, "unknown field")),
        ("POST", {"topic": 5, "value": 1}, {}, (422, "a field has the wrong type")),
        ("POST", {"topic": "t", "value": 1, "partition": -1}, {}, (422, "a field is out of range")),
        ("POST", {"topic": "t"}, {}, (422, "a required field is missing")),
        ("POST", {"value": 1}, {}, (422, "a required field is missing")),
        ("POST", {"topic": "t", "value": 1, "partition": 0, "hash": 1}, {}, (422, CONTRADICTION)),
        ("POST", {"topic": "t", "value": 1, "events": []}, {}, (422, CONTRADICTION)),
        ("POST", {"topic": "t", "value_base64": "%"}, {}, (422, "the value of a field is not valid")),
        ("POST", b"x", {"content_type": "multipart/form-data"}, (422, "the media type is not supported")),
        ("POST", b"x", {"content_encoding": "br"}, (422, "the content encoding is not supported")),
        (
            "POST",
            b"x",
            {"content_type": "text/plain", "millstream_topic": "t", "millstream_keyy": "k"},
            (422, "unknown header"),
        ),
        ("GET", {"topic": "none"}, {}, (404, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.meaning)),
        ("GET", {"topic": "t", "wait": 61}, {}, (422, "a field is out of range")),
        ("POST", b" " * 1_001, {}, (413, "the request body is too large")),
        (
            "POST",
            {"topic": "t", "value": 1},
            {"origin": "http://evil.example"},
            (403, "the page's origin is not allowed"),
        ),
        ("POST", {"topic": "t", "value": 1, "cluster": "no"}, {}, (404, ErrorCode.UNKNOWN_CLUSTER.meaning)),
        ("PUT", None, {}, (405, "the method is not allowed")),
    ],
)
def test_each_cause_of_a_refused_request_has_its_own_problem_title(
    method: str, body: Any, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    async def story(web: Web) -> None:
        answer = await web.ask(method, "/events", body, pieces=1, **headers)
        assert (answer.status, answer.json["title"]) == expected

    with_web(story, WebLimits(body_bytes=1_000))


GROUP_OFFSETS, BROKER, TOPIC = "/v1/groups/g/offsets", "/v1/brokers/1/settings", "/v1/topics/t/settings"
GROUP = "/v1/groups/g/settings"
FIXED = "the setting cannot be changed while the broker runs"
BAD_SETTING = ErrorCode.INVALID_CONFIG.meaning


@pytest.mark.parametrize(
    ("method", "target", "body", "title", "field"),
    [
        ("POST", GROUP_OFFSETS, {"topic": "t"}, "a required field is missing", "offset"),
        ("POST", GROUP_OFFSETS, {"topic": "t", "offset": 1, "time": "1m"}, CONTRADICTION, "offset"),
        ("POST", "/v1/query", {"sql": "SELEC 1"}, "the SQL statement cannot run", "sql"),
        ("PATCH", BROKER, {"set": {"node.id": "9"}}, FIXED, "set.node.id"),
        ("PATCH", BROKER, {"unset": ["node.id"]}, FIXED, "unset"),
        ("PATCH", BROKER, {"set": {"nod.id": "9"}}, BAD_SETTING, "set.nod.id"),
        (
            "PATCH",
            GROUP,
            {"set": {"consumer.assignment.interval.ms": 50_000}},
            BAD_SETTING,
            "set.consumer.assignment.interval.ms",
        ),
        ("PATCH", GROUP, {"set": {"foo": 1}}, BAD_SETTING, "set.foo"),
        ("PATCH", TOPIC, {"set": {"retention.ms": "x"}}, BAD_SETTING, "set.retention.ms"),
        ("PATCH", TOPIC, {"set": {"retention.ms": 1, "retention.m": 1}}, BAD_SETTING, "set.retention.m"),
        ("POST", "/topic", {"name": "u", "settings": {"a": 1}}, BAD_SETTING, "settings.a"),
        ("PATCH", TOPIC, {"set": {"foo": 1}, "unset": ["foo"]}, CONTRADICTION, "unset"),
        ("PATCH", TOPIC, {"unset": ["foo", "foo"]}, "the value of a field is not valid", "unset"),
        ("POST", "/v1/topics/t/partitions", {"total": 1}, ErrorCode.INVALID_PARTITIONS.meaning, "total"),
    ],
)
def test_the_problem_of_a_refused_change_names_its_cause_and_field(
    method: str, target: str, body: Any, title: str, field: str
) -> None:
    async def story(web: Web) -> None:
        await web.ask("POST", "/topic", {"name": "t"})
        problem = (await web.ask(method, target, body)).json
        assert (problem["title"], problem["field"]) == (title, field), problem

    with_web(story)


def test_an_unknown_broker_setting_is_refused_with_a_hint() -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("PATCH", BROKER, {"set": {"nod.id": "9"}})
        assert answer.problem == (422, "INVALID_CONFIG", "set.nod.id")
        assert "there is no such broker setting; did you mean node.id?" in answer.json["detail"]

    with_web(story)


@pytest.mark.parametrize(
    ("target", "title"),
    [
        ("/events?topic=%ff", "the query string is malformed"),
        ("/v1/topics/%FF", "the path is malformed"),
        ("/events?topic=t&topic=t", "a query parameter is repeated"),
        ("/nothing", ErrorCode.RESOURCE_NOT_FOUND.meaning),
        ("/events?topic=t&group=g", "a required field is missing"),
        ("/events?topic=t&follow=true", CONTRADICTION),
    ],
)
def test_a_problem_title_names_what_is_wrong_with_the_target(target: str, title: str) -> None:
    async def story(web: Web) -> None:
        assert (await web.ask("GET", target)).json["title"] == title

    with_web(story)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE], ids=lambda code: code.name)
def test_every_problem_type_has_a_title_of_its_own_and_no_directories(code: ErrorCode) -> None:
    problem = problem_of(MillstreamError(code, "cannot read /srv/data/orders-0/0001.log: Input/output error"))
    assert problem.title == code.meaning
    assert [other for other in ErrorCode if other.meaning == problem.title] == [code]
    assert (problem.type, problem.code) == (f"/docs/errors#{code.name}", code.name)
    assert problem.status == STATUSES[code].http
    if problem.status >= 500:
        assert problem.detail == "cannot read .../0001.log: Input/output error"


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        (
            "no supervisor answers at /var/lib/ms/control.sock: refused",
            "no supervisor answers at .../control.sock: refused",
        ),
        ("[Errno 28] No space left: '/data/a/b.log'", "[Errno 28] No space left: '.../b.log'"),
        ("catalog /data/catalog.db: disk I/O error", "catalog .../catalog.db: disk I/O error"),
        ("answered at http://broker/v1/info after 5/6 tries", "answered at http://broker/v1/info after 5/6 tries"),
    ],
)
def test_the_detail_of_a_server_failure_has_no_directories(detail: str, expected: str) -> None:
    error = MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, detail)
    assert problem_of(error).detail == expected
    assert rich_status(error).message == f"KAFKA_STORAGE_ERROR: {expected}"
