"""Tests the blocking consumer in threads, against a real broker."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest

import millstream
from builders.sdk.message_values import value_of, values_of
from millstream.sdk.consuming.health import ConsumerActivity
from millstream.testing.embedded import EmbeddedBroker

LONG_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(consumer_heartbeat_interval_ms=100, consumer_session_timeout_ms=6000) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[millstream.Client]:
    with millstream.connect(broker.bootstrap) as client:
        yield client


@pytest.fixture
def topic(client: millstream.Client) -> str:
    name = f"orders-{uuid4()}"
    client.create_topic(name, partitions=2)
    return name


def fill(client: millstream.Client, topic: str, count: int = 1000) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    with client.producer() as producer:
        producer.put_many(topic, values)
    return values


def test_iteration_batches_arrow_and_poll_return_the_same_messages(client: millstream.Client, topic: str) -> None:
    values = sorted(fill(client, topic))

    def consumer() -> millstream.Consumer:
        return client.consumer(topic, start="beginning", stop="latest")

    assert sorted(values_of(consumer())) == values
    assert sorted(value for batch in consumer().batches() for value in values_of(batch.messages)) == values
    assert sorted(value for batch in consumer().arrow() for value in batch.column("value").to_pylist()) == values
    polled = consumer()
    found: list[bytes] = []
    while messages := polled.poll(max_messages=300):
        assert len(messages) <= 300
        found += values_of(messages)
    assert sorted(found) == values


def test_arrow_table_returns_a_range_even_if_it_is_empty(client: millstream.Client, topic: str) -> None:
    empty = client.consumer(topic, start="beginning", stop="latest").arrow_table()
    assert (empty.num_rows, empty.column_names[:3]) == (0, ["topic", "partition", "offset"])
    with client.producer() as producer:
        for number in range(3):
            producer.put(topic, str(number)).result()
    table = client.consumer(topic, start="beginning", stop="latest").arrow_table()
    assert sorted(table["value"].to_pylist()) == [b"0", b"1", b"2"]
    assert table.schema == empty.schema
    with pytest.raises(millstream.MillstreamError, match="stop="):
        client.consumer(topic).arrow_table()


def test_arrow_batches_have_topic_partition_and_offset(client: millstream.Client, topic: str) -> None:
    fill(client, topic, 10)
    (batch,) = client.consumer(topic, start="beginning", stop="latest").arrow()
    assert batch.schema.names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert set(batch.column("topic").to_pylist()) == {topic}
    assert batch.column("offset").to_pylist() == list(range(10))


def test_the_loop_of_a_group_member_can_be_left_and_entered_again(client: millstream.Client, topic: str) -> None:
    values = fill(client, topic)
    found: list[bytes] = []
    with client.consumer(topic, group=f"g-{topic}", start="beginning") as consumer:
        while len(found) < len(values):
            for message in consumer:
                found += values_of([message])
                if len(found) % 100 == 0:
                    break
    assert sorted(found) == sorted(values)
    committed = client.groups.offsets(f"g-{topic}")
    assert sum(row.offset for row in committed.values()) == len(values)


def test_partitions_move_to_another_member_between_two_messages(client: millstream.Client, topic: str) -> None:
    values = fill(client, topic)
    seen: list[bytes] = []
    has_all, enough, shared = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        with client.consumer(
            topic, group=f"g-{topic}", start="beginning", on_assigned=assigned, on_revoked=revoked
        ) as consumer:
            for message in consumer:
                seen.append(value_of(message))
                if not shared.is_set():
                    shared.wait(0.01)
                if enough.is_set():
                    return

    def assigned(_places: Sequence[millstream.TopicPartition]) -> None:
        has_all.set()

    def revoked(_places: Sequence[millstream.TopicPartition]) -> None:
        shared.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert has_all.wait(LONG_S)
        with client.consumer(topic, group=f"g-{topic}", start="beginning") as other:
            found: list[bytes] = []
            while not shared.is_set() or set(found) | set(seen) < set(values):
                found += values_of(other.poll(0.1))
            with client.producer() as producer:
                producer.put_many(topic, [b"end"] * 10, keys=[b"%d" % number for number in range(10)])
            enough.set()
    finally:
        enough.set()
        thread.join(LONG_S)
    assert not thread.is_alive()


def test_a_member_that_hangs_in_a_callback_does_not_block_its_group(client: millstream.Client, topic: str) -> None:
    values = fill(client, topic)
    go_on, hangs = threading.Event(), threading.Event()

    def hang(_places: Sequence[millstream.TopicPartition]) -> None:
        hangs.set()
        go_on.wait(LONG_S)

    def work() -> None:
        with client.consumer(topic, group=f"g-{topic}", on_assigned=hang, callback_timeout=0.5) as consumer:
            consumer.poll()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert hangs.wait(LONG_S)
        with client.consumer(topic, group=f"g-{topic}", start="beginning") as other:
            found: list[bytes] = []
            while len(found) < len(values):
                found += values_of(other.poll(LONG_S))
        assert sorted(found) == sorted(values)
    finally:
        go_on.set()
        thread.join(LONG_S)
    assert not thread.is_alive()


def test_a_callback_that_always_times_out_does_not_stop_reading(
    client: millstream.Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    values = fill(client, topic)
    group = f"g-{topic}"
    calls: list[Sequence[millstream.TopicPartition]] = []

    def until_given_up(places: Sequence[millstream.TopicPartition]) -> None:
        calls.append(places)
        while client.groups.describe(group).members:
            pass

    options: Any = {"group": group, "start": "beginning", "on_assigned": until_given_up, "callback_timeout": 0.2}
    with client.consumer(topic, **options) as consumer:
        found: list[bytes] = []
        while len(found) < len(values):
            found += values_of(consumer.poll(LONG_S))
    assert sorted(found) == sorted(values)
    assert calls
    assert "callback skipped once, it timed out before callback=on_assigned" in caplog.text


def test_a_second_thread_is_refused_while_a_poll_waits(client: millstream.Client, topic: str) -> None:
    asked = threading.Event()

    def notice(health: object) -> None:
        if "waiting for messages" in str(health):
            asked.set()

    with client.consumer(topic, on_health=notice) as consumer:
        thread = threading.Thread(target=consumer.poll, args=(LONG_S,))
        thread.start()
        assert asked.wait(LONG_S)
        with pytest.raises(millstream.MillstreamError) as refused:
            consumer.poll()
        assert refused.value.code is millstream.ErrorCode.CLIENT_MISUSED
        fill(client, topic, 1)
        thread.join(LONG_S)
        assert consumer.health().doing is ConsumerActivity.IN_HANDLER
    assert "closed" in repr(consumer)
