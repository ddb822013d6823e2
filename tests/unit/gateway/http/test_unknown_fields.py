"""Tests that an unknown field or parameter is refused with the name that the caller probably meant."""

import re
from typing import Any

import pytest

from builders.gateways.web import Web, with_web
from millstream.gateway.http.operation_table import WebOperation
from millstream.gateway.http.routes import OPERATIONS


@pytest.mark.parametrize(
    ("method", "target", "body", "field", "hint"),
    [
        ("GET", "/events?topic=t&ofset=1", None, "ofset", "did you mean `offset`?"),
        ("GET", "/events?topic=t&max_mesages=1", None, "max_mesages", "did you mean `max_messages`?"),
        ("POST", "/events", {"topic": "t", "valeu": 1}, "valeu", "did you mean `value`?"),
        ("POST", "/events?topc=t", {"value": 1}, "topc", "did you mean `topic`?"),
        ("POST", "/events", {"topic": "t", "events": [{"value": 1}, {"kee": 1}]}, "events[1].kee", "`key`?"),
        ("POST", "/topic", {"name": "t", "partition": 3}, "partition", "did you mean `partitions`?"),
        ("POST", "/topic", {"name": "t", "Partitions": 3}, "Partitions", "did you mean `partitions`?"),
        ("PUT", "/v1/groups/g/offsets", {"offsets": [{"topic": "t", "ofset": 1}]}, "offsets[0].ofset", "`offset`?"),
        ("POST", "/v1/topics/t/partitions", {"partitions": 3}, "partitions", "did you mean `total`?"),
        ("PATCH", "/v1/topics/t/settings", {"settings": {}}, "settings", "did you mean `set`?"),
        ("POST", "/topic", {"name": "t", "zzz": 3}, "zzz", "accepted fields: cluster, "),
        ("POST", "/topic?zzz=1", {"name": "t"}, "zzz", "no fields are accepted here"),
        ("GET", "/events", {"topic": "t", "ofset": 1}, "ofset", "did you mean `offset`?"),
        ("POST", "/v1/iterators/read", {"iterator": {"tokn": 1}}, "iterator.tokn", "did you mean `token`?"),
    ],
)
def test_an_unknown_field_is_refused_with_a_hint(method: str, target: str, body: Any, field: str, hint: str) -> None:
    async def story(web: Web) -> None:
        answer = await web.ask(method, target, body)
        assert answer.problem == (422, "INVALID_REQUEST", field)
        assert answer.json["detail"].startswith(f"{field}: unknown field; ")
        assert hint in answer.json["detail"]

    with_web(story)


@pytest.mark.parametrize(
    ("target", "headers", "field", "hint"),
    [
        ("/events?topic=t&keyy=1", {}, "keyy", "did you mean `key`?"),
        ("/events?topic=t", {"millstream_keyy": "1"}, "millstream-keyy", "did you mean `key`?"),
        ("/events?topic=t", {"millstream_mesage_id": "1"}, "millstream-mesage-id", "did you mean `message_id`?"),
        ("/events?topic=t", {"millstream_value": "1"}, "millstream-value", "Millstream-Header-<name>"),
    ],
)
def test_an_unknown_name_beside_a_raw_body_is_refused_with_a_hint(
    target: str, headers: dict[str, str], field: str, hint: str
) -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("POST", target, b"x", 1, content_type="application/octet-stream", **headers)
        assert answer.problem == (422, "INVALID_REQUEST", field)
        assert hint in answer.json["detail"]

    with_web(story)


def test_a_body_field_in_the_query_is_refused_with_its_location() -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("POST", "/topic?name=t", {"name": "t"})
        assert answer.problem == (422, "INVALID_REQUEST", "name")
        assert answer.json["detail"] == "name: not a query parameter; send it in the body"

    with_web(story)


@pytest.mark.parametrize("operation", OPERATIONS, ids=[operation.name for operation in OPERATIONS])
def test_every_operation_refuses_an_unknown_parameter(operation: WebOperation) -> None:
    async def story(web: Web) -> None:
        target = re.sub(r"\{\w+\}", "1", operation.path)
        answer = await web.ask(operation.method, f"{target}?no_such_name=1", {} if operation.body else None)
        assert answer.problem == (422, "INVALID_REQUEST", "no_such_name")

    with_web(story)
