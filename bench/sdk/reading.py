"""Runs one reader of a topic in a process of its own, for `bench.sdk`: `python -m bench.sdk.reading poll --brokers ...

`.

It prints one JSON object. The clock starts after the first messages, which do not count, and stops at the last: the
bench compares reading, not connecting. Every reader accesses every message's value; with Arrow, as a column.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from functools import partial

from bench.sdk.plain import run_plain

TIMEOUT_S = 60.0
TAKE = 10_000
"""Messages per call of readers that take many."""


class Clock:
    """Counts messages after the first step, which starts the time; `is_over` when there are enough."""

    def __init__(self, wanted: int) -> None:
        self.is_over = False
        self._wanted = wanted
        self._count = -1
        self._begun_s = self._ended_s = self._begun_cpu_s = self._ended_cpu_s = 0.0

    def step(self, count: int) -> None:
        if not count:
            raise RuntimeError("no more messages arrived")
        if self._count < 0:
            self._count = 0
            self._begun_s, self._begun_cpu_s = time.perf_counter(), time.process_time()
            return
        self._count += count
        if self._count >= self._wanted:
            self._ended_s, self._ended_cpu_s = time.perf_counter(), time.process_time()
            self.is_over = True

    def told(self) -> dict[str, float]:
        return {
            "messages": self._count,
            "seconds": self._ended_s - self._begun_s,
            "cpu_seconds": self._ended_cpu_s - self._begun_cpu_s,
        }


def confluent_many(brokers: str, topic: str, clock: Clock) -> int:
    consumer = _confluent(brokers, topic)
    total = 0
    while not clock.is_over:
        taken = consumer.consume(TAKE, TIMEOUT_S)
        for message in taken:
            if message.error():
                raise RuntimeError(message.error())
            total += len(message.value())
        clock.step(len(taken))
    consumer.close()
    return total


def confluent_each(brokers: str, topic: str, clock: Clock) -> int:
    consumer = _confluent(brokers, topic)
    total = 0
    while not clock.is_over:
        for _ in range(TAKE):
            message = consumer.poll(TIMEOUT_S)
            if message is None or message.error():
                raise RuntimeError(message and message.error())
            total += len(message.value())
        clock.step(TAKE)
    consumer.close()
    return total


def _confluent(brokers: str, topic: str):  # type: ignore[no-untyped-def]  # confluent-kafka has no types
    from confluent_kafka.cimpl import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 0,  # The default pauses for a second whenever the queue is full.
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    return consumer


def poll(brokers: str, topic: str, clock: Clock, *, local_files: bool = True) -> int:
    import millstream

    total = 0
    with (
        millstream.connect(brokers) as client,
        client.consumer(topic, start="beginning", local_files=local_files) as consumer,
    ):
        while not clock.is_over:
            messages = consumer.poll(TIMEOUT_S, TAKE)
            for message in messages:
                total += len(message.value or b"")
            clock.step(len(messages))
    return total


def each(brokers: str, topic: str, clock: Clock) -> int:
    import millstream

    total = count = 0
    with millstream.connect(brokers) as client, client.consumer(topic, start="beginning") as consumer:
        for message in consumer:
            total += len(message.value or b"")
            count += 1
            if count == TAKE:
                clock.step(count)
                count = 0
                if clock.is_over:
                    break
    return total


def each_async(brokers: str, topic: str, clock: Clock) -> int:
    import millstream

    async def read() -> int:
        total = count = 0
        async with millstream.connect_async(brokers) as client, client.consumer(topic, start="beginning") as consumer:
            async for message in consumer:
                total += len(message.value or b"")
                count += 1
                if count == TAKE:
                    clock.step(count)
                    count = 0
                    if clock.is_over:
                        break
        return total

    return asyncio.run(read())


def arrow(brokers: str, topic: str, clock: Clock, *, local_files: bool = True) -> int:
    import millstream

    total = 0
    with (
        millstream.connect(brokers) as client,
        client.consumer(topic, start="beginning", local_files=local_files) as consumer,
    ):
        while not clock.is_over:
            batch = consumer.poll_arrow(TIMEOUT_S)
            if batch is None:
                raise RuntimeError("no more messages arrived")
            total += batch.column("value").nbytes
            clock.step(batch.num_rows)
    return total


READERS: dict[str, Callable[[str, str, Clock], int]] = {
    "confluent-many": confluent_many,
    "confluent-each": confluent_each,
    "poll": poll,
    "poll-sent": partial(poll, local_files=False),
    "each": each,
    "each-async": each_async,
    "arrow": arrow,
    "arrow-sent": partial(arrow, local_files=False),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sdk.reading", description=__doc__)
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--plain", action="store_true", help="run compiled modules as plain Python")
    given = parser.parse_args()
    if given.plain:
        run_plain()
    clock = Clock(given.messages)
    READERS[given.reader](given.brokers, given.topic, clock)
    print(json.dumps({"reader": given.reader, "plain": given.plain} | clock.told()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
