"""Tests that reads over HTTP return what precedes a batch that cannot be decoded, and then report or skip the batch."""

import json

import pytest

from builders.gateways.web import Answered, Web, with_web
from builders.sdk.bad_batches import COUNT, KINDS, bad_batch
from millstream.records.batch import encode_batch

BAD = 2
"""The offset of the bad batch."""

FOLLOWING = BAD + COUNT
READ = "/events?topic=t&partition=0&wait=0"
POLL = "/events?topic=t&group=g&consumer=a&wait=30"
COMMIT = {"group": "g", "consumer": "a"}


async def write(web: Web, kind: str = "inner") -> None:
    """Write two messages, a bad batch, and one more message."""
    two, one = (bytes(encode_batch([b"x"] * count, timestamps=1_700_000_000_000)) for count in (2, 1))
    await web.produce("t", two, bad_batch(kind), one)


def offsets(answer: Answered) -> list[int]:
    assert answer.status == 200, answer.body
    return [event["offset"] for event in answer.json["events"]]


def check(answer: Answered) -> None:
    assert answer.problem[:2] == (500, "UNDECODABLE_BATCH")
    found = answer.json
    assert (found["topic"], found["partition"], found["offset"], found["next_offset"]) == ("t", 0, BAD, FOLLOWING)
    assert not found["retriable"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_reports_a_bad_batch_and_continues_at_its_next_offset(kind: str) -> None:
    async def story(web: Web) -> None:
        await write(web, kind)
        first = await web.ask("GET", READ)
        assert offsets(first) == [0, 1]
        bad = await web.ask("GET", f"{READ}&offset={first.json['next']}")
        check(bad)
        assert offsets(await web.ask("GET", f"{READ}&offset={bad.json['next_offset']}")) == [FOLLOWING]
        assert offsets(await web.ask("GET", READ + "&on_bad_batch=skip")) == [0, 1, FOLLOWING]

    with_web(story)


def test_a_group_reports_a_bad_batch_until_it_is_skipped() -> None:
    async def story(web: Web) -> None:
        await write(web)
        assert offsets(await web.ask("GET", POLL)) == [0, 1]
        await web.ask("POST", "/offset", COMMIT)
        for _ in range(2):
            check(await web.ask("GET", POLL))
        assert offsets(await web.ask("GET", POLL + "&on_bad_batch=skip")) == [FOLLOWING]
        committed = await web.ask("POST", "/offset", COMMIT)
        assert [row["offset"] for row in committed.json["offsets"]] == [FOLLOWING + 1]

    with_web(story)


def test_a_new_group_can_skip_a_bad_batch_at_its_start() -> None:
    async def story(web: Web) -> None:
        await web.produce("t", bad_batch(), bytes(encode_batch([b"x"], timestamps=1_700_000_000_000)))
        assert (await web.ask("GET", POLL)).problem[1] == "UNDECODABLE_BATCH"
        assert offsets(await web.ask("GET", POLL + "&on_bad_batch=skip")) == [COUNT]

    with_web(story)


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/event-stream"])
def test_a_live_tail_ends_with_a_bad_batch(accept: str) -> None:
    async def story(web: Web) -> None:
        await write(web)
        answer = await web.ask("GET", "/events?topic=t&offset=beginning&follow=true", accept=accept)
        rows = [json.loads(line.removeprefix(b"data: ")) for line in answer.body.split(b"\n") if b"{" in line]
        error = rows[-1].get("error", rows[-1])
        assert [row["offset"] for row in rows[:-1]] == [0, 1]
        assert (error["code"], error["offset"], error["next_offset"]) == ("UNDECODABLE_BATCH", BAD, FOLLOWING)

    with_web(story)


def test_an_unknown_reaction_to_bad_batches_is_refused() -> None:
    async def story(web: Web) -> None:
        answer = await web.ask("GET", READ + "&on_bad_batch=ignore")
        assert answer.problem == (422, "INVALID_REQUEST", "on_bad_batch")

    with_web(story)
