"""Consumers of a real broker get partitions from each other although regular heartbeats are rare."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

import millstream
from builders.sdk.message_values import values_of
from millstream.testing.real_broker import RealBroker

TOPIC = GROUP = "handed-over"
RARE_HEARTBEATS = ("--consumer-heartbeat-interval-ms", "20m", "--consumer-session-timeout-ms", "1h")
"""No test takes so long: a hand-over that waits for a regular heartbeat fails."""

MESSAGES = 600


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealBroker]:
    with RealBroker(tmp_path / "data", extra_args=RARE_HEARTBEATS) as broker:
        yield broker


def settle(consumers: Sequence[millstream.Consumer]) -> list[bytes]:
    """Polls all consumers in turn until they share the partitions evenly. Returns what they read meanwhile."""
    values: list[bytes] = []
    while sorted(len(each.assignment) for each in consumers) != [6 // len(consumers)] * len(consumers):
        for consumer in consumers:
            values += values_of(consumer.poll(timeout=0.05))
    return values


@pytest.mark.timeout(180)
def test_three_consumers_hand_over_without_regular_heartbeats(broker: RealBroker) -> None:
    written = [b"%d" % number for number in range(MESSAGES)]
    with ExitStack() as stack:
        clients = [stack.enter_context(millstream.connect(broker.bootstrap)) for _ in range(3)]
        clients[0].create_topic(TOPIC, partitions=6)
        with clients[0].producer() as producer:
            producer.put_many(TOPIC, written)
        consumers: list[millstream.Consumer] = []
        values: list[bytes] = []
        for client in clients:
            consumer = client.consumer(TOPIC, group=GROUP, start="beginning")
            consumers.append(stack.enter_context(consumer))
            consumer.start()
            values += settle(consumers)
        while len(consumers) > 1:
            consumers.pop(0).close()
            values += settle(consumers)
        while len(values) < MESSAGES:
            values += values_of(consumers[0].poll(timeout=0.05))
    assert sorted(values) == sorted(written)
