"""Counts the words of a topic with Millstream. `before.py` is the same program with confluent-kafka.

python examples/from_confluent_kafka/after.py [HOST:PORT [TOPIC]]
"""

import sys
from collections import Counter

import millstream

LINES = ["to be or not to be", "that is the question", "to sleep"]


def main(bootstrap: str = "127.0.0.1:9092", topic: str = "lines-after") -> None:
    with millstream.connect(bootstrap) as client:
        with client.producer(compression="zstd") as producer:  # Stores each message once, in order; closing flushes.
            for number, line in enumerate(LINES):
                producer.put(topic, key=str(number), value=line)

        group = f"counters of {topic}"
        words: Counter[str] = Counter()
        lines = 0
        with client.consumer(topic, group=group, start="beginning", auto_commit=None, values=str) as consumer:
            for message in consumer:
                words.update((message.value or "").split())
                lines += 1
                consumer.commit(message)
                if lines == len(LINES):
                    break
    for word, count in sorted(words.items()):
        print(word, count)


if __name__ == "__main__":
    main(*sys.argv[1:])
