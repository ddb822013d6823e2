"""Runs the loads of `millstream bench` through the public client, so it measures client and broker together."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millstream.process.concurrency import together
from millstream.sdk.aio.producer import AsyncProducer
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.wire_client import WireClient

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
READ_BYTES = 4 * 1024 * 1024
_KINDS_OF_VALUE = 64
_WAIT_MS = 1_000

Advance = Callable[[int], None]


class BenchLoad(NamedTuple):
    """Parameters of a load."""

    topic: str
    messages: int
    size_bytes: int
    batch: int
    """Number of messages per call of the client."""
    producers: int
    acks: int
    compression: str
    timeout_s: float


@dataclass(slots=True)
class Measurement:
    """Totals of a load, its duration, and the latency of each call."""

    messages: int = 0
    size_bytes: int = 0
    elapsed_s: float = 0.0
    latencies_s: dict[str, list[float]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        rate = self.messages / self.elapsed_s if self.elapsed_s else 0.0
        return {
            "messages": self.messages,
            "bytes": self.size_bytes,
            "seconds": round(self.elapsed_s, 6),
            "messages_per_s": round(rate, 1),
            "mb_per_s": round(self.size_bytes / self.elapsed_s / 1e6, 3) if self.elapsed_s else 0.0,
            "latency_ms": {
                what: {name: round(value * 1000, 3) for name, value in summary(times).items()}
                for what, times in self.latencies_s.items()
            },
        }


def summary(times_s: Sequence[float]) -> dict[str, float]:
    """Returns mean, percentiles and maximum. The result is empty if nothing was measured."""
    if not times_s:
        return {}
    ordered = sorted(times_s)
    found = {"mean": sum(ordered) / len(ordered)}
    for percent in PERCENTILES:
        # Nearest rank: the smallest time that at least `percent` of the calls did not exceed.
        at = max(0, -(-len(ordered) * percent // 100) - 1)
        found[f"p{percent:g}"] = ordered[int(at)]
    return found | {"max": ordered[-1]}


def make_values(size_bytes: int) -> list[bytes]:
    """Returns random values of this size. They compress to about half, like typical messages."""
    half = size_bytes // 2 + 1
    return [os.urandom(half).hex().encode()[:size_bytes] for _ in range(_KINDS_OF_VALUE)]


async def produce(producers: Sequence[AsyncProducer], load: BenchLoad, advance: Advance) -> Measurement:
    """Writes the messages with all producers concurrently, each with one call in flight."""
    values = make_values(load.size_bytes)
    measured = Measurement(latencies_s={"put": []})
    left = load.messages

    async def work(producer: AsyncProducer) -> None:
        nonlocal left
        while left > 0:
            count = min(load.batch, left)
            left -= count
            begin_s = time.perf_counter()
            await producer.put_many(load.topic, [values[number % _KINDS_OF_VALUE] for number in range(count)])
            measured.latencies_s["put"].append(time.perf_counter() - begin_s)
            measured.messages += count
            measured.size_bytes += count * load.size_bytes
            advance(count)

    begin_s = time.perf_counter()
    await together(*(work(producer) for producer in producers))
    for producer in producers:
        await producer.flush()  # With acks=0, no answer confirms that the messages have arrived.
    measured.elapsed_s = time.perf_counter() - begin_s
    return measured


async def consume(client: WireClient, load: BenchLoad, advance: Advance) -> Measurement:
    """Reads all partitions concurrently until `load.messages` are read. The last fetch may bring more."""
    topic, count, timeout_s = load.topic, load.messages, load.timeout_s
    view = await client.describe_topic(topic, timeout_s=timeout_s)
    measured = Measurement(latencies_s={"fetch": []})

    async def work(partition: int) -> None:
        first = await client.list_offset(topic, partition, BEGINNING, timeout_s=timeout_s)
        last = await client.list_offset(topic, partition, LATEST, timeout_s=timeout_s)
        offset, end = (first.offset if first else 0), (last.offset if last else 0)
        while offset < end and measured.messages < count:
            begin_s = time.perf_counter()
            fetched = await client.fetch(
                topic, partition, offset, max_bytes=READ_BYTES, max_wait_ms=_WAIT_MS, timeout_s=timeout_s
            )
            measured.latencies_s["fetch"].append(time.perf_counter() - begin_s)
            if fetched.next_offset == offset:
                return
            offset = fetched.next_offset
            measured.messages += len(fetched.records)
            measured.size_bytes += sum(len(record.value or b"") for record in fetched.records)
            advance(len(fetched.records))

    begin_s = time.perf_counter()
    await together(*(work(row.number) for row in view.partitions))
    measured.elapsed_s = time.perf_counter() - begin_s
    return measured


async def latency(writer: AsyncProducer, reader: WireClient, load: BenchLoad, advance: Advance) -> Measurement:
    """Writes one message after the other. Measures the time to its acknowledgement, and to a waiting reader."""
    values = make_values(load.size_bytes)
    measured = Measurement(latencies_s={"acknowledged": [], "read": []})
    last = await reader.list_offset(load.topic, 0, LATEST, timeout_s=load.timeout_s)
    offset = last.offset if last else 0
    begin_s = time.perf_counter()
    for number in range(load.messages):
        reading = asyncio.create_task(_read_from(reader, load, offset))
        await asyncio.sleep(0)  # Lets the reader send its fetch before the message is written.
        sent_s = time.perf_counter()
        await writer.put(load.topic, values[number % _KINDS_OF_VALUE], partition=0)
        measured.latencies_s["acknowledged"].append(time.perf_counter() - sent_s)
        read_s, offset = await reading
        measured.latencies_s["read"].append(read_s - sent_s)
        measured.messages += 1
        measured.size_bytes += load.size_bytes
        advance(1)
    measured.elapsed_s = time.perf_counter() - begin_s
    return measured


async def _read_from(reader: WireClient, load: BenchLoad, offset: int) -> tuple[float, int]:
    """Waits for a message at `offset` or later. Returns the time of arrival and the next offset."""
    while True:
        fetched = await reader.fetch(load.topic, 0, offset, max_wait_ms=_WAIT_MS, timeout_s=load.timeout_s)
        if fetched.next_offset > offset:
            return time.perf_counter(), fetched.next_offset
