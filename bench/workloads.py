"""What is measured: each workload drives one running broker and gives samples of its cost."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.ballast import Ballast
from bench.peers import WORK, Peer
from bench.processes import Usage, resident_mb, usage
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

LOAD = WORK / "load"
MILLION = 1e6
GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class Scale:
    """How much each workload sends; enough that CPU, counted in hundredths of a second, is told apart."""

    small_messages: int
    large_messages: int
    latency_messages: int
    single_s: float
    warm_messages: int
    idle_s: float


FULL = Scale(6_000_000, 600_000, 5_000, 5.0, 6_000_000, 3.0)
QUICK = Scale(3_000_000, 500_000, 2_000, 3.0, 3_000_000, 1.5)


@dataclass(frozen=True, slots=True)
class Sample:
    """One workload, one broker, one round."""

    workload: str
    peer: str
    metrics: Mapping[str, float]
    """The figures that are compared; by name, which carries the unit."""
    usage: Usage | None = None
    load: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Driver:
    """Runs workloads against one broker: makes the topic, runs the load tool, reads the cost, removes the topic."""

    def __init__(self, peer: Peer, scale: Scale) -> None:
        self.peer = peer
        self.scale = scale
        self._admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 2})
        self._topics = 0

    def warm_up(self) -> None:
        """Bring a just-started broker (and a JVM above all) to its usual speed; nothing is recorded."""
        share = self.scale.warm_messages // 3
        for size in (100, 100, 1000):
            for _ in self.stream(size, share if size == 100 else share // 4):
                pass
        for _ in self.acknowledge_latency():
            pass

    def stream(self, size: int, messages: int) -> Iterator[Sample]:
        """Produce a topic at full speed, then read it back while the page cache holds it."""
        label = f"{size} B" if size < 1000 else f"{size // 1000} KB"
        topic = self._create({})
        try:
            counts = {"messages": messages, "size": size}
            yield self._throughput(f"produce {label}", "produce", topic, counts)
            yield self._throughput(f"consume {label}", "consume", topic, counts)
        finally:
            self._delete(topic)

    def acknowledge_latency(self) -> Iterator[Sample]:
        """Single messages at a thousand a second: how long until each is acknowledged."""
        topic = self._create({})
        try:
            arguments = {"messages": self.scale.latency_messages, "size": 100, "rate": 1000}
            load, cost = self._run("latency", topic, arguments)
            yield self._sample("ack at 1,000/s", load, cost, {"p50 µs": load["p50_us"], "p99 µs": load["p99_us"]})
        finally:
            self._delete(topic)

    def flush_before_acknowledge(self) -> Iterator[Sample]:
        """Eight producers, one partition, each waits for its message to be flushed before it sends the next."""
        topic = self._create(self.peer.flush_settings)
        try:
            load, cost = self._run("single", topic, {"seconds": self.scale.single_s, "producers": 8, "size": 100})
            rate = load["messages"] / load["seconds"]
            metrics = {"messages/s": rate, "p50 µs": load["p50_us"], "p99 µs": load["p99_us"]}
            yield self._sample("flush before ack, 8 producers", load, cost, metrics)
        finally:
            self._delete(topic)

    def memory(self) -> Sample:
        """Resident memory as it is after everything that ran before."""
        return Sample("memory after load", self.peer.name, {"MB": resident_mb(self.peer.pid)})

    def _throughput(self, workload: str, mode: str, topic: str, arguments: Mapping[str, float]) -> Sample:
        load, cost = self._run(mode, topic, arguments)
        if arguments["size"] < 1000:
            speed = {"M messages/s": load["messages"] / load["seconds"] / MILLION}
            price = {"CPU-s per million": cost.cpu_s / (load["messages"] / MILLION)}
        else:
            speed = {"MB/s": load["bytes"] / load["seconds"] / MILLION}
            price = {"CPU-s per GB": cost.cpu_s / (load["bytes"] / GIGABYTE)}
        unit = next(iter(price)).removeprefix("CPU-s ")
        scale = price[f"CPU-s {unit}"] / cost.cpu_s if cost.cpu_s else 0.0
        parts = {f"user CPU-s {unit}": cost.user_s * scale, f"system CPU-s {unit}": cost.system_s * scale}
        return self._sample(workload, load, cost, price | parts | speed)

    def _sample(self, workload: str, load: Mapping[str, Any], cost: Usage, metrics: Mapping[str, float]) -> Sample:
        return Sample(workload, self.peer.name, metrics, cost, load)

    def _run(self, mode: str, topic: str, arguments: Mapping[str, float]) -> tuple[dict[str, Any], Usage]:
        settle(self.peer.directory)
        command = [str(LOAD), mode, "--brokers", self.peer.bootstrap, "--topic", topic]
        for name, value in arguments.items():
            command += [f"--{name}", str(value)]
        with Ballast():
            before = usage(self.peer.pid)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            cost = usage(self.peer.pid) - before
        if done.returncode:
            log = (self.peer.directory / "broker.log").read_text()[-3000:]
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}\nbroker log:\n{log}")
        return json.loads(done.stdout), cost

    def _create(self, settings: Mapping[str, str]) -> str:
        self._topics += 1
        name = f"bench-{self._topics}"
        topic = NewTopic(name, num_partitions=1, replication_factor=1, config=dict(settings))
        self._admin.create_topics([topic])[name].result(60)
        return name

    def _delete(self, topic: str) -> None:
        try:
            self._admin.delete_topics([topic])[topic].result(60)
        except KafkaException as failure:
            raise RuntimeError(f"{self.peer.name} did not delete {topic}: {failure}") from failure


def settle(directory: Path) -> None:
    """Write out what earlier work left in this file system's page cache, so that no round pays for another's."""
    subprocess.run(["sync", "-f", str(directory)], check=True)
    time.sleep(0.2)
