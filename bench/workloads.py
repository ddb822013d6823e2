"""What is measured: each workload gives samples of one broker's speed and cost.

The same work is driven by several tools. "librdkafka" is what people's programs do, "Python" and "Java" are
confluent-kafka and Kafka's own tools: on a machine of two cores the client is what limits their rate. "raw" sends and
receives whole requests over bare sockets: it costs next to nothing itself, so the rate is the broker's.

Every partition has been written to before it is measured.
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
"""What a batch of the raw tool is filled up to, within what every broker takes by default."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much each workload sends; enough that CPU, counted in hundredths of a second, is told apart."""

    small_messages: int
    large_messages: int
    raw_bytes: int
    latency_messages: int
    singles: int
    wide_topics: int
    wide_requests: int
    client_messages: int
    """For the clients in Java and Python, which are slow."""
    memory_bytes: int
    """After so much load memory is looked at."""
    settles: bool = True
    """Whether the machine is brought to the same state before each run."""
    idle_s: float = 3.0
    """Time after its start at which a broker counts as idle."""


FULL = Scale(6_000_000, 600_000, 2_000_000_000, 5_000, 20_000, 100, 4_000, 2_000_000, 10_000_000_000)
QUICK = Scale(2_000_000, 200_000, 500_000_000, 1_000, 5_000, 100, 2_000, 300_000, 2_000_000_000)
WARM = Scale(2_000_000, 200_000, 500_000_000, 4_000, 2_000, 10, 4_000, 0, 0)
"""What a broker does before it is measured, above all for a JVM."""

GLIMPSE = Scale(500_000, 50_000, 200_000_000, 4_000, 500, 10, 1_000, 0, 0)
"""The same before a short look, which is then not as fair to a JVM."""

TINY = Scale(20_000, 5_000, 10_000_000, 100, 256, 100, 20, 1_000, 20_000_000, settles=False, idle_s=0.1)


class Run(Protocol):
    """Does the work once on a broker."""

    def __call__(self, driver: Driver, scale: Scale) -> Iterator[Sample]: ...


@dataclass(frozen=True, slots=True)
class Workload:
    part: str
    """What `--only` chooses by."""
    flush: bool
    """Whether the brokers flush before they acknowledge."""
    run: Run
    name: str
    """What it is called while it runs; its samples have names of their own."""
    rounds_max: int = 1000
    warms_up: bool = True
    """Whether it runs once before it counts; not where it takes long, and others have gone the same ways."""
    has_floor: bool = False
    """Whether the server that only moves bytes does the same work."""


def stream(size: int) -> Run:
    """Produce a topic at full speed with librdkafka, then read it back while the page cache holds it."""
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
    """The same over bare sockets; of one partition it is also read, by one reader and by ten at once."""
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
    """How many messages of a size the raw tool puts into a batch."""
    return BATCH_BYTES // (size + 10)


def acknowledge(driver: Driver, scale: Scale) -> Iterator[Sample]:
    """Single messages at a thousand a second: as a program sends them, and with next to no client."""
    with driver.topic() as topic:
        driver.write_first([topic])
        ran = driver.load("latency", topic, messages=scale.latency_messages, size=100, rate=1000)
        yield Sample("ack at 1,000/s, librdkafka", driver.peer.name, ran.latency(), ran.cost, ran.load)
        yield _acknowledge_raw(driver, topic, scale)


def acknowledge_raw(driver: Driver, scale: Scale) -> Iterator[Sample]:
    """The same, over bare sockets only."""
    with driver.topic() as topic:
        driver.write_first([topic])
        yield _acknowledge_raw(driver, topic, scale)


def _acknowledge_raw(driver: Driver, topic: str, scale: Scale) -> Sample:
    batch = batch_file(1, 100)
    ran = driver.raw("produce", [topic], batch=batch, records=1, requests=scale.latency_messages, inflight=1, rate=1000)
    return Sample("ack at 1,000/s, raw", driver.peer.name, ran.latency(), ran.cost, ran.load)


def mixed(rate: int, note: str = "") -> Run:
    """A producer that waits for nothing and a group of three; the time from send to receipt."""

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
    """Kafka's ProducerPerformance, ConsumerPerformance and EndToEndLatency."""
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
    """confluent-kafka, which Python programs use."""
    with driver.topic() as topic:
        driver.write_first([topic])
        for mode in ("produce", "consume"):
            given = {"brokers": driver.peer.bootstrap, "topic": topic, "messages": scale.client_messages}
            ran = driver.run([sys.executable, "-m", "bench.confluent", mode, *options(given)])
            yield Sample(f"{mode} 100 B, Python", driver.peer.name, ran.throughput(), ran.cost, ran.load)


def wide(driver: Driver, scale: Scale) -> Iterator[Sample]:
    """A hundred topics of ten partitions, each request with a small batch for ten of them.

    Measured several times at once: to write a thousand partitions first takes Kafka longer than everything after it.
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
    """Sixty-four producers that each wait for their message to be flushed before they send the next."""
    label = f"flush before ack, 64 producers, {partitions} partition{'s' if partitions > 1 else ''}, raw"

    def run(driver: Driver, scale: Scale) -> Iterator[Sample]:
        batch = batch_file(1, 100)
        # A thousand files to flush make even a good broker slow: fewer messages say as much.
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
    """One producer of full batches, flushed before each acknowledgement."""
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
"""The parts that need the load tool on librdkafka."""
JAVA_PARTS = ("java",)
"""The parts that need Kafka's jars, whether or not Kafka is measured."""
PARTS = ("start", *dict.fromkeys(workload.part for workload in WORKLOADS), "memory")
