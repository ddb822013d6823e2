"""Tests push subscriptions: the broker sends messages within the window, and more after commits."""

from collections.abc import Iterator

import pytest

from interop.wire_alone.batches import stored
from interop.wire_alone.calls import INFO, ROLE, SUBSCRIBE, SUBSCRIPTION_COMMIT, UNSUBSCRIBE
from interop.wire_alone.client import Connection

WINDOW = 10
ROLE_IS_FINAL = 1008


class Subscriber:
    """A subscription of one partition on a connection with the consumer role."""

    def __init__(
        self, connection: Connection, topic: str, *, share_percent: int, group: str | None, offset: int
    ) -> None:
        self.connection = connection
        self.topic = topic
        self.values: list[bytes] = []
        partitions = [{"partition": 0, "offset": offset, "leader_epoch": -1}]
        self.id = connection.send(
            SUBSCRIBE,
            {
                "group_id": group,
                "window_messages": WINDOW,
                "window_bytes": 1 << 20,
                "share_percent": share_percent,
                "otherwise": -2,
                "topics": [{"name": topic, "topic_id": bytes(16), "partitions": partitions}],
            },
        )
        answer = connection.receive(SUBSCRIBE, self.id)
        assert (answer["error_code"], answer["partitions"][0]["error_code"]) == (0, 0)
        self.position = answer["partitions"][0]["position"]

    def receive(self, count: int) -> None:
        """Receive deliveries until there are `count` messages in all."""
        while len(self.values) < count:
            for row in self.connection.receive(SUBSCRIBE, self.id)["partitions"]:
                assert row["error_code"] == 0
                self.values += [each.value for each in stored(row["records"]) if each.offset >= row["position"]]

    def commit(self, offset: int) -> int:
        done = {"partition": 0, "offset": offset, "leader_epoch": -1, "metadata": None}
        answer = self.connection.ask(
            SUBSCRIPTION_COMMIT,
            subscription_id=self.id,
            generation_or_epoch=-1,
            member_id="",
            instance_id=None,
            topics=[{"name": self.topic, "partitions": [done]}],
        )
        assert answer["error_code"] == 0
        error: int = answer["topics"][0]["partitions"][0]["error_code"]
        return error

    def is_held_back(self) -> bool:
        """True if the broker sends no more messages, although it still answers requests."""
        for _ in range(3):
            assert self.connection.ask(INFO, client_version=None)["error_code"] == 0
        return not self.connection.has_kept(self.id)


@pytest.fixture
def consumer(millstream_bootstrap: str) -> Iterator[Connection]:
    with Connection(int(millstream_bootstrap.rpartition(":")[2])) as connection:
        assert connection.ask(ROLE, role=2, producer_group=None)["error_code"] == 0
        yield connection


@pytest.fixture
def producer(millstream_bootstrap: str) -> Iterator[Connection]:
    with Connection(int(millstream_bootstrap.rpartition(":")[2])) as connection:
        assert connection.ask(ROLE, role=1, producer_group=None)["error_code"] == 0
        yield connection


def write(producer: Connection, topic: str, count: int) -> list[bytes]:
    """Write one batch per message, because the broker delivers whole batches."""
    values = [b"%d" % number for number in range(count)]
    for value in values:
        assert producer.put(topic, value)["error_code"] == 0
    return values


@pytest.mark.parametrize("share_percent", [1, 50, 100])
def test_deliveries_pause_at_a_full_window_until_share_percent_of_it_is_committed(
    share_percent: int, producer: Connection, consumer: Connection
) -> None:
    topic = producer.create_topic()
    values = write(producer, topic, 3 * WINDOW)
    subscriber = Subscriber(consumer, topic, share_percent=share_percent, group=None, offset=-2)
    subscriber.receive(WINDOW)
    assert subscriber.is_held_back()
    needed = -(-WINDOW * share_percent // 100)
    if needed > 1:
        assert subscriber.commit(needed - 1) == 0
        assert subscriber.is_held_back()
    assert subscriber.commit(needed) == 0
    subscriber.receive(WINDOW + needed)
    assert subscriber.is_held_back()
    while len(subscriber.values) < len(values):
        assert subscriber.commit(len(subscriber.values)) == 0
        subscriber.receive(min(len(values), len(subscriber.values) + 1))
    assert subscriber.values == values


def test_later_messages_are_pushed(producer: Connection, consumer: Connection) -> None:
    topic = producer.create_topic()
    subscriber = Subscriber(consumer, topic, share_percent=50, group=None, offset=-1)
    assert subscriber.is_held_back()
    values = write(producer, topic, WINDOW // 2)
    subscriber.receive(len(values))
    assert subscriber.values == values


def test_a_commit_after_the_delivered_messages_is_refused(producer: Connection, consumer: Connection) -> None:
    topic = producer.create_topic()
    write(producer, topic, 2 * WINDOW)
    subscriber = Subscriber(consumer, topic, share_percent=50, group=None, offset=-2)
    subscriber.receive(WINDOW)
    assert subscriber.commit(2 * WINDOW) != 0
    assert subscriber.is_held_back()


def test_a_connection_with_a_subscription_cannot_become_a_producer(millstream_bootstrap: str) -> None:
    with Connection(int(millstream_bootstrap.rpartition(":")[2])) as connection:
        topic = connection.create_topic()
        Subscriber(connection, topic, share_percent=50, group=None, offset=0)
        assert connection.ask(ROLE, role=1, producer_group=None)["error_code"] == ROLE_IS_FINAL


def test_a_subscription_starts_at_the_groups_committed_offset(producer: Connection, consumer: Connection) -> None:
    topic = producer.create_topic()
    write(producer, topic, WINDOW)
    first = Subscriber(consumer, topic, share_percent=50, group=f"group of {topic}", offset=-3)
    first.receive(WINDOW)
    assert first.commit(4) == 0
    assert consumer.ask(UNSUBSCRIBE, subscription_id=first.id)["error_code"] == 0
    second = Subscriber(consumer, topic, share_percent=50, group=f"group of {topic}", offset=-3)
    assert second.position == 4
