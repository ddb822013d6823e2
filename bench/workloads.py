"""What is measured: each workload gives samples of one broker's speed and cost.

The same work is driven by two tools. "librdkafka" is what people's programs do, and on a machine of two cores the
client is what limits the rate. "raw" sends and receives whole requests over bare sockets: it costs next to nothing
itself, so the rate is the broker's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.driver import Driver, Sample, batch_file

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
    wide_requests: int
    memory_bytes: int
    """After so much load memory is looked at."""
    settles: bool = True
    """Whether the machine is brought to the same state before each run."""


FULL = Scale(6_000_000, 600_000, 2_000_000_000, 5_000, 40_000, 4_000, 10_000_000_000)
QUICK = Scale(2_000_000, 200_000, 500_000_000, 2_000, 5_000, 400, 10_000_000_000)
TINY = Scale(20_000, 5_000, 10_000_000, 100, 256, 20, 20_000_000, settles=False)

Run = Callable[[Driver, Scale], Iterator[Sample]]


@dataclass(frozen=True, slots=True)
class Workload:
    part: str
    """What `--only` chooses by."""
    flush: bool
    """Whether the brokers flush before they acknowledge."""
    run: Run


def stream(size: int) -> Run:
    """Produce a topic at full speed with librdkafka, then read it back while the page cache holds it."""
    label = f"{size} B" if size < 1000 else f"{size // 1000} KB"

    def run(driver: Driver, scale: Scale) -> Iterator[Sample]:
        messages = scale.small_messages if size < 1000 else scale.large_messages
        with driver.topic() as topic:
            for mode in ("produce", "consume"):
                ran = driver.load(mode, topic, messages=messages, size=size)
                yield Sample(f"{mode} {label}, librdkafka", driver.peer.name, ran.throughput(), ran.cost, ran.load)

    return run


def raw_stream(size: int, partitions: int, compression: str = "none") -> Run:
    """The same over bare sockets; of one partition it is also read, by one reader and by ten at once."""
    label = f"{size} B" if size < 1000 else f"{size // 1000} KB"
    label += f" {compression}" if compression != "none" else ""
    label += f", {partitions} partitions" if partitions > 1 else ""

    def run(driver: Driver, scale: Scale) -> Iterator[Sample]:
        records = BATCH_BYTES // (size + 10)
        batch = batch_file(records, size, compression)
        stored = batch.stat().st_size
        requests = max(20, scale.raw_bytes // max(stored, BATCH_BYTES // 2))
        with driver.topic(partitions) as topic:
            ran = driver.raw("produce", [topic], partitions=partitions, batch=batch, records=records, requests=requests)
            yield Sample(f"produce {label}, raw", driver.peer.name, ran.throughput(), ran.cost, ran.load)
            if partitions == 1 and compression == "none":
                ran = driver.raw("consume", [topic], messages=ran.messages)
                yield Sample(f"consume {label}, raw", driver.peer.name, ran.throughput(), ran.cost, ran.load)
                ran = driver.raw("consume", [topic], messages=ran.messages // 4, connections=10)
                name = f"consume {label}, 10 readers, raw"
                yield Sample(name, driver.peer.name, ran.throughput(), ran.cost, ran.load)

    return run


def acknowledge(driver: Driver, scale: Scale) -> Iterator[Sample]:
    """Single messages at a thousand a second."""
    with driver.topic() as topic:
        ran = driver.load("latency", topic, messages=scale.latency_messages, size=100, rate=1000)
        yield Sample("ack at 1,000/s", driver.peer.name, ran.latency(), ran.cost, ran.load)


def mixed(driver: Driver, scale: Scale) -> Iterator[Sample]:
    """A producer and a group of three, at five thousand a second; the time from send to receipt."""
    with driver.topic(3) as topic:
        messages = scale.latency_messages * 5
        ran = driver.load(
            "mixed", topic, partitions=3, consumers=3, messages=messages, size=100, rate=5000, linger_ms=0
        )
        yield Sample("producer and group of 3, end to end", driver.peer.name, ran.latency(), ran.cost, ran.load)


def wide(driver: Driver, scale: Scale) -> Iterator[Sample]:
    """A hundred topics of ten partitions, each request with a small batch for ten of them."""
    batch = batch_file(20, 100)
    with driver.topics(100, 10) as topics:
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
    records = BATCH_BYTES // 110
    batch = batch_file(records, 100)
    requests = max(20, scale.raw_bytes // 2 // BATCH_BYTES)
    with driver.topic(1, driver.peer.flush_settings) as topic:
        ran = driver.raw("produce", [topic], batch=batch, records=records, requests=requests)
        name = "flush before ack, full batches, raw"
        yield Sample(name, driver.peer.name, ran.throughput(), ran.cost, ran.load)


WORKLOADS = (
    Workload("stream", False, stream(100)),
    Workload("stream", False, stream(1000)),
    Workload("raw", False, raw_stream(100, 1)),
    Workload("raw", False, raw_stream(100, 16)),
    Workload("raw", False, raw_stream(1000, 1)),
    Workload("raw", False, raw_stream(1000, 16)),
    Workload("compressed", False, raw_stream(100, 1, "lz4")),
    Workload("compressed", False, raw_stream(100, 1, "zstd")),
    Workload("wide", False, wide),
    Workload("latency", False, acknowledge),
    Workload("mixed", False, mixed),
    Workload("flush", True, singles(1)),
    Workload("flush", True, singles(16)),
    Workload("flush", True, singles(1000)),
    Workload("flush", True, full_batches),
)
LIBRDKAFKA_PARTS = ("stream", "latency", "mixed")
"""The parts that need the load tool on librdkafka."""
PARTS = ("start", *dict.fromkeys(workload.part for workload in WORKLOADS))
