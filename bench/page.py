"""Writes the results of a run: its part of the results page, the plots, and a file with every round."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from bench.driver import Sample
from bench.peers import KAFKA_VERSION, ROOT, Peer
from bench.plots import write_ratios
from bench.report import causes, commands, comparison, floor_table, machine, rewrite, verdicts
from bench.rounds import Failure
from bench.targets import rows

EVERY_ROUND = "samples.md"


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a run, recorded before it begins."""

    command: str
    date: str
    load_average: float
    versions: Sequence[str]


def conditions(peers: Sequence[Peer]) -> Conditions:
    command = " ".join(["python -m bench", *sys.argv[1:]])
    date = time.strftime("%Y-%m-%d", time.gmtime())
    return Conditions(command, date, os.getloadavg()[0], [peer.version() for peer in peers])


class Page:
    """The results of one run as text; `ran` describes how much of it completed."""

    def __init__(self, samples: Sequence[Sample], failures: Sequence[Failure], known: Conditions, ran: str) -> None:
        self._samples = samples
        self._head = [
            "",
            f"`{known.command}` on {known.date}: {ran}.",
            f"Machine: {machine()}; load average {known.load_average:.1f} before the run began.",
            "",
            *(f"- {version}" for version in known.versions),
            *(f"- load tool {tool}" for tool in _tools(samples)),
            *(f"- **failed**, also when tried again: {one.workload}, {one.peer}: {one.reason}" for one in failures),
            "",
        ]
        self._judged = ["Median (smallest to largest) of every figure that has a target:", "", *verdicts(samples), ""]
        bare = floor_table(samples)
        if bare:
            self._judged += ["What only moving the bytes costs, and how many times that a broker costs:", "", *bare, ""]
        self._all = ["Everything that was measured, median (smallest to largest):", "", *comparison(samples), ""]

    def __str__(self) -> str:
        return "\n".join([*self._head, *self._judged, *self._all])

    def write(self, path: Path, peers: Sequence[Peer], data: str) -> None:
        """Rewrites the page between its markers, the plots, and the file with every round."""
        plots = write_ratios(path.parent / "plots", rows(self._samples))
        shown = [line for title, plot in plots for line in (f"![{title}]({plot.relative_to(path.parent)})", "")]
        link = f"Every round, and the exact commands: [{EVERY_ROUND}]({EVERY_ROUND})."
        rewrite(path, [*self._head, *self._judged, *shown, *self._all, link, ""])
        shorten = [(data, "DATA"), (f"{Path(sys.executable).parent}/", ""), (f"{ROOT}/", "")]
        (path.parent / EVERY_ROUND).write_text(
            "\n".join(
                [
                    "# Every round",
                    *self._head,
                    "## Where the broker's CPU went",
                    "",
                    *causes(self._samples),
                    "",
                    "## Commands",
                    "",
                    *commands({peer.name: " ".join(peer.command(flush_always=False)) for peer in peers}, shorten),
                    *commands({one.workload: one.load["command"] for one in self._samples if one.load}, shorten),
                    "",
                ]
            )
        )


def _tools(samples: Sequence[Sample]) -> list[str]:
    """Returns the load tools that were used, with their versions."""
    used = " ".join(str(sample.load["command"]) for sample in samples if sample.load)
    linked = next((one.load["librdkafka"] for one in samples if one.load and "librdkafka" in one.load), None)
    tools = []
    if linked:
        tools.append(
            f"`librdkafka`: bench/load.c on librdkafka {linked}; acks=all, linger 5 ms where rate counts, else 0"
        )
    if "/raw " in used:
        tools.append("`raw`: bench/raw.c on bare sockets; acks=all, batches of 950 kB, five requests under way")
    if "org.apache.kafka.tools" in used:
        tools.append(
            f"`Java`: ProducerPerformance, ConsumerPerformance, EndToEndLatency of Kafka {KAFKA_VERSION}; acks=all"
        )
    if "bench.confluent" in used:
        version, below = confluent_kafka.__version__, confluent_kafka.libversion()[0]
        tools.append(f"`Python`: bench/confluent.py on confluent-kafka {version} with librdkafka {below}; acks=all")
    return tools
