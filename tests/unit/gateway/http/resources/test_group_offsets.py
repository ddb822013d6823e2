"""Tests resets of group offsets over HTTP: to an offset or a time, in all partitions or some."""

from typing import Any

import pytest

from builders.gateways.web import Web, with_web

OFFSETS = "/v1/groups/g/offsets"


async def fill(web: Web) -> None:
    """Create a topic of two partitions; the first has messages with the timestamps 1,000, 2,000 and 3,000."""
    assert (await web.ask("POST", "/topic", {"name": "t", "partitions": 2})).status == 201
    events = [{"value": "x", "partition": 0, "timestamp": time} for time in (1_000, 2_000, 3_000)]
    assert (await web.ask("POST", "/events", {"topic": "t", "events": events})).status == 200


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"offset": "beginning"}, {"0": 0, "1": 0}),
        ({"offset": "latest"}, {"0": 3, "1": 0}),
        ({"offset": 2}, {"0": 2, "1": 0}),
        ({"offset": "99"}, {"0": 3, "1": 0}),
        ({"offset": "0:1"}, {"0": 1}),
        ({"offset": "latest", "partitions": [0]}, {"0": 3}),
        ({"time": 1_500}, {"0": 1, "1": 0}),
        ({"time": "1970-01-01T00:00:03Z", "partitions": [0]}, {"0": 2}),
        ({"time": 9_000}, {"0": 3, "1": 0}),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_a_reset_moves_the_committed_offsets_unless_it_only_validates(
    target: dict[str, Any], expected: dict[str, int], validate_only: bool
) -> None:
    async def story(web: Web) -> None:
        await fill(web)
        answer = await web.ask("POST", OFFSETS, {"topic": "t", "validate_only": validate_only, **target})
        assert answer.json == {"group": "g", "topic": "t", "offsets": expected}
        kept = (await web.ask("GET", OFFSETS)).json["offsets"]
        assert {str(row["partition"]): row["offset"] for row in kept} == ({} if validate_only else expected)

    with_web(story)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({}, (422, "INVALID_REQUEST", "offset")),
        ({"offset": 1, "time": 1}, (422, "INVALID_REQUEST", "offset")),
        ({"offset": "somewhere"}, (422, "INVALID_SETTING", "offset")),
        ({"time": "soon"}, (422, "INVALID_SETTING", "time")),
        ({"time": 1_738_324_800}, (422, "INVALID_SETTING", "time")),
        ({"offset": 1, "partitions": [2]}, (404, "UNKNOWN_TOPIC_OR_PARTITION", None)),
        ({"offset": "0:1,7:1"}, (404, "UNKNOWN_TOPIC_OR_PARTITION", None)),
        ({"offset": 1, "topic": "none"}, (404, "UNKNOWN_TOPIC_OR_PARTITION", None)),
    ],
)
def test_an_invalid_reset_is_refused_and_changes_nothing(
    target: dict[str, Any], expected: tuple[int, str, str | None]
) -> None:
    async def story(web: Web) -> None:
        await fill(web)
        answer = await web.ask("POST", OFFSETS, {"topic": "t", **target})
        assert answer.problem == expected, answer.body
        assert (await web.ask("GET", OFFSETS)).json["offsets"] == []

    with_web(story)


def test_a_reset_is_refused_while_the_group_has_members() -> None:
    async def story(web: Web) -> None:
        await fill(web)
        assert (await web.ask("GET", "/events?topic=t&group=g&consumer=a&wait=0")).status == 200
        answer = await web.ask("POST", OFFSETS, {"topic": "t", "offset": "latest"})
        assert answer.problem == (409, "NON_EMPTY_GROUP", None)
        assert "group 'g' has 1 active member: " in answer.json["detail"]
        assert "stop its consumers" in answer.json["detail"]

    with_web(story)
