"""Tests iterators over HTTP, one call at a time, as if each call reached another gateway."""

import asyncio
from typing import Any

import pytest

from builders.gateways.web import Web, with_web

CONSUMER = "/v1/groups/billing/consumers/a"


async def filled(web: Web, count: int) -> None:
    assert (await web.ask("POST", "/topic", {"name": "orders"})).status == 201
    events = [{"value": str(number)} for number in range(count)]
    assert (await web.ask("POST", "/events?topic=orders", {"events": events})).status == 200


async def iterator(web: Web, max_messages: int) -> dict[str, Any]:
    """Join the group and request an iterator until the member owns the partition."""
    assert (await web.ask("PUT", CONSUMER)).status == 200
    while True:
        wanted = {"topic": "orders", "max_messages": max_messages, "in_flight_ms": "30s", "start": "earliest"}
        found = await web.ask("POST", f"{CONSUMER}/iterators", wanted)
        if found.status == 200:
            given: dict[str, Any] = found.json
            return given
        assert found.problem == (409, "NOT_OWNER", None)
        await asyncio.sleep(0.1)


async def read(web: Web, given: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = await web.ask("POST", "/v1/iterators/read", {"iterator": given, **more})
    assert answer.status == 200, answer.body
    batch: dict[str, Any] = answer.json
    return batch


def values(batch: dict[str, Any]) -> list[str]:
    return [event["value"] for event in batch["events"]]


def test_an_iterator_is_read_delivered_and_committed_and_the_next_one_is_issued() -> None:
    async def story(web: Web) -> None:
        await filled(web, 10)
        joined = (await web.ask("PUT", CONSUMER)).json
        assert joined["session_s"] > joined["heartbeat_s"] > 0
        given = await iterator(web, 4)
        heartbeat = (await web.ask("POST", f"{CONSUMER}/heartbeat")).json
        assert heartbeat["owned"] == [{"topic": "orders", "partition": 0}]
        batch = await read(web, given)
        assert values(batch) == ["0", "1", "2", "3"]
        assert (batch["iterator"]["offset"], batch["end_offset"], batch["next"]["offset"]) == (0, 4, 4)
        delivered = await web.ask("POST", f"{CONSUMER}/deliver", {"iterator": batch["iterator"], "count": 3})
        assert delivered.json["left_s"] > 0
        (everybodys,) = (await web.ask("GET", "/v1/groups/billing/iterators")).json["iterators"]
        assert "iterator" not in everybodys, "only the owner gets the token"
        (own,) = (await web.ask("GET", f"{CONSUMER}/iterators")).json["iterators"]
        assert (own["topic"], own["partition"], own["delivered"]) == ("orders", 0, 3)
        done = (await web.ask("POST", f"{CONSUMER}/commit", {"iterator": own["iterator"], "delivered": True})).json
        assert (done["position"], done["next"]["offset"]) == (3, 3)
        again = await web.ask("POST", f"{CONSUMER}/commit", {"iterator": own["iterator"], "count": 1})
        assert again.problem == (409, "ITERATOR_SETTLED", None)
        done = (await web.ask("POST", f"{CONSUMER}/commit", {"iterator": done["next"], "count": 4})).json
        assert done["position"] == 7
        assert (await web.ask("DELETE", CONSUMER)).status == 204
        assert (await web.ask("POST", f"{CONSUMER}/heartbeat")).problem == (409, "UNKNOWN_MEMBER_ID", None)

    with_web(story)


def test_reading_an_iterator_at_the_log_end_waits_for_a_message() -> None:
    async def story(web: Web) -> None:
        await filled(web, 1)
        batch = await read(web, await iterator(web, 1))
        assert values(await read(web, batch["next"], wait=0)) == []
        waiting = asyncio.create_task(read(web, batch["next"], wait=20))
        await asyncio.sleep(1)
        await web.ask("POST", "/events", {"topic": "orders", "value": "next"})
        assert values(await waiting) == ["next"]

    with_web(story)


def test_the_server_address_in_an_iterator_is_ignored() -> None:
    async def story(web: Web) -> None:
        await filled(web, 1)
        given = await iterator(web, 1)
        named = {**given, "host": "elsewhere.invalid", "port": 1}
        batch = await read(web, named)
        assert values(batch) == ["0"]
        assert (batch["next"]["host"], batch["next"]["port"]) == ("elsewhere.invalid", 1)
        bare = {name: given[name] for name in ("topic", "partition", "token")}
        assert values(await read(web, bare)) == ["0"]

    with_web(story)


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/v1/iterators/read", {"token": "AAAA"}, (422, "INVALID_ITERATOR", "iterator")),
        ("/v1/iterators/read", {"token": "!"}, (422, "INVALID_REQUEST", "iterator.token")),
        ("/v1/iterators/read", {"token": ""}, (422, "INVALID_REQUEST", "iterator.token")),
        ("/v1/iterators/read", {"token": "AAAA", "topic": "none"}, (404, "UNKNOWN_TOPIC_OR_PARTITION", None)),
        (f"{CONSUMER}/commit", {"token": "AAAA"}, (422, "INVALID_REQUEST", "count")),
    ],
)
def test_an_invalid_iterator_is_refused_with_code_and_field(
    path: str, body: dict[str, Any], problem: tuple[int, str, str | None]
) -> None:
    async def story(web: Web) -> None:
        await filled(web, 1)
        given = {"topic": "orders", "partition": 0, **body}
        assert (await web.ask("POST", path, {"iterator": given})).problem == problem

    with_web(story)


def test_a_forged_iterator_cannot_be_delivered_or_committed() -> None:
    async def story(web: Web) -> None:
        await filled(web, 1)
        given = {**await iterator(web, 1), "token": "Zm9yZ2Vk"}
        for call in ("deliver", "commit"):
            answer = await web.ask("POST", f"{CONSUMER}/{call}", {"iterator": given, "count": 1})
            assert answer.problem == (422, "INVALID_ITERATOR", "iterator")

    with_web(story)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"in_flight_ms": "soon"}, (422, "INVALID_SETTING", "in_flight_ms")),
        ({"in_flight_ms": "0s"}, (422, "INVALID_REQUEST", "in_flight_ms")),
        ({"start": "middle"}, (422, "INVALID_SETTING", "start")),
    ],
)
def test_an_invalid_iterator_request_names_the_field(wrong: dict[str, Any], expected: tuple[int, str, str]) -> None:
    async def story(web: Web) -> None:
        await filled(web, 1)
        await web.ask("PUT", CONSUMER)
        answer = await web.ask("POST", f"{CONSUMER}/iterators", {"topic": "orders", **wrong})
        assert answer.problem == expected

    with_web(story)
