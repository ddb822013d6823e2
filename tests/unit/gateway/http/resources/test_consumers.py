"""Consumers over HTTP: a group and a name are all that a request needs to go on where the last one was."""

from typing import Any

from builders.gateways.web import Web, with_web
from millstream.gateway.rights import Caller, Right
from millstream.model.errors import ErrorCode, MillstreamError

POLL = "/events?topic=t&group=g&consumer=a&wait=5"


async def put(web: Web, *values: str) -> None:
    answer = await web.ask("POST", "/events", {"topic": "t", "events": [{"value": value} for value in values]})
    assert answer.status == 200


def values(answer: Any) -> list[str]:
    assert answer.status == 200, answer.body
    return [event["value"] for event in answer.json["events"]]


def test_what_was_handed_out_comes_again_until_it_is_committed() -> None:
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


def test_a_poll_can_commit_what_came_before_it() -> None:
    async def story(web: Web) -> None:
        await put(web, *"abc")
        found = []
        for _ in range(3):
            found += values(await web.ask("GET", POLL + "&max_messages=1&auto_commit=true"))
        assert found == ["a", "b", "c"]

    with_web(story)


def test_a_consumer_that_leaves_gives_what_it_had_to_the_others() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        assert values(await web.ask("GET", POLL)) == ["a"]
        in_flight = await web.ask("GET", "/v1/groups/g/iterators")
        assert [(row["consumer"], row["handed"]) for row in in_flight.json["iterators"]] == [("a", 1)]
        assert (await web.ask("DELETE", "/v1/groups/g/consumers/a")).status == 204
        assert values(await web.ask("GET", POLL.replace("consumer=a", "consumer=b"))) == ["a"]

    with_web(story)


def test_who_is_not_in_the_group_can_neither_commit_nor_leave() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        await web.ask("GET", POLL)
        stranger = {"group": "g", "consumer": "stranger"}
        assert (await web.ask("POST", "/offset", stranger)).problem == (409, "UNKNOWN_MEMBER_ID", None)
        gone = await web.ask("DELETE", "/v1/groups/g/consumers/stranger")
        assert gone.problem == (409, "UNKNOWN_MEMBER_ID", None)
        assert (await web.ask("POST", "/offset", {"consumer": "a"})).problem == (422, "INVALID_REQUEST", "group")

    with_web(story)


def test_a_group_decides_itself_what_is_read() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        assert (await web.ask("GET", POLL + "&partition=0")).problem == (422, "INVALID_REQUEST", "partition")
        assert (await web.ask("GET", POLL + "&offset=12")).problem == (422, "INVALID_REQUEST", "offset")
        tail = await web.ask("GET", POLL, accept="text/event-stream")
        assert tail.problem == (422, "INVALID_REQUEST", "follow")

    with_web(story)


class OnlyReaders:
    """A guard that lets messages be read, and nothing be changed."""

    def check(self, caller: Caller, right: Right, cluster: str, resource: str) -> None:
        if right is not Right.MESSAGES_READ:
            raise MillstreamError(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"{right.value} on {resource!r} is missing")


def test_who_reads_for_a_group_needs_the_right_to_move_its_place() -> None:
    async def story(web: Web) -> None:
        await put(web, "a")
        web.site.guard = OnlyReaders()
        assert values(await web.ask("GET", "/events?topic=t&offset=0")) == ["a"]
        refused = await web.ask("GET", POLL)
        assert refused.problem == (403, "GROUP_AUTHORIZATION_FAILED", None)
        assert refused.json["detail"] == "groups:write on 'g' is missing"

    with_web(story)
