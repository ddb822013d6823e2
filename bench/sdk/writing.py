"""Runs one writer to a topic in a process of its own, for `bench.sdk`: `python -m bench.sdk.writing put --brokers ...`.

It prints one JSON object. The clock starts when the writer is connected and warm, and stops when it knows that every
message is stored: the bench compares writing, not connecting.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.sdk.plain import run_plain

TIMEOUT_S = 120.0
WARM = 200_000
"""Messages before the clock starts, so that buffers, here and in the kernel, have reached their final size."""
MANY = 10_000
"""Messages in a list for one `put_many`."""
ROWS = 100_000
"""Rows of a table for one `put_many`."""
LINGER_S = 0.005
BATCH_BYTES = 1_000_000

Write = Callable[[int], None]


def confluent(brokers: str, topic: str, value: bytes) -> Write:
    return _confluent(brokers, topic, value, [None])


def confluent_keyed(brokers: str, topic: str, value: bytes) -> Write:
    return _confluent(brokers, topic, value, _keys())


def _confluent(brokers: str, topic: str, value: bytes, keys: Sequence[bytes | None]) -> Write:
    from confluent_kafka.cimpl import Producer

    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "acks": "all",
            "linger.ms": LINGER_S * 1000,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
        }
    )

    def write(count: int) -> None:
        stored = 0
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            nonlocal stored
            if error is None:
                stored += 1
            else:
                failed.append(error)

        for number in range(count):
            while True:
                try:
                    producer.produce(topic, value, keys[number % len(keys)], on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        producer.flush(TIMEOUT_S)
        check(stored == count, failed)

    return write


def check(is_good: bool, problem: object) -> None:
    if not is_good:
        raise RuntimeError(f"not all messages were stored: {problem}")


def put(brokers: str, topic: str, value: bytes) -> Write:
    producer = _producer(brokers)

    def write(count: int) -> None:
        receipts = [producer.put(topic, value) for _ in range(count)]
        for receipt in receipts:
            receipt.result(TIMEOUT_S)

    return write


def put_many(brokers: str, topic: str, value: bytes) -> Write:
    producer = _producer(brokers)
    values = [value] * MANY

    def write(count: int) -> None:
        sizes = [MANY] * (count // MANY) + [count % MANY] * (count % MANY > 0)
        lots = [producer.put_many(topic, values[:size]) for size in sizes]
        for lot in lots:
            lot.result(TIMEOUT_S)

    return write


def put_keyed(brokers: str, topic: str, value: bytes) -> Write:
    producer = _producer(brokers)
    keys = _keys()

    def write(count: int) -> None:
        receipts = [producer.put(topic, value, keys[number % MANY]) for number in range(count)]
        for receipt in receipts:
            receipt.result(TIMEOUT_S)

    return write


def put_many_keyed(brokers: str, topic: str, value: bytes) -> Write:
    producer = _producer(brokers)
    values, keys = [value] * MANY, _keys()

    def write(count: int) -> None:
        sizes = [MANY] * (count // MANY) + [count % MANY] * (count % MANY > 0)
        lots = [producer.put_many(topic, values[:size], keys=keys[:size]) for size in sizes]
        for lot in lots:
            lot.result(TIMEOUT_S)

    return write


def _keys() -> list[bytes]:
    return [b"key %d" % number for number in range(MANY)]


def put_arrow(brokers: str, topic: str, value: bytes) -> Write:
    import pyarrow as pa

    producer = _producer(brokers)
    table = pa.table({"value": pa.array([value] * ROWS, pa.binary())})

    def write(count: int) -> None:
        sizes = [ROWS] * (count // ROWS) + [count % ROWS] * (count % ROWS > 0)
        lots = [producer.put_many(topic, table.slice(0, size)) for size in sizes]
        for lot in lots:
            lot.result(TIMEOUT_S)

    return write


def _producer(brokers: str) -> Any:
    import millstream

    client = millstream.connect(brokers)
    _KEPT.append(client)
    return client.producer(linger=LINGER_S, batch_bytes=BATCH_BYTES)


_KEPT: list[Any] = []
"""Objects that live as long as the process."""


def put_async(brokers: str, topic: str, value: bytes) -> Write:
    import millstream

    runner = asyncio.Runner()
    _KEPT.append(runner)

    async def begin() -> Any:
        client = await millstream.connect_async(brokers)
        _KEPT.append(client)
        return client.producer(linger=LINGER_S, batch_bytes=BATCH_BYTES)

    producer = runner.run(begin())

    async def work(count: int) -> None:
        receipts = []
        for _ in range(count):
            if producer.held_bytes > producer.max_bytes // 2:
                await producer.room()
            receipts.append(producer.put(topic, value))
        for receipt in receipts:
            await receipt

    return lambda count: runner.run(work(count))


def aiokafka(brokers: str, topic: str, value: bytes) -> Write:
    from aiokafka import AIOKafkaProducer

    runner = asyncio.Runner()
    _KEPT.append(runner)

    async def begin() -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=brokers, acks="all", linger_ms=LINGER_S * 1000, max_batch_size=BATCH_BYTES
        )
        await producer.start()
        return producer

    producer = runner.run(begin())

    async def work(count: int) -> None:
        futures = [await producer.send(topic, value) for _ in range(count)]
        for future in futures:
            await future

    return lambda count: runner.run(work(count))


WRITERS: dict[str, Callable[[str, str, bytes], Write]] = {
    "confluent": confluent,
    "put": put,
    "put-many": put_many,
    "put-arrow": put_arrow,
    "put-keyed": put_keyed,
    "put-many-keyed": put_many_keyed,
    "confluent-keyed": confluent_keyed,
    "put-async": put_async,
    "aiokafka": aiokafka,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sdk.writing", description=__doc__)
    parser.add_argument("writer", choices=WRITERS)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--size", type=int, default=100, help="bytes of a message")
    parser.add_argument("--plain", action="store_true", help="run compiled modules as plain Python")
    given = parser.parse_args()
    if given.plain:
        run_plain()
    write = WRITERS[given.writer](given.brokers, given.topic, b"v" * given.size)
    write(min(WARM, (given.messages + 1) // 2))
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    write(given.messages)
    seconds, cpu_seconds = time.perf_counter() - begun_s, time.process_time() - begun_cpu_s
    print(json.dumps({"messages": given.messages, "seconds": seconds, "cpu_seconds": cpu_seconds}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
