"""Tests that both producers choose the same partition for a key, as docs/from-confluent-kafka.md describes."""

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message, Producer

import millstream

KEYS = [b"a", b"order 17", "snowman \N{SNOWMAN}".encode(), bytes(range(256))]
PARTITIONS = 7


def by_confluent_kafka(bootstrap: str, topic: str, **settings: str) -> dict[bytes, int]:
    """Return the partition that confluent-kafka's producer chooses for each key."""
    found: dict[bytes, int] = {}

    def delivered(error: object, message: Message) -> None:
        assert error is None
        key, partition = message.key(), message.partition()
        assert key is not None
        assert partition is not None
        found[key] = partition

    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for key in KEYS:
        producer.produce(topic, key=key, value=b"v", on_delivery=delivered)
    assert producer.flush(60) == 0
    return found


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({}, lambda key: {"key": key, "hash": zlib.crc32(key)}),
        ({"partitioner": "murmur2_random"}, lambda key: {"key": key}),
    ],
    ids=["crc-32", "murmur2"],
)
def test_the_sdk_and_confluent_kafka_choose_the_same_partition_for_a_key(
    settings: dict[str, str],
    chosen: Callable[[bytes], dict[str, Any]],
    bootstrap: str,
    new_topic: Callable[..., str],
) -> None:
    topic = new_topic(PARTITIONS)
    with millstream.connect(bootstrap) as client, client.producer() as producer:
        receipts = {key: producer.put(topic, b"v", **chosen(key)) for key in KEYS}
        ours = {key: receipt.result().partition for key, receipt in receipts.items()}
    assert ours == by_confluent_kafka(bootstrap, topic, **settings)
