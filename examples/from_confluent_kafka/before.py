"""Counts the words of a topic with confluent-kafka. `after.py` is the same program with Millstream.

python examples/from_confluent_kafka/before.py [HOST:PORT [TOPIC]]
"""

import sys
from collections import Counter

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

LINES = ["to be or not to be", "that is the question", "to sleep"]


def report(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def main(bootstrap: str = "127.0.0.1:9092", topic: str = "lines-before") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "zstd"})
    for number, line in enumerate(LINES):
        producer.produce(topic, key=str(number), value=line, on_delivery=report)
        producer.poll(0)
    producer.flush()

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"counters of {topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    words: Counter[str] = Counter()
    lines = 0
    try:
        while lines < len(LINES):
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            words.update((message.value() or b"").decode().split())
            lines += 1
            consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()
    for word, count in sorted(words.items()):
        print(word, count)


if __name__ == "__main__":
    main(*sys.argv[1:])
