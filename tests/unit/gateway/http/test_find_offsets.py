"""Tests GET /v1/topics/{topic}/offsets, which takes the position in the words of other requests."""

import pytest

from builders.gateways.web import Web, with_web

PATH = "/v1/topics/t/offsets"


@pytest.mark.parametrize(
    ("query", "offset"),
    [
        ("", 2),
        ("?at=beginning", 0),
        ("?at=1000", 0),
        ("?at=2500", 2),
        ("?offset=earliest", 0),
        ("?offset=latest", 2),
        ("?time=2000", 1),
        ("?time=1970-01-01T00:00:02Z", 1),
        ("?time=1s", 2),
    ],
)
def test_offsets_are_found_by_at_offset_or_time(query: str, offset: int) -> None:
    async def story(web: Web) -> None:
        events = [{"value": "a", "timestamp": 1000}, {"value": "b", "timestamp": 2000}]
        assert (await web.ask("POST", "/events", {"topic": "t", "events": events})).status == 200
        assert (await web.ask("GET", PATH + query)).json["partitions"] == {"0": offset}

    with_web(story)


@pytest.mark.parametrize(
    ("query", "code", "field", "text"),
    [
        ("?offset=latest&time=1s", "INVALID_REQUEST", "time", "set either offset or time, not both"),
        ("?at=latest&time=1s", "INVALID_REQUEST", "time", "set either at or time, not both"),
        ("?offset=5", "INVALID_SETTING", "offset", "is not an end of the log"),
        ("?time=latest", "INVALID_SETTING", "time", "is not a time"),
        ("?since=1s", "INVALID_REQUEST", "since", "did you mean `time`?"),
        ("?start=latest", "INVALID_REQUEST", "start", "did you mean `offset`?"),
        ("?timestamp=1000", "INVALID_REQUEST", "timestamp", "did you mean `time`?"),
    ],
)
def test_another_position_is_refused_with_its_field(query: str, code: str, field: str, text: str) -> None:
    async def story(web: Web) -> None:
        assert (await web.ask("POST", "/topic", {"name": "t"})).status < 300
        answer = await web.ask("GET", PATH + query)
        assert (answer.problem, text in answer.json["detail"]) == ((422, code, field), True)

    with_web(story)
