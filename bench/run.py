"""Penstock beside Apache Kafka on one machine in one run: `python -m bench [--quick] [--rounds N]`.

Both are real processes. Rounds alternate between them, and every other round swaps who goes first, so that
neither always gets the machine in the better state. Broker CPU is taken from /proc, not from the clock: on a
machine of two cores the load tool and the broker share them, and time alone would measure both.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.driver import LOAD, RAW, Driver, Sample, batch_file
from bench.peers import ROOT, WORK, Kafka, Peer, Penstock
from bench.processes import resident_mb
from bench.profiling import Profiler
from bench.report import causes, comparison, machine, rewrite
from bench.workloads import (
    FULL,
    LIBRDKAFKA_PARTS,
    PARTS,
    QUICK,
    TINY,
    WORKLOADS,
    Scale,
    Workload,
    acknowledge,
    raw_stream,
    stream,
)

IDLE_S = 3.0
"""How long after its start a broker counts as idle."""


def main() -> int:
    arguments = _parse()
    arguments.load_before = os.getloadavg()[0]
    scale = TINY if arguments.tiny else QUICK if arguments.quick else FULL
    only = set(arguments.only.split(",")) if arguments.only else set(PARTS)
    tools = [RAW, LOAD] if only.intersection(LIBRDKAFKA_PARTS) else [RAW]
    subprocess.run(["make", "-s", "-C", str(ROOT / "bench"), *map(str, tools)], check=True)
    kafka, penstock = Kafka(Path(arguments.data, "kafka")), Penstock(Path(arguments.data, "penstock"))
    if arguments.profile:
        return profile(penstock, scale, [workload for workload in WORKLOADS if workload.part in only])
    if not arguments.alone:
        kafka.fetch()
    peers: list[Peer] = [penstock] if arguments.alone else [kafka, penstock]
    samples: list[Sample] = []
    try:
        if "start" in only:
            samples += measure_starts(peers, arguments.rounds)
        for flush in (False, True):
            chosen = [workload for workload in WORKLOADS if workload.part in only and workload.flush is flush]
            if chosen:
                samples += measure(peers, arguments.rounds, scale, chosen, flush=flush)
    finally:
        for peer in peers:
            peer.stop()
    report(samples, peers, arguments)
    return 0


def measure_starts(peers: Sequence[Peer], rounds: int) -> list[Sample]:
    """From the start of the process to the first acknowledged message, and memory a moment later with nothing to do."""
    samples: list[Sample] = []
    for number in range(rounds):
        for peer in _order(peers, number):
            ready_s = peer.start()
            acknowledged_s = Driver(peer).first_acknowledgement() - peer.begun_s
            figures = {"s to ready": ready_s, "s to first acknowledgement": acknowledged_s}
            samples.append(_tell(Sample("start", peer.name, figures)))
            time.sleep(IDLE_S)
            samples.append(_tell(Sample("idle memory", peer.name, {"MB": resident_mb(peer.pid)})))
            peer.stop()
    return samples


def measure(
    peers: Sequence[Peer], rounds: int, scale: Scale, workloads: Sequence[Workload], *, flush: bool
) -> list[Sample]:
    """Rounds of workloads against all peers; without `flush`, flushing is left to the operating system, which is
    Kafka's default."""
    for peer in peers:
        peer.start(flush_always=flush)
    drivers = {peer.name: Driver(peer, settles=scale.settles) for peer in peers}
    samples: list[Sample] = []
    for driver in drivers.values():
        warm_up(driver, scale, workloads)
    for number in range(rounds):
        for workload in workloads:
            for peer in _order(peers, number):
                samples += map(_tell, workload.run(drivers[peer.name], scale))
    if not flush:
        samples += [_tell(memory_after_load(drivers[peer.name], scale)) for peer in peers]
    for peer in peers:
        peer.stop()
    return samples


def profile(peer: Peer, scale: Scale, workloads: Sequence[Workload]) -> int:
    """Each workload once more with somebody looking on; what was seen goes into files beside the results."""
    profiler = Profiler()
    for flush in (False, True):
        chosen = [workload for workload in workloads if workload.flush is flush]
        if not chosen:
            continue
        peer.start(flush_always=flush)
        try:
            driver = Driver(peer, settles=scale.settles)
            warm_up(driver, scale, chosen)
            driver.profiler = profiler
            for workload in chosen:
                for sample in workload.run(driver, scale):
                    path = profiler.save(sample.workload, peer.version())
                    print(path.relative_to(ROOT), file=sys.stderr, flush=True)
        finally:
            peer.stop()
    return 0


def warm_up(driver: Driver, scale: Scale, workloads: Sequence[Workload]) -> None:
    """Bring a just-started broker (and a JVM above all) to its usual speed; nothing is recorded."""
    warming = [raw_stream(100, 1), raw_stream(100, 1)]
    if any(workload.part in LIBRDKAFKA_PARTS for workload in workloads):
        warming = [stream(100), stream(1000), *warming, acknowledge]
    for workload in warming:
        for _ in workload(driver, scale):
            pass


def memory_after_load(driver: Driver, scale: Scale) -> Sample:
    """Resident memory after many gigabytes more than everything that ran before."""
    batch = batch_file(8_000, 100)
    with driver.topic(16) as topic:
        requests = scale.memory_bytes // batch.stat().st_size
        driver.raw("produce", [topic], partitions=16, batch=batch, records=8_000, requests=requests)
        name = f"memory after {scale.memory_bytes / 1e9:g} GB"
        return Sample(name, driver.peer.name, {"MB": resident_mb(driver.peer.pid)})


def report(samples: Sequence[Sample], peers: Sequence[Peer], arguments: argparse.Namespace) -> None:
    """Print the tables, keep the raw samples, and rewrite the page of results unless this was only a quick look."""
    kept = json.dumps([sample.as_json() for sample in samples], indent=1)
    Path(arguments.data, "samples.json").write_text(kept)
    command = " ".join(["python -m bench", *sys.argv[1:]])
    lines = [
        "",
        f"`{command}` on {time.strftime('%Y-%m-%d', time.gmtime())}: {arguments.rounds} alternating rounds.",
        f"Machine: {machine()}; load average {arguments.load_before:.1f} before the run began.",
        "",
        *(f"- {peer.version()}" for peer in peers),
        f"- load tools: bench/load.c on librdkafka {_librdkafka(samples)} (acks=all, one partition, linger 5 ms), "
        "bench/raw.c on bare sockets (acks=all, batches of 950 kB, five requests under way)",
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


def _order(peers: Sequence[Peer], number: int) -> Sequence[Peer]:
    return peers if number % 2 == 0 else peers[::-1]


def _tell(sample: Sample) -> Sample:
    figures = ", ".join(f"{value:.4g} {name}" for name, value in sample.metrics.items())
    print(f"{sample.workload:52} {sample.peer:9} {figures}", file=sys.stderr, flush=True)
    return sample


def _librdkafka(samples: Sequence[Sample]) -> str:
    return next((str(one.load["librdkafka"]) for one in samples if one.load and "librdkafka" in one.load), "(unused)")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two rounds of less, printed only")
    parser.add_argument("--tiny", action="store_true", help="one round of next to nothing: whether it works at all")
    parser.add_argument("--rounds", type=int, help="how often each broker runs each workload (5, with --quick 2)")
    parser.add_argument("--only", help=f"a comma-separated choice of {', '.join(PARTS)}")
    parser.add_argument("--alone", action="store_true", help="without Kafka: to look for the cause of a figure")
    parser.add_argument("--profile", action="store_true", help="measure nothing; write profiles into bench/profiles/")
    parser.add_argument("--data", default=str(WORK / "run"), help="where the brokers keep their data meanwhile")
    parser.add_argument("--output", help="the page to rewrite (bench/RESULTS.md; unless complete, none)")
    arguments = parser.parse_args()
    partial = arguments.quick or arguments.tiny or arguments.alone or arguments.only
    arguments.rounds = arguments.rounds or (1 if arguments.tiny else 2 if arguments.quick else 5)
    if arguments.output is None and not partial:
        arguments.output = str(ROOT / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
