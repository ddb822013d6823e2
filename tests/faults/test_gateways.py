"""Kills gateways during posts, and kills or pauses their broker.

A retry with the same idempotency key, at any gateway, must return the offset of each event. No event may be stored
twice.
"""

import http.client
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from builders.gateways.processes import Answer, RealGateway, ask, gateway
from faults.load import create_topic, final_logs
from faults.rounds import ROUNDS, SEED
from millstream.testing.real_broker import RealBroker

TOPIC = "once"
KILLS = 3
WRITERS = 4


def post(running: RealGateway, key: str, count: int) -> Answer:
    """Post one event or several under an idempotency key; OSError or HTTPException without a response."""
    events = [{"value": f"{key} {number}"} for number in range(count)]
    body = {"topic": TOPIC, **(events[0] if count == 1 else {"events": events})}
    return ask(f"{running.url}/events", body, headers={"Idempotency-Key": key})


def places(key: str, count: int, answer: Answer) -> dict[str, int]:
    """Return the offsets in the response, by value."""
    assert answer.status == 200, answer.body
    rows = [answer.json] if count == 1 else answer.json["events"]
    return {f"{key} {number}": row["offset"] for number, row in enumerate(rows)}


class Writer(threading.Thread):
    """Posts one request after the other to the running gateway, and does not retry unanswered ones."""

    def __init__(self, number: int, first: RealGateway) -> None:
        super().__init__(daemon=True)
        self.running = first
        self.told: dict[str, int] = {}
        self.in_doubt: list[tuple[str, int]] = []
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._number = number

    def run(self) -> None:
        turn = 0
        try:
            while not self.stopping.is_set():
                turn += 1
                self._post(f"{self._number}-{turn}", 1 if turn % 2 else 5)
        except BaseException as failure:
            self.failure = failure

    def _post(self, key: str, count: int) -> None:
        try:
            answer = post(self.running, key, count)
        except (OSError, http.client.HTTPException):
            self.in_doubt.append((key, count))
            time.sleep(0.1)
            return
        self.told |= places(key, count, answer)


def let_it_work(writer: Writer, count: int) -> None:
    """Wait until `count` more events are acknowledged; the test's timeout limits the wait."""
    wanted = len(writer.told) + count
    while len(writer.told) < wanted and writer.is_alive():
        time.sleep(0.005)


def until_stored(running: RealGateway, key: str, count: int) -> Answer:
    """Post until a response has the offsets."""
    while (answer := post(running, key, count)).status != 200:
        time.sleep(0.01)
    return answer


@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_a_retry_by_key_returns_the_outcome_after_a_killed_gateway(tmp_path: Path, round_number: int) -> None:
    random = Random(f"{SEED} {round_number} gateways")
    with RealBroker(tmp_path / "data") as broker:
        partitions = create_topic(broker.bootstrap, TOPIC, 1)
        writers: list[Writer] = []
        for _ in range(KILLS):
            with gateway(broker.bootstrap) as running:
                for writer in writers:
                    writer.running = running
                if not writers:
                    writers = [Writer(number, running) for number in range(WRITERS)]
                    for writer in writers:
                        writer.start()
                let_it_work(writers[0], random.randrange(20, 80))
                running.process.send_signal(signal.SIGKILL)
                running.process.wait()
        for writer in writers:
            writer.stopping.set()
            writer.join(60)
            assert writer.failure is None
        told = {value: offset for writer in writers for value, offset in writer.told.items()}
        in_doubt = [each for writer in writers for each in writer.in_doubt]
        assert in_doubt, "some posts were in flight when a gateway was killed"
        with gateway(broker.bootstrap) as first, gateway(broker.bootstrap) as second:
            found = dict[str, int]()
            for key, count in in_doubt:
                found |= places(key, count, post(first, key, count))
                assert places(key, count, post(second, key, count)).items() <= found.items(), (
                    "all gateways return the same offsets"
                )
        (log,) = final_logs(broker.bootstrap, partitions).values()
        stored = {value.decode(): offset for offset, value in log.records}
        assert len(stored) == len(log.records), "no event is stored twice"
        assert stored == told | found


@pytest.mark.parametrize(
    ("away", "back"),
    [
        (RealBroker.kill, RealBroker.start),
        (lambda broker: broker.signal(signal.SIGSTOP), lambda broker: broker.signal(signal.SIGCONT)),
    ],
    ids=["killed", "held"],
)
def test_a_gateway_reports_a_down_broker_and_stores_retried_posts_once(
    tmp_path: Path, away: Callable[[RealBroker], object], back: Callable[[RealBroker], object]
) -> None:
    with (
        RealBroker(tmp_path / "data") as broker,
        gateway(broker.bootstrap, "--request-timeout-ms", "500ms") as running,
    ):
        partitions = create_topic(broker.bootstrap, TOPIC, 1)
        stored = places("before", 1, post(running, "before", 1))
        for number in range(2):
            away(broker)
            key = f"away-{number}"
            refused = [
                post(running, key, 5),
                ask(f"{running.url}/events?topic={TOPIC}&offset=0&wait=0"),
                ask(f"{running.url}/events?topic={TOPIC}&wait=1&group=g&consumer=c"),
                ask(f"{running.url}/v1/topics"),
            ]
            for answer in refused:
                assert answer.status in (503, 504), answer.body
                assert answer.json["code"] in ("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT")
                assert (answer.json["retriable"], answer.headers["retry-after"]) == (True, "1")
            back(broker)
            stored |= places(key, 5, until_stored(running, key, 5))
            assert ask(f"{running.url}/v1/topics").status == 200
        (log,) = final_logs(broker.bootstrap, partitions).values()
        assert {value.decode(): offset for offset, value in log.records} == stored
        assert len(log.records) == len(stored)
