"""Paths: names in them may have any character, and what is not there is a problem."""

from urllib.parse import quote

import pytest

from builders.gateways.web import Web, with_web


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", "größe", "a b?c#d", "..", "x/offsets"])
def test_a_group_of_any_name_can_be_asked_for_and_left(name: str) -> None:
    async def story(web: Web) -> None:
        asked = {"topic": "t", "group": name, "consumer": name, "wait": 0}
        assert (await web.ask("POST", "/events", {"topic": "t", "value": "a"})).status == 200
        assert (await web.ask("GET", "/events", asked)).status == 200
        there = f"/v1/groups/{quote(name, safe='')}"
        assert (await web.ask("GET", there)).json["group"] == name
        assert (await web.ask("DELETE", f"{there}/consumers/{quote(name, safe='')}")).status == 204
        assert (await web.ask("DELETE", there)).status == 204

    with_web(story)


@pytest.mark.parametrize("target", ["/", "/nothing", "/events/", "/v1/topics/", "/v1/topics//settings"])
def test_what_is_not_there_is_a_problem(target: str) -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("GET", target)
        assert (answer.status, answer.json["code"][-9:]) == (404, "NOT_FOUND")

    with_web(story)
