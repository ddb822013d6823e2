"""Penstock beside Apache Kafka on one machine in one run: `python -m bench [--quick] [--rounds N]`.

Both are real processes. Rounds alternate between them, and every other round swaps who goes first, so that
neither always gets the machine in the better state. Broker CPU is taken from /proc, not from the clock: on a
machine of two cores the load tool and the broker share them, and time alone would measure both.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench.peers import ROOT, WORK, Kafka, Peer, Penstock
from bench.processes import resident_mb
from bench.report import causes, comparison, rewrite
from bench.workloads import FULL, QUICK, Driver, Sample, Scale

Measure = Callable[[Driver], Iterable[Sample]]


def main() -> int:
    arguments = _parse()
    arguments.load_before = os.getloadavg()[0]
    scale = QUICK if arguments.quick else FULL
    subprocess.run(["make", "-s", "-C", str(ROOT / "bench")], check=True)
    kafka, penstock = Kafka(WORK / "run" / "kafka"), Penstock(WORK / "run" / "penstock")
    kafka.fetch()
    only = set(arguments.only.split(",")) if arguments.only else {"start", "stream", "latency", "flush"}
    peers: list[Peer] = [penstock] if arguments.alone else [kafka, penstock]
    samples: list[Sample] = []
    try:
        if "start" in only:
            samples += measure_starts(peers, arguments.rounds, scale)
        if only & {"stream", "latency"}:
            samples += measure_load(peers, arguments.rounds, scale, _workloads(only, scale))
        if "flush" in only:
            samples += measure_flush(peers, arguments.rounds, scale)
    finally:
        for peer in peers:
            peer.stop()
    report(samples, peers, arguments)
    return 0


def measure_starts(peers: Sequence[Peer], rounds: int, scale: Scale) -> list[Sample]:
    """Start to ready on an empty data directory, and resident memory a moment later with nothing to do."""
    samples: list[Sample] = []
    for number in range(rounds):
        for peer in _order(peers, number):
            seconds = peer.start()
            time.sleep(scale.idle_s)
            samples.append(_tell(Sample("start to ready", peer.name, {"s": seconds})))
            samples.append(_tell(Sample("idle memory", peer.name, {"MB": resident_mb(peer.pid)})))
            peer.stop()
    return samples


def measure_load(peers: Sequence[Peer], rounds: int, scale: Scale, workloads: Sequence[Measure]) -> list[Sample]:
    """Everything with flushing left to the operating system, which is Kafka's default."""
    for peer in peers:
        peer.start()
    drivers = {peer.name: Driver(peer, scale) for peer in peers}
    samples: list[Sample] = []
    for driver in drivers.values():
        driver.warm_up()
    for number in range(rounds):
        for workload in workloads:
            for peer in _order(peers, number):
                samples += map(_tell, workload(drivers[peer.name]))
    samples += [_tell(driver.memory()) for driver in drivers.values()]
    for peer in peers:
        peer.stop()
    return samples


def measure_flush(peers: Sequence[Peer], rounds: int, scale: Scale) -> list[Sample]:
    """Acknowledged means flushed, on both sides."""
    for peer in peers:
        peer.start(flush_always=True)
    drivers = {peer.name: Driver(peer, scale) for peer in peers}
    samples: list[Sample] = []
    for driver in drivers.values():
        driver.warm_up()
    for number in range(rounds):
        for peer in _order(peers, number):
            samples += map(_tell, drivers[peer.name].flush_before_acknowledge())
    for peer in peers:
        peer.stop()
    return samples


def report(samples: Sequence[Sample], peers: Sequence[Peer], arguments: argparse.Namespace) -> None:
    """Print the tables, keep the raw samples, and rewrite the page of results unless this was only a quick look."""
    WORK.joinpath("samples.json").write_text(json.dumps([sample.as_json() for sample in samples], indent=1))
    command = " ".join(["python -m bench", *sys.argv[1:]])
    lines = [
        "",
        f"`{command}` on {time.strftime('%Y-%m-%d', time.gmtime())}: {arguments.rounds} alternating rounds.",
        f"Machine: {_machine()}; load average {arguments.load_before:.1f} before the run began.",
        "",
        *(f"- {peer.version()}" for peer in peers),
        f"- load tool: bench/load.c on librdkafka {_librdkafka(samples)}: acks=all, one partition, linger 5 ms",
        "",
        "Median (smallest to largest):",
        "",
        *comparison(samples),
        "",
        "Where the broker's CPU went, round by round:",
        "",
        *causes(samples),
        "",
    ]
    print("\n".join(lines))
    if arguments.output:
        rewrite(Path(arguments.output), lines)


def _workloads(only: set[str], scale: Scale) -> list[Measure]:
    chosen: list[Measure] = []
    if "stream" in only:
        chosen.append(lambda driver: driver.stream(100, scale.small_messages))
        chosen.append(lambda driver: driver.stream(1000, scale.large_messages))
    if "latency" in only:
        chosen.append(lambda driver: driver.acknowledge_latency())
    return chosen


def _order(peers: Sequence[Peer], number: int) -> Sequence[Peer]:
    return peers if number % 2 == 0 else peers[::-1]


def _tell(sample: Sample) -> Sample:
    figures = ", ".join(f"{value:.4g} {name}" for name, value in sample.metrics.items())
    print(f"{sample.workload:32} {sample.peer:9} {figures}", file=sys.stderr, flush=True)
    return sample


def _machine() -> str:
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    count = Path("/proc/cpuinfo").read_text().count("processor\t")
    return f"{count} × {model}, Linux {platform.release()}, Python {platform.python_version()}"


def _librdkafka(samples: Sequence[Sample]) -> str:
    return next((str(sample.load["librdkafka"]) for sample in samples if sample.load), "unused")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two rounds of less, printed only")
    parser.add_argument("--rounds", type=int, help="how often each broker runs each workload (5, with --quick 2)")
    parser.add_argument("--only", help="a comma-separated choice of start, stream, latency, flush")
    parser.add_argument("--alone", action="store_true", help="without Kafka: to look for the cause of a figure")
    parser.add_argument("--output", help="the page to rewrite (bench/RESULTS.md; with --quick or --alone none)")
    arguments = parser.parse_args()
    partial = arguments.quick or arguments.alone or arguments.only
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 5)
    if arguments.output is None and not partial:
        arguments.output = str(ROOT / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
