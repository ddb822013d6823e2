"""Tests topics over HTTP: invalid names are refused."""

import pytest

from builders.gateways.web import Web, with_web


@pytest.mark.parametrize("path", ["/topic", "/v1/topics"])
@pytest.mark.parametrize("name", ["", ".", "a b", "a\0b", "x" * 250])
def test_an_invalid_topic_name_is_refused(path: str, name: str) -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("POST", path, {"name": name})
        assert answer.problem == (422, "INVALID_TOPIC", "name")

    with_web(story)
