"""Tests readers that wait at the log end, and writers that do not wait for answers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from interop.clients.client import TIMEOUT_S, Client, Message
from interop.clients.librdkafka import QUIET

LONG_WAIT_MS = 240_000


@contextmanager
def patient_consumer(bootstrap: str) -> Iterator[Consumer]:
    """Open a consumer whose fetches wait much longer than the test's timeout."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": LONG_WAIT_MS,
        "socket.timeout.ms": LONG_WAIT_MS + 30_000,
    }
    consumer = Consumer(QUIET | settings)
    try:
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize("writer", ["java", "millstream"])
def test_a_waiting_reader_is_woken_by_a_message_before_its_timeout(
    clients: Mapping[str, Client], bootstrap: str, new_topic: Callable[..., str], writer: str
) -> None:
    topic = new_topic()
    with patient_consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for number in range(3):
            assert consumer.poll(0.3) is None
            value = b"message %d" % number
            clients[writer].write(topic, 0, [Message(value)])
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            assert message.value() == value


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_messages_are_stored_in_order_with_every_acks_setting(
    clients: Mapping[str, Client], bootstrap: str, new_topic: Callable[..., str], acks: str
) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(1_000)]
    producer = Producer(QUIET | {"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 1})
    for value in values:
        producer.produce(topic, value, partition=0)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    found = clients["millstream"].read(topic, 0, 0, len(values))
    assert [stored.message.value for stored in found] == values
