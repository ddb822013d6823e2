"""Compares Millstream with Apache Kafka on one machine in one run: `python -m bench [--quick] [--rounds N]`.

Both brokers are real processes. Rounds alternate between them, and the order changes every round, so that neither
always gets the machine in a better state. Broker CPU is read from the kernel: on a machine of two cores the load tool
and the broker share them, and elapsed time would measure both.

A failing workload is retried once and then reported as failed; the run continues. An interrupted run writes the results
so far to the page that `--output` names. The brokers are always stopped, and their data is deleted.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.driver import LOAD, RAW, Driver
from bench.floor import FLOOR
from bench.page import Page, conditions
from bench.peers import ROOT, WORK, Kafka, Millstream, Peer
from bench.processes import end_children
from bench.profiling import Profiler
from bench.rounds import Interrupts, Rounds
from bench.workloads import FULL, JAVA_PARTS, LIBRDKAFKA_PARTS, PARTS, QUICK, TINY, WORKLOADS, Scale, Workload


def main() -> int:
    arguments = _parse()
    only = set(arguments.only.split(",")) if arguments.only else set(PARTS)
    scale = TINY if arguments.tiny else QUICK if arguments.quick else FULL
    workloads = [workload for workload in WORKLOADS if workload.part in only]
    tools = [RAW, FLOOR, LOAD] if only.intersection(LIBRDKAFKA_PARTS) else [RAW, FLOOR]
    subprocess.run(["make", "-s", "-C", str(ROOT / "bench"), *map(str, tools)], check=True)
    kafka, millstream = Kafka(Path(arguments.data, "kafka")), Millstream(Path(arguments.data, "millstream"))
    if not arguments.alone or only.intersection(JAVA_PARTS):
        kafka.fetch()
    interrupts = Interrupts()
    interrupts.watch()
    if arguments.profile:
        return profile(millstream, scale, workloads, Path(arguments.profiles))
    peers: list[Peer] = [millstream] if arguments.alone else [kafka, millstream]
    known = conditions(peers)
    rounds = Rounds(peers, arguments.rounds, scale, Path(arguments.data), interrupts)
    ran = f"{arguments.rounds} alternating rounds"
    with ExitStack() as stack:
        for peer in peers:
            stack.callback(peer.stop)
        stack.callback(end_children)
        try:
            rounds.run(workloads, starts="start" in only, memory="memory" in only)
        except KeyboardInterrupt:
            print("bench: interrupted; stopping the brokers", file=sys.stderr, flush=True)
            ran, arguments.output = "interrupted before its end", arguments.given_output
    keep(rounds, Path(arguments.data, "samples.json"))
    page = Page(rounds.samples, rounds.failures, known, ran)
    print(page)
    if arguments.output:
        page.write(Path(arguments.output), peers, arguments.data)
    return 1 if rounds.failures or ran.startswith("interrupted") else 0


def keep(rounds: Rounds, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([sample.as_json() for sample in rounds.samples], indent=1))


def profile(peer: Peer, scale: Scale, workloads: Sequence[Workload], directory: Path) -> int:
    """Runs each workload once under a profiler and writes the profiles to files; nothing is measured."""
    profiler = Profiler(directory)
    for flush in (False, True):
        chosen = [workload for workload in workloads if workload.flush is flush]
        if not chosen:
            continue
        with ExitStack() as stack:
            stack.callback(peer.stop)
            peer.start(flush_always=flush)
            driver = Driver(peer, settles=scale.settles)
            driver.profiler = profiler
            for workload in chosen:
                for sample in workload.run(driver, scale):
                    path = profiler.save(sample.workload, peer.version())
                    print(path, file=sys.stderr, flush=True)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds; results are only printed")
    parser.add_argument("--tiny", action="store_true", help="one minimal round, to test the bench itself")
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 5; 2 with --quick)")
    parser.add_argument("--only", help=f"comma-separated parts to run, of: {', '.join(PARTS)}")
    parser.add_argument("--alone", action="store_true", help="run Millstream only, to analyse a figure")
    parser.add_argument("--profile", action="store_true", help="measure nothing; write profiles")
    parser.add_argument("--profiles", default=str(ROOT / "bench" / "profiles"), help="directory for profiles")
    parser.add_argument("--data", default=str(WORK / "run"), help="data directory of the brokers")
    parser.add_argument("--output", help="page to rewrite (default: bench/RESULTS.md for a complete run)")
    arguments = parser.parse_args()
    partial = arguments.quick or arguments.tiny or arguments.alone or arguments.only
    arguments.given_output = arguments.output
    arguments.rounds = arguments.rounds or (1 if arguments.tiny else 2 if arguments.quick else 5)
    if arguments.output is None and not partial:
        arguments.output = str(ROOT / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
