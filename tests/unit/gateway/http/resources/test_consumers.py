"""Tests group consumers over HTTP: a request needs only the names of group and consumer to continue."""

import asyncio
from typing import Any
from urllib.parse import urlencode

import pytest

from builders.authorization.rights import Rights
from builders.gateways.web import Web, with_web
from millstream.model.rights import Right

POLL = "/events?topic=t&group=g&consumer=a&wait=5"


async def put(web: Web, *values: str) -> None:
    answer = await web.ask("POST", "/events", {"topic": "t", "events": [{"value": value} for value in values]})
    assert answer.status == 200


def values(answer: Any) -> list[str]:
    assert answer.status == 200, answer.body
    return [event["value"] for event in answer.json["events"]]


def test_a_delivery_is_repeated_until_it_is_committed() -> None:
    async def story(web: Web) -> None:
        await put(web, *"abc")
        first = await web.ask("GET", POLL + "&max_messages=2")
        assert values(first) == ["a", "b"]
        assert "next" not in first.json
        assert values(await web.ask("GET", POLL + "&max_messages=2")) == ["a", "b"]
        committed = await web.ask("POST", "/offset", {"group": "g", "consumer": "a"})
        assert committed.json["offsets"] == [{"topic": "t", "partition": 0, "offset": 2}]
        assert values(await web.ask("GET", POLL)) == ["c"]
        again = await web.ask("POST", "/offset", {"group": "g", "consumer": "a"})
        assert again.json["offsets"] == [{"topic": "t", "partition": 0, "offset": 3}]
        assert (await web.ask("POST", "/offset", {"group": "g", "consumer": "a"})).json["offsets"] == []

    with_web(story)


def test_a_poll_with_auto_commit_commits_the_previous_delivery() -> None:
    async def story(web: Web) -> None:
        await put(web, *"abc")
        found = []
        for _ in range(3):
            found += values(await web.ask("GET", POLL + "&max_messages=1&auto_commit=true"))
        assert found == ["a", "b", "c"]

    with_web(story)


def test_a_group_poll_reports_assigned_partitions_and_lag() -> None:
    async def story(web: Web) -> None:
        await put(web, *"abc")
        first = await web.ask("GET", POLL + "&max_messages=2")
        assert first.json["assigned"] == [{"partition": 0, "lag": 1}]
        lines = await web.ask("GET", POLL + "&max_messages=2", accept="application/x-ndjson")
        assert lines.headers["millstream-assigned"] == "0:1"
        without = await web.ask("GET", POLL.replace("consumer=a", "consumer=b"))
        assert (values(without), without.json["assigned"]) == ([], [])
        assert "assigned" not in (await web.ask("GET", "/events?topic=t")).json

    with_web(story)


def test_a_group_poll_that_ends_because_the_gateway_drains_reports_no_assignment() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        assert values(await web.ask("GET", POLL + "&auto_commit=true")) == ["a"]
        waiting = asyncio.ensure_future(web.ask("GET", POLL.replace("wait=5", "wait=60") + "&auto_commit=true"))
        await asyncio.sleep(1)
        web.site.draining.begin()
        assert (await waiting).json == {"topic": "t", "events": []}

    with_web(story)


def test_a_leaving_consumers_uncommitted_messages_go_to_others() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        assert values(await web.ask("GET", POLL)) == ["a"]
        in_flight = await web.ask("GET", "/v1/groups/g/iterators")
        assert [(row["consumer"], row["delivered"]) for row in in_flight.json["iterators"]] == [("a", 1)]
        assert (await web.ask("DELETE", "/v1/groups/g/consumers/a")).status == 204
        assert values(await web.ask("GET", POLL.replace("consumer=a", "consumer=b"))) == ["a"]

    with_web(story)


def test_a_consumer_that_is_no_member_cannot_commit_or_leave() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        await web.ask("GET", POLL)
        stranger = {"group": "g", "consumer": "stranger"}
        refused = await web.ask("POST", "/offset", stranger)
        assert refused.problem == (409, "UNKNOWN_MEMBER_ID", None)
        assert refused.json["detail"].endswith("poll with GET /events first")
        gone = await web.ask("DELETE", "/v1/groups/g/consumers/stranger")
        assert gone.problem == (409, "UNKNOWN_MEMBER_ID", None)
        assert (await web.ask("POST", "/offset", {"consumer": "a"})).problem == (422, "INVALID_REQUEST", "group")

    with_web(story)


@pytest.mark.parametrize("consumer_id", [17, "17", "worker a"])
def test_a_consumer_id_without_a_group_reads_in_its_own_group(consumer_id: int | str) -> None:
    async def story(web: Web) -> None:
        await put(web, *"ab")
        parameters = {"topic": "t", "consumer_id": consumer_id, "wait": 5}
        assert values(await web.ask("GET", "/events", parameters)) == ["a", "b"]
        assert values(await web.ask("GET", "/events?" + urlencode(parameters))) == ["a", "b"]
        committed = await web.ask("POST", "/offset", {"consumer_id": consumer_id})
        assert committed.json == {
            "group": f"consumer-{consumer_id}",
            "consumer": str(consumer_id),
            "offsets": [{"topic": "t", "partition": 0, "offset": 2}],
        }
        await put(web, "c")
        assert values(await web.ask("GET", "/events", parameters)) == ["c"]

    with_web(story)


def test_a_consumer_id_names_the_consumer_in_a_given_group() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        assert values(await web.ask("GET", "/events?topic=t&group=g&consumer_id=17")) == ["a"]
        assert values(await web.ask("GET", POLL.replace("consumer=a", "consumer=17"))) == ["a"]
        committed = await web.ask("POST", "/offset", {"group": "g", "consumer_id": 17})
        assert (committed.json["group"], committed.json["consumer"]) == ("g", "17")

    with_web(story)


@pytest.mark.parametrize(
    ("names", "field"),
    [
        ({"consumer": "a", "consumer_id": "a"}, "consumer_id"),
        ({"group": "g", "consumer": "a", "consumer_id": 1}, "consumer_id"),
        ({"consumer_id": ""}, "consumer_id"),
        ({"consumer_id": True}, "consumer_id"),
        ({"consumer_id": 1.5}, "consumer_id"),
        ({"consumer": "a"}, "group"),
        ({"group": "g"}, "consumer"),
    ],
)
def test_contradictory_consumer_names_are_refused(names: dict[str, Any], field: str) -> None:
    async def story(web: Web) -> None:
        for answer in (
            await web.ask("GET", "/events", {"topic": "t", **names}),
            await web.ask("POST", "/offset", names),
        ):
            assert answer.problem == (422, "INVALID_REQUEST", field)
            if field == "consumer_id" and "consumer" in names:
                assert "`consumer` and `consumer_id`" in answer.json["detail"]

    with_web(story)


def test_the_right_is_checked_on_the_group_of_a_consumer_id() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        web.site.authorizer = Rights(lambda right, resource: resource != "consumer-17")
        for answer in (
            await web.ask("GET", "/events?topic=t&consumer_id=17"),
            await web.ask("GET", "/events", {"topic": "t", "consumer_id": 17}),
            await web.ask("POST", "/offset", {"consumer_id": 17}),
        ):
            assert answer.problem == (403, "GROUP_AUTHORIZATION_FAILED", None)
        assert values(await web.ask("GET", "/events?topic=t&consumer_id=18")) == ["a"]

    with_web(story)


def test_a_group_poll_refuses_partition_offset_and_follow() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        assert (await web.ask("GET", POLL + "&partition=0")).problem == (422, "INVALID_REQUEST", "partition")
        assert (await web.ask("GET", POLL + "&offset=12")).problem == (422, "INVALID_SETTING", "offset")
        tail = await web.ask("GET", POLL, accept="text/event-stream")
        assert tail.problem == (422, "INVALID_REQUEST", "follow")

    with_web(story)


def test_a_group_poll_needs_the_right_groups_write() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        web.site.authorizer = Rights(lambda right, resource: right is Right.MESSAGES_READ)
        assert values(await web.ask("GET", "/events?topic=t&offset=0")) == ["a"]
        refused = await web.ask("GET", POLL)
        assert refused.problem == (403, "GROUP_AUTHORIZATION_FAILED", None)
        assert refused.json["detail"] == "ANONYMOUS@127.0.0.1 does not have the right groups:write on 'g'"

    with_web(story)
