"""Groups are taken elsewhere over HTTP: to a place or a time, in all partitions or some."""

from typing import Any

import pytest

from builders.gateways.web import Web, with_web

OFFSETS = "/v1/groups/g/offsets"


async def fill(web: Web) -> None:
    """A topic of two partitions: in the first are messages of the times 1,000, 2,000 and 3,000."""
    assert (await web.ask("POST", "/topic", {"name": "t", "partitions": 2})).status == 201
    events = [{"value": "x", "partition": 0, "timestamp": time} for time in (1_000, 2_000, 3_000)]
    assert (await web.ask("POST", "/events", {"topic": "t", "events": events})).status == 200


@pytest.mark.parametrize(
    ("said", "expected"),
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
@pytest.mark.parametrize("is_tried", [False, True])
def test_a_group_goes_on_where_it_was_taken(said: dict[str, Any], expected: dict[str, int], is_tried: bool) -> None:
    async def story(web: Web) -> None:
        await fill(web)
        answer = await web.ask("POST", OFFSETS, {"topic": "t", "validate_only": is_tried, **said})
        assert answer.json == {"group": "g", "topic": "t", "offsets": expected}
        kept = (await web.ask("GET", OFFSETS)).json["offsets"]
        assert {str(row["partition"]): row["offset"] for row in kept} == ({} if is_tried else expected)

    with_web(story)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, (422, "INVALID_REQUEST", "offset")),
        ({"offset": 1, "time": 1}, (422, "INVALID_REQUEST", "offset")),
        ({"offset": "somewhere"}, (422, "INVALID_REQUEST", "offset")),
        ({"time": "soon"}, (422, "INVALID_REQUEST", "time")),
        ({"offset": 1, "partitions": [2]}, (404, "UNKNOWN_TOPIC_OR_PARTITION", None)),
        ({"offset": "0:1,7:1"}, (404, "UNKNOWN_TOPIC_OR_PARTITION", None)),
        ({"offset": 1, "topic": "none"}, (404, "UNKNOWN_TOPIC_OR_PARTITION", None)),
    ],
)
def test_a_group_is_not_taken_where_it_cannot_be(said: dict[str, Any], expected: tuple[int, str, str | None]) -> None:
    async def story(web: Web) -> None:
        await fill(web)
        answer = await web.ask("POST", OFFSETS, {"topic": "t", **said})
        assert answer.problem == expected, answer.body
        assert (await web.ask("GET", OFFSETS)).json["offsets"] == []

    with_web(story)


def test_a_group_with_members_stays_where_it_is() -> None:
    async def story(web: Web) -> None:
        await fill(web)
        assert (await web.ask("GET", "/events?topic=t&group=g&consumer=a&wait=0")).status == 200
        answer = await web.ask("POST", OFFSETS, {"topic": "t", "offset": "latest"})
        assert answer.problem == (409, "UNKNOWN_MEMBER_ID", None)

    with_web(story)
