"""Drives one running broker: creates topics, runs the load tools, measures the broker's cost, deletes the topics."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from bench.ballast import Ballast
from bench.peers import WORK, Peer
from bench.processes import Usage, usage
from bench.profiling import Profiler
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millstream.records.batch import encode_batch

LOAD = WORK / "load"
RAW = WORK / "raw"
LEADERS_TIMEOUT_S = 120.0
_NOT_YET = ("error 6", "error 3")
"""Errors of the raw tool while a partition has no leader.

Kafka reports topics as created before that. Leaders of a thousand new partitions come and go for some seconds.
"""

TOOL_TIMEOUT_S = 300.0
FIRST_WRITES = 4
"""Number of batches written to each partition before it is measured; enough for a first entry in Kafka's indexes."""

MILLION = 1e6
GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurement of one workload on one broker in one round."""

    workload: str
    peer: str
    metrics: Mapping[str, float]
    """Figures to compare. Each name contains the unit."""
    usage: Usage | None = None
    load: Mapping[str, Any] | None = None
    round: int = 0
    """Number of the round. Samples of one round were taken under similar conditions."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


Parse = Callable[[str], Mapping[str, Any]]
"""Parses a tool's output into what it measured: messages, bytes, seconds, and tool-specific figures."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The output of a load tool, and what the broker used meanwhile."""

    load: Mapping[str, Any]
    cost: Usage

    @property
    def messages(self) -> int:
        return int(self.load["messages"])

    def throughput(self) -> dict[str, float]:
        """Returns the throughput and the broker's CPU per message, in units that suit the message size."""
        if self.load["bytes"] / self.messages < 500:
            many, per, speed = self.messages / MILLION, "million", "M messages/s"
        else:
            many, per, speed = self.load["bytes"] / GIGABYTE, "GB", "GB/s"
        return {
            speed: many / self.load["seconds"],
            f"CPU-s per {per}": self.cost.cpu_s / many,
        }

    def latency(self) -> dict[str, float]:
        """Returns the latencies that the tool measured, and the broker's CPU."""
        told = {"mean_us": "mean µs", "p50_us": "p50 µs", "p99_us": "p99 µs"}
        figures = {name: float(self.load[key]) for key, name in told.items() if key in self.load}
        return {**figures, "CPU ms per 1,000": self.cost.cpu_s * MILLION / self.messages}


class Driver:
    """Runs load tools against one broker."""

    def __init__(self, peer: Peer, *, settles: bool = True) -> None:
        """With `settles`, the machine is brought to the same state before each run, which takes a while."""
        self.peer = peer
        self._settles = settles
        self.profiler: Profiler | None = None
        """Profiles the broker while a load tool runs, if set."""
        self._topics = 0

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.peer.bootstrap, "log_level": 2})

    def first_acknowledgement(self) -> float:
        """Creates a topic, writes one message, and returns the monotonic time of its acknowledgement."""
        self._admin.create_topics([NewTopic("first", num_partitions=1, replication_factor=1)])["first"].result(120)
        self.raw("produce", ["first"], settled=False, batch=batch_file(1, 100), records=1, requests=1)
        return time.monotonic()

    @contextmanager
    def topic(self, partitions: int = 1, settings: Mapping[str, str] | None = None) -> Iterator[str]:
        with self.topics(1, partitions, settings) as (name,):
            yield name

    @contextmanager
    def topics(self, count: int, partitions: int, settings: Mapping[str, str] | None = None) -> Iterator[list[str]]:
        """Creates topics, and deletes them at the end of the block."""
        names = [f"bench-{self._topics + number}" for number in range(count)]
        self._topics += count
        new = [
            NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings or {}))
            for name in names
        ]
        for made in self._admin.create_topics(new).values():
            made.result(120)
        try:
            yield names
        except Exception:
            self._delete(names)
            raise
        # After an interrupt, nothing is deleted here: the broker stops, and its data is removed.
        self._delete(names)

    def _delete(self, names: list[str]) -> None:
        for gone in self._admin.delete_topics(names).values():
            gone.result(120)

    def write_first(self, topics: list[str], partitions: int = 1, writes: int = FIRST_WRITES) -> None:
        """Writes a little to every partition, so that one-time costs of a new partition are not measured.

        These can exceed all the rest: Kafka maps two index files of 10 MB per partition, and the first access of each
        triggers the block device's full readahead.
        """
        total = len(topics) * partitions
        spread = 10 if total % 10 == 0 else 1
        options = {"partitions": partitions, "spread": spread, "batch": batch_file(20, 100), "records": 20}
        self.raw("produce", topics, settled=False, requests=total * writes // spread, inflight=1, **options)

    def load(self, mode: str, topic: str, **arguments: Any) -> Ran:
        """Runs the load tool on librdkafka."""
        command = [str(LOAD), mode, "--brokers", self.peer.bootstrap, "--topic", topic]
        writes_bytes = arguments["messages"] * arguments["size"] if mode == "produce" else 0
        return self.run([*command, *options(arguments)], writes_bytes=writes_bytes)

    def raw(self, mode: str, topics: list[str], *, settled: bool = True, **arguments: Any) -> Ran:
        """Runs the load tool on bare sockets."""
        command = [str(RAW), mode, "--port", str(self.peer.port), "--topics", ",".join(topics)]
        writes_bytes = arguments["requests"] * arguments["batch"].stat().st_size if mode == "produce" else 0
        return self.run([*command, *options(arguments)], settled=settled, writes_bytes=writes_bytes)

    def run(
        self, command: Sequence[str], parse: Parse = json.loads, *, settled: bool = True, writes_bytes: int = 0
    ) -> Ran:
        """Runs a tool, and again if a partition had no leader yet: only the run that succeeds counts.

        `writes_bytes` of warm memory are kept ready for the run. Raises RuntimeError with the output of the tool and
        the broker's log if the tool fails.
        """
        give_up_s = time.monotonic() + LEADERS_TIMEOUT_S
        while True:
            try:
                if not (settled and self._settles):
                    return self._measured(command, parse, self.profiler if settled else None)
                settle(self.peer.directory)
                with Ballast(writes_bytes):
                    return self._measured(command, parse, self.profiler)
            except RuntimeError as error:
                if not any(told in str(error) for told in _NOT_YET) or time.monotonic() > give_up_s:
                    raise

    def _measured(self, command: Sequence[str], parse: Parse, profiler: Profiler | None) -> Ran:
        before, tool_before = usage(self.peer.pid), os.times()
        with profiler.watching(self.peer.pid) if profiler else nullcontext():
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
            except subprocess.TimeoutExpired as error:
                raise RuntimeError(f"{' '.join(command)} took more than {TOOL_TIMEOUT_S:.0f} s") from error
        cost, tool = usage(self.peer.pid) - before, os.times()
        if done.returncode:
            log = (self.peer.directory / "broker.log").read_text()[-3000:]
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}\nbroker log:\n{log}")
        load = {
            "load_user_s": tool.children_user - tool_before.children_user,
            "load_system_s": tool.children_system - tool_before.children_system,
            "command": " ".join(command),
            **parse(done.stdout),
        }
        return Ran(load, cost)


def options(arguments: Mapping[str, object]) -> list[str]:
    """Formats arguments as command-line options: `batch_bytes=5` becomes `--batch-bytes 5`."""
    return [text for name, value in arguments.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def batch_file(records: int, size: int, compression: str = "none") -> Path:
    """Writes a batch for the raw tool: the same bytes in every run, with values that compress about as well as text."""
    path = WORK / f"batch-{records}-{size}-{compression}"
    random = Random(7)
    words = [bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz", k=random.randint(3, 9))) for _ in range(500)]
    values: list[bytes | None] = []
    for _ in range(records):
        text = b" ".join(random.choices(words, k=size // 4))
        values.append(text[:size].ljust(size, b"."))
    # Replaced atomically: another run may be reading the previous file.
    WORK.mkdir(exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_bytes(encode_batch(values, timestamps=int(time.time() * 1000), compression=compression))
    fresh.replace(path)
    return path


def settle(directory: Path) -> None:
    """Flushes this file system's page cache, so that no round pays for an earlier one."""
    subprocess.run(["sync", "-f", str(directory)], check=True)
    time.sleep(0.2)
