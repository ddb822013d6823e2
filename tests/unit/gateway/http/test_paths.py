"""Tests names with any character in paths, and unknown paths."""

from urllib.parse import quote

import pytest

from builders.gateways.web import Web, with_web


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", "größe", "a b?c#d", "..", "x/offsets"])
def test_a_group_name_in_a_path_may_have_any_character(name: str) -> None:
    async def story(web: Web) -> None:
        asked = {"topic": "t", "group": name, "consumer": name, "wait": 0}
        assert (await web.ask("POST", "/events", {"topic": "t", "value": "a"})).status == 200
        assert (await web.ask("GET", "/events", asked)).status == 200
        there = f"/v1/groups/{quote(name, safe='')}"
        assert (await web.ask("GET", there)).json["group"] == name
        assert (await web.ask("DELETE", f"{there}/consumers/{quote(name, safe='')}")).status == 204
        assert (await web.ask("DELETE", there)).status == 204

    with_web(story)


@pytest.mark.parametrize("target", ["/nothing", "/events/", "/v1/topics/", "/v1/topics//settings"])
def test_an_unknown_path_is_a_problem(target: str) -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("GET", target)
        assert (answer.status, answer.json["code"][-9:]) == (404, "NOT_FOUND")

    with_web(story)


def test_the_root_redirects_to_the_documentation() -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("GET", "/")
        assert (answer.status, answer.headers["location"]) == (307, "/docs")
        assert (await web.ask("GET", answer.headers["location"])).status == 200

    with_web(story)
