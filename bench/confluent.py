"""Generates the load of Python programs on confluent-kafka: `python -m bench.confluent produce|consume`.

It prints one JSON object, as the tools in C do. The client uses several times the broker's CPU per message, so here
only the broker's CPU distinguishes brokers.
"""

import argparse
import json
import sys
import time

from confluent_kafka.cimpl import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

TAKE = 10_000
"""Maximum number of messages per call of `consume`."""

TIMEOUT_S = 60.0


def produce(brokers: str, topic: str, messages: int, size: int) -> int:
    """Returns the number of acknowledged bytes.

    Raises KafkaException for the first message that was not acknowledged.
    """
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = b"v" * size
    for _ in range(messages):
        while True:
            try:
                producer.produce(topic, value, partition=0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    if failed or left:
        raise KafkaException(failed[0] if failed else f"{left} messages were not acknowledged")
    return messages * size


def consume(brokers: str, topic: str, messages: int) -> int:
    """Returns the bytes of the first `messages` of partition 0. Raises KafkaException if they do not arrive."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 0,  # The default pauses for a second whenever the queue is full.
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    count = total = 0
    while count < messages:
        taken = consumer.consume(min(TAKE, messages - count), TIMEOUT_S)
        if not taken:
            raise KafkaException(f"only {count} of {messages} messages arrived")
        for message in taken:
            if message.error():
                raise KafkaException(message.error())
            total += len(message.value() or b"")
        count += len(taken)
    consumer.close()
    return total


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.confluent", description=__doc__)
    parser.add_argument("mode", choices=["produce", "consume"])
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--size", type=int, default=100, help="message size in bytes (produce only)")
    given = parser.parse_args()
    begun_s = time.monotonic()
    if given.mode == "produce":
        total = produce(given.brokers, given.topic, given.messages, given.size)
    else:
        total = consume(given.brokers, given.topic, given.messages)
    seconds = time.monotonic() - begun_s
    print(json.dumps({"mode": given.mode, "messages": given.messages, "bytes": total, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
