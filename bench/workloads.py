"""Defines the workloads: each yields samples of one broker's speed and cost.

Several tools drive the same work. "librdkafka" is what user programs run; "Python" and "Java" are confluent-kafka and
Kafka's own tools. On a machine of two cores these clients limit the rate. "raw" sends and receives whole requests over
bare sockets and costs almost nothing itself, so the rate is the broker's.

Every partition is written before it is measured.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from bench import java
from bench.driver import Driver, Sample, batch_file, options

WIDE_REPEATS = 3
BATCH_BYTES = 950_000
"""Size of a full batch of the raw tool, within every broker's default limit."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Amount of work of each workload: enough that CPU, counted in hundredths of a second, is precise."""

    small_messages: int
    large_messages: int
    raw_bytes: int
    latency_messages: int
    singles: int
    wide_topics: int
    wide_requests: int
    client_messages: int
    """Messages for the clients in Java and Python, which are slow."""
    memory_bytes: int
    """Bytes to write before the memory is measured."""
    settles: bool = True
    """True if the machine is brought to the same state before each run."""
    idle_s: float = 3.0
    """Time after its start at which a broker counts as idle."""


FULL = Scale(6_000_000, 600_000, 2_000_000_000, 5_000, 20_000, 100, 4_000, 2_000_000, 10_000_000_000)
QUICK = Scale(2_000_000, 200_000, 500_000_000, 1_000, 5_000, 100, 2_000, 300_000, 2_000_000_000)
WARM = Scale(2_000_000, 200_000, 500_000_000, 4_000, 2_000, 10, 4_000, 0, 0)
"""Warm-up before the measurements, above all for a JVM."""

GLIMPSE = Scale(500_000, 50_000, 200_000_000, 4_000, 500, 10, 1_000, 0, 0)
"""Warm-up of a quick run, which is less fair to a JVM."""

TINY = Scale(20_000, 5_000, 10_000_000, 100, 256, 100, 20, 1_000, 20_000_000, settles=False, idle_s=0.1)


class Run(Protocol):
    """Runs the work once on a broker."""

    def __call__(self, driver: Driver, scale: Scale) -> Iterator[Sample]: ...


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload, and how it is run."""

    part: str
    """Name for `--only`."""
    flush: bool
    """True if the brokers flush before they acknowledge."""
    run: Run
    name: str
    """Name while it runs. Its samples have names of their own."""
    rounds_max: int = 1000
    warms_up: bool = True
    """True if it runs once before the measurements. Long ones do not, if others warm up the same code."""
    has_floor: bool = False
    """True if the floor server runs it too."""


def stream(size: int) -> Run:
    """Produces to a topic at full speed with librdkafka, then consumes it from the page cache."""
    label = f"{size} B" if size < 1000 else f"{size // 1000} KB"

    def run(driver: Driver, scale: Scale) -> Iterator[Sample]:
        messages = scale.small_messages if size < 1000 else scale.large_messages
        with driver.topic() as topic:
            driver.write_first([topic])
            for mode in ("produce", "consume"):
                ran = driver.load(mode, topic, messages=messages, size=size)
                yield Sample(f"{mode} {label}, librdkafka", driver.peer.name, ran.throughput(), ran.cost, ran.load)

    return run


def raw_stream(size: int, partitions: int, compression: str = "none", *, many_readers: bool = True) -> Run:
    """Produces over bare sockets; a single partition is also consumed, by one reader and by ten concurrent ones."""
    label = f"{size} B" if size < 1000 else f"{size // 1000} KB"
    label += f" {compression}" if compression != "none" else ""
    label += f", {partitions} partitions" if partitions > 1 else ""

    def run(driver: Driver, scale: Scale) -> Iterator[Sample]:
        records = records_of(size)
        batch = batch_file(records, size, compression)
        stored = batch.stat().st_size
        requests = max(20, scale.raw_bytes // max(stored, BATCH_BYTES // 2))
        with driver.topic(partitions) as topic:
            driver.write_first([topic], partitions)
            ran = driver.raw("produce", [topic], partitions=partitions, batch=batch, records=records, requests=requests)
            yield Sample(f"produce {label}, raw", driver.peer.name, ran.throughput(), ran.cost, ran.load)
            if partitions == 1 and compression == "none":
                ran = driver.raw("consume", [topic], messages=ran.messages)
                yield Sample(f"consume {label}, raw", driver.peer.name, ran.throughput(), ran.cost, ran.load)
                if many_readers:
                    ran = driver.raw("consume", [topic], messages=ran.messages // 4, connections=10)
                    name = f"consume {label}, 10 readers, raw"
                    yield Sample(name, driver.peer.name, ran.throughput(), ran.cost, ran.load)

    return run


def records_of(size: int) -> int:
    """Returns how many messages of a size fit into a batch of the raw tool."""
    return BATCH_BYTES // (size + 10)


def acknowledge(driver: Driver, scale: Scale) -> Iterator[Sample]:
    """Sends single messages at a thousand per second, with librdkafka and over bare sockets."""
    with driver.topic() as topic:
        driver.write_first([topic])
        ran = driver.load("latency", topic, messages=scale.latency_messages, size=100, rate=1000)
        yield Sample("ack at 1,000/s, librdkafka", driver.peer.name, ran.latency(), ran.cost, ran.load)
        yield _acknowledge_raw(driver, topic, scale)


def acknowledge_raw(driver: Driver, scale: Scale) -> Iterator[Sample]:
    """Sends single messages at a thousand per second, over bare sockets only."""
    with driver.topic() as topic:
        driver.write_first([topic])
        yield _acknowledge_raw(driver, topic, scale)


def _acknowledge_raw(driver: Driver, topic: str, scale: Scale) -> Sample:
    batch = batch_file(1, 100)
    ran = driver.raw("produce", [topic], batch=batch, records=1, requests=scale.latency_messages, inflight=1, rate=1000)
    return Sample("ack at 1,000/s, raw", driver.peer.name, ran.latency(), ran.cost, ran.load)


def mixed(rate: int, note: str = "") -> Run:
    """Runs a producer without linger and a group of three consumers; measures the time from send to receipt."""

    def run(driver: Driver, scale: Scale) -> Iterator[Sample]:
        with driver.topic(3) as topic:
            driver.write_first([topic], 3)
            messages = scale.latency_messages * rate // 1000
            ran = driver.load(
                "mixed", topic, partitions=3, consumers=3, messages=messages, size=100, rate=rate, linger_ms=0
            )
            name = f"producer and group of 3, {rate:,}/s{note}, end to end"
            yield Sample(name, driver.peer.name, ran.latency(), ran.cost, ran.load)

    return run


def java_tools(driver: Driver, scale: Scale) -> Iterator[Sample]:
    """Runs Kafka's ProducerPerformance, ConsumerPerformance and EndToEndLatency."""
    messages, brokers = scale.client_messages, driver.peer.bootstrap
    with driver.topic() as topic:
        driver.write_first([topic])
        ran = driver.run(java.produce(brokers, topic, messages, 100), partial(java.produced, size=100))
        yield Sample("produce 100 B, Java", driver.peer.name, ran.throughput(), ran.cost, ran.load)
        ran = driver.run(java.consume(brokers, topic, messages), java.consumed)
        yield Sample("consume 100 B, Java", driver.peer.name, ran.throughput(), ran.cost, ran.load)
    with driver.topic() as topic:
        driver.write_first([topic])
        messages = scale.latency_messages
        command = java.end_to_end(brokers, topic, messages, 100)
        ran = driver.run(command, partial(java.echoed, messages=messages, size=100))
        yield Sample("one message there and back, Java", driver.peer.name, ran.latency(), ran.cost, ran.load)


def confluent(driver: Driver, scale: Scale) -> Iterator[Sample]:
    """Runs confluent-kafka, the usual client of Python programs."""
    with driver.topic() as topic:
        driver.write_first([topic])
        for mode in ("produce", "consume"):
            given = {"brokers": driver.peer.bootstrap, "topic": topic, "messages": scale.client_messages}
            ran = driver.run([sys.executable, "-m", "bench.confluent", mode, *options(given)])
            yield Sample(f"{mode} 100 B, Python", driver.peer.name, ran.throughput(), ran.cost, ran.load)


def wide(driver: Driver, scale: Scale) -> Iterator[Sample]:
    """Writes to a hundred topics of ten partitions; each request has a small batch for ten partitions.

    It is measured several times in a row: writing first to a thousand partitions takes Kafka longer than everything
    else.
    """
    batch = batch_file(20, 100)
    with driver.topics(scale.wide_topics, 10) as topics:
        driver.write_first(topics, 10)
        for _ in range(WIDE_REPEATS):
            ran = driver.raw(
                "produce",
                topics,
                connections=4,
                partitions=10,
                spread=10,
                batch=batch,
                records=20,
                requests=scale.wide_requests,
            )
            yield Sample("100 topics × 10 partitions, raw", driver.peer.name, ran.throughput(), ran.cost, ran.load)


def singles(partitions: int) -> Run:
    """Runs 64 producers that each wait until their message is flushed before they send the next one."""
    label = f"flush before ack, 64 producers, {partitions} partition{'s' if partitions > 1 else ''}, raw"

    def run(driver: Driver, scale: Scale) -> Iterator[Sample]:
        batch = batch_file(1, 100)
        # A thousand files to flush make every broker slow: fewer messages are enough.
        requests = scale.singles if partitions < 100 else scale.singles // 4
        with driver.topic(partitions, driver.peer.flush_settings) as topic:
            driver.write_first([topic], partitions, writes=1)
            ran = driver.raw(
                "produce",
                [topic],
                partitions=partitions,
                connections=64,
                inflight=1,
                batch=batch,
                records=1,
                requests=requests,
            )
            figures = {"messages/s": ran.messages / ran.load["seconds"], **ran.latency()}
            yield Sample(label, driver.peer.name, figures, ran.cost, ran.load)

    return run


def full_batches(driver: Driver, scale: Scale) -> Iterator[Sample]:
    """Runs one producer of full batches, flushed before each acknowledgement."""
    records = records_of(100)
    batch = batch_file(records, 100)
    requests = max(20, scale.raw_bytes // 2 // BATCH_BYTES)
    with driver.topic(1, driver.peer.flush_settings) as topic:
        driver.write_first([topic])
        ran = driver.raw("produce", [topic], batch=batch, records=records, requests=requests)
        name = "flush before ack, full batches, raw"
        yield Sample(name, driver.peer.name, ran.throughput(), ran.cost, ran.load)


FLOORED_SIZE = 1000

WORKLOADS = (
    Workload("stream", False, stream(100), "100 B, librdkafka"),
    Workload("stream", False, stream(1000), "1 KB, librdkafka"),
    Workload("raw", False, raw_stream(100, 1), "100 B, raw"),
    Workload("raw", False, raw_stream(100, 16), "100 B, 16 partitions, raw"),
    Workload("raw", False, raw_stream(FLOORED_SIZE, 1), "1 KB, raw", has_floor=True),
    Workload("raw", False, raw_stream(1000, 16), "1 KB, 16 partitions, raw"),
    Workload("compressed", False, raw_stream(100, 1, "lz4"), "lz4"),
    Workload("compressed", False, raw_stream(100, 1, "zstd"), "zstd"),
    Workload("wide", False, wide, "100 topics × 10 partitions", rounds_max=2),
    Workload("latency", False, acknowledge, "ack at 1,000/s"),
    Workload("mixed", False, mixed(1000), "producer and group of 3, 1,000/s"),
    Workload("mixed", False, mixed(5000, " (at the limit)"), "producer and group of 3, 5,000/s", rounds_max=3),
    Workload("java", False, java_tools, "Kafka's own tools", rounds_max=3, warms_up=False),
    Workload("confluent", False, confluent, "confluent-kafka", rounds_max=3, warms_up=False),
    Workload("flush", True, singles(1), "64 producers, 1 partition"),
    Workload("flush", True, singles(16), "64 producers, 16 partitions"),
    Workload("flush", True, singles(1000), "64 producers, 1,000 partitions"),
    Workload("flush", True, full_batches, "flushed full batches"),
)
LIBRDKAFKA_PARTS = ("stream", "latency", "mixed")
"""Parts that need the load tool on librdkafka."""
JAVA_PARTS = ("java",)
"""Parts that need Kafka's jars, whether or not Kafka is measured."""
PARTS = ("start", *dict.fromkeys(workload.part for workload in WORKLOADS), "memory")
