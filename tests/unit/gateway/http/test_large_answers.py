"""Tests that reads over HTTP stay within the gateway's memory budget, however much stored batches unpack to."""

import json
import tracemalloc
from typing import Any

import pytest

from builders.gateways.web import Answered, Web, with_web
from millstream.gateway.budget import Budget
from millstream.gateway.http.resources.event_json import json_size, shown
from millstream.gateway.http.responses import encode
from millstream.records.batch import encode_batch
from millstream.records.message import Message

MIB = 1024 * 1024
BUDGET_BYTES = 32 * MIB
ANSWER_BYTES = BUDGET_BYTES // 4
WRITTEN_MS = 1_700_000_000_000
READ = "/events?topic=t&partition=0&wait=0"
JOIN = "/events?topic=t&group=g&consumer=a&wait=30"


class PeakBudget(Budget):
    """A budget that records its peak."""

    def __init__(self) -> None:
        super().__init__(BUDGET_BYTES)
        self.peak_bytes = 0

    def take(self, size_bytes: int, *, own_bytes: int = 0, is_refusable: bool = True) -> None:
        super().take(size_bytes, own_bytes=own_bytes, is_refusable=is_refusable)
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)


def zeros(size_bytes: int, count: int = 1, compression: str = "zstd") -> bytes:
    return bytes(encode_batch([bytes(size_bytes)] * count, timestamps=WRITTEN_MS, compression=compression))


def check_too_large(answer: Answered, offset: int, status: int = 422) -> None:
    assert answer.problem[:2] == (status, "RESPONSE_TOO_LARGE")
    found = answer.json
    assert (found["topic"], found["partition"], found["offset"]) == ("t", 0, offset)
    assert found["next_offset"] == offset + 1
    assert not found["retriable"]
    assert "`millstream get`" in found["detail"]


def checked(budget: PeakBudget) -> None:
    assert budget.held_bytes == 0
    assert budget.peak_bytes <= BUDGET_BYTES


@pytest.mark.parametrize(
    ("target", "size_bytes"),
    [
        *((target, size_bytes) for target in (READ, JOIN) for size_bytes in (3 * MIB, 24 * MIB, 120 * MIB)),
        (READ + "&format=base64", 24 * MIB),
    ],
)
def test_a_message_that_is_too_large_for_json_is_named_within_the_budget(target: str, size_bytes: int) -> None:
    budget = PeakBudget()
    bomb = zeros(size_bytes)

    async def story(web: Web) -> None:
        await web.produce("t", zeros(10), bomb, zeros(11))
        tracemalloc.start()
        try:
            first = await web.ask("GET", target)
            assert [event["offset"] for event in first.json["events"]] == [0]
            if target == JOIN:
                await web.ask("POST", "/offset", {"group": "g", "consumer": "a"})
                check_too_large(await web.ask("GET", target), 1)
            else:
                check_too_large(await web.ask("GET", target + f"&offset={first.json['next']}"), 1)
                after = await web.ask("GET", target + "&offset=2")
                assert [event["offset"] for event in after.json["events"]] == [2]
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes <= BUDGET_BYTES

    with_web(story, budget=budget)
    checked(budget)


def test_messages_that_do_not_fit_into_one_response_follow_in_the_next() -> None:
    budget = PeakBudget()

    async def story(web: Web) -> None:
        await web.produce("t", *[zeros(MIB // 2)] * 4)  # Each takes 3 MiB as JSON.
        offset, found = "0", list[int]()
        while len(found) < 4:
            answer = await web.ask("GET", f"{READ}&max_bytes=16MiB&offset={offset}")
            assert len(answer.body) <= ANSWER_BYTES
            events = answer.json["events"]
            assert events
            found += [event["offset"] for event in events]
            offset = answer.json["next"]
        assert found == [0, 1, 2, 3]

    with_web(story, budget=budget)
    checked(budget)


def test_a_group_gets_messages_that_do_not_fit_with_the_next_delivery() -> None:
    budget = PeakBudget()

    async def story(web: Web) -> None:
        await web.produce("t", *[zeros(MIB // 2)] * 4)
        found: list[int] = []
        while len(found) < 4:
            answer = await web.ask("GET", JOIN + "&max_bytes=16MiB")
            again = await web.ask("GET", JOIN + "&max_bytes=16MiB")
            assert again.json["events"] == answer.json["events"]
            found += [event["offset"] for event in answer.json["events"]]
            await web.ask("POST", "/offset", {"group": "g", "consumer": "a"})
        assert found == [0, 1, 2, 3]

    with_web(story, budget=budget)
    checked(budget)


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/event-stream"])
def test_a_live_tail_ends_with_the_error_of_a_message_that_is_too_large(accept: str) -> None:
    budget = PeakBudget()

    async def story(web: Web) -> None:
        await web.produce("t", zeros(10), zeros(24 * MIB))
        answer = await web.ask("GET", "/events?topic=t&offset=beginning&follow=true", accept=accept)
        lines = [line.removeprefix(b"data: ") for line in answer.body.split(b"\n") if b"{" in line]
        first, last = json.loads(lines[0]), json.loads(lines[-1])
        error = last.get("error", last)
        assert first["offset"] == 0
        assert (error["code"], error["offset"], error["next_offset"]) == ("RESPONSE_TOO_LARGE", 1, 2)

    with_web(story, budget=budget)
    checked(budget)


def test_an_iterator_ends_before_a_message_that_is_too_large() -> None:
    budget = PeakBudget()

    async def story(web: Web) -> None:
        await web.produce("t", zeros(10), zeros(24 * MIB))
        names = "/v1/groups/g/consumers/a"
        await web.ask("PUT", names)
        given = await web.ask("POST", names + "/iterators", {"topic": "t"})
        while given.status != 200:
            await web.ask("POST", names + "/heartbeat")
            given = await web.ask("POST", names + "/iterators", {"topic": "t"})
        found = await web.ask("POST", "/v1/iterators/read", {"iterator": given.json, "wait": 0})
        assert [event["offset"] for event in found.json["events"]] == [0]
        assert (found.json["end_offset"], found.json["next"]) == (1, None)
        done = await web.ask("POST", names + "/commit", {"iterator": found.json["iterator"], "count": 1})
        check_too_large(await web.ask("POST", "/v1/iterators/read", {"iterator": done.json["next"], "wait": 0}), 1)

    with_web(story, budget=budget)
    checked(budget)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"plain",
        bytes(100),
        bytes(range(256)),
        b'"\\\n\x7f' * 20,
        "äöü€😀".encode() * 9,
        b"\xff" * 50,
        b'{"a": [1]}',
    ],
)
@pytest.mark.parametrize("form", ["auto", "text", "json", "base64"])
def test_the_computed_size_of_an_event_is_not_exceeded(value: bytes, form: Any) -> None:
    message = Message("t", 2**31 - 1, 2**63 - 1, 2**53, value, value, ((value.decode("latin-1"), value),), (1, 2, 3, 4))
    assert len(encode(shown(message, form))) <= json_size(message, form)
