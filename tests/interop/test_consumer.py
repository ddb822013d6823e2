"""Tests a librdkafka consumer like the one in its documentation, in a separate process, so that a crash is detected."""

import subprocess
import sys
from collections.abc import Callable, Mapping

from interop.clients.client import TIMEOUT_S, Client, Message

CONSUMER = """
import sys
from confluent_kafka import Consumer, TopicPartition

bootstrap, topic, wanted = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "auto.offset.reset": "earliest"})
consumer.assign([TopicPartition(topic, 0)])
for _ in range(int(wanted)):
    message = consumer.poll(60)
    assert message is not None, "nothing came"
    assert message.error() is None, message.error()
    print(message.value().decode(), flush=True)
consumer.close()
print("closed", flush=True)
"""


def test_a_librdkafka_consumer_starts_by_auto_offset_reset_and_closes(
    clients: Mapping[str, Client], bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    clients["millstream"].write(topic, 0, [Message(b"one"), Message(b"two")])
    ended = subprocess.run(
        [sys.executable, "-c", CONSUMER, bootstrap, topic, "2"],
        capture_output=True,
        text=True,
        timeout=4 * TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, f"the consumer ended with {ended.returncode}: {ended.stderr}"
    assert ended.stdout.split() == ["one", "two", "closed"]
