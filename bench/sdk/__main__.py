"""Compares the SDK with other Python clients: `python -m bench.sdk [--quick] [--rounds N] [--only put]`.

All use the same broker, one after the other in every round, in an order that alternates between rounds, and each in a
process of its own. Writers write to a topic of their own with one partition, and wait until every message is stored;
all use acks=all, linger 5 ms and batches of 1 MB. Readers all read the same partition. Messages have 100 bytes and no
key. All clients run on the broker's machine, where our consumers read its files; "sent" is how they read on other
machines.
"""

import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.peers import ROOT, Millstream
from bench.report import machine, rewrite, spread

import millstream

BEGIN = "<!-- sdk:begin (written by bench/sdk) -->"
END = "<!-- sdk:end -->"
TIMEOUT_S = 600.0
BEFORE = 200_000
"""Messages that a reader may receive before its clock starts."""

MEMORY_BYTES = 320
"""Memory for each written message: three times what a writer needs."""
_READ = bytearray(1 << 20)

IMPORT_MS_MAX = 150.0


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to write or to read.

    A slow one gets a `share` of the messages, a fast one several times as many, so that all run for about the same
    time. A run of a fifth of a second would mostly measure noise.
    """

    title: str
    way: str
    plain: bool = False
    share: float = 1.0
    rival: str = ""
    least: float = 0.0
    """Minimum speed relative to its rival; 0: there is no target."""
    beside: str = ""
    """Another contender to compare with, without a target."""
    module: str = "bench.sdk.writing"

    @property
    def reads(self) -> bool:
        return self.module == READING


READING = "bench.sdk.reading"
READ_TOPIC = "to-read"

CONFLUENT, AIOKAFKA = "confluent-kafka, produce", "aiokafka, send"
CONSUME, POLL = "confluent-kafka, consume", "confluent-kafka, poll"
CONTENDERS = (
    Contender(CONFLUENT, "confluent"),
    Contender("put", "put", rival=CONFLUENT, least=1.0),
    Contender("put, uncompiled", "put", plain=True, share=0.2, rival=CONFLUENT),
    Contender("put_many, lists", "put-many", share=3.0, rival=CONFLUENT, least=5.0),
    Contender("put_many, lists, uncompiled", "put-many", plain=True, share=0.2, rival=CONFLUENT),
    Contender("put_many, Arrow", "put-arrow", share=6.0, rival=CONFLUENT, least=20.0),
    Contender("put_many, Arrow, uncompiled", "put-arrow", plain=True, share=0.2, rival=CONFLUENT),
    Contender(AIOKAFKA, "aiokafka", share=0.1),
    Contender("put and await, asyncio", "put-async", rival=AIOKAFKA, least=3.0),
    Contender(CONSUME, "confluent-many", module=READING),
    Contender("poll of many", "poll", share=4.0, rival=CONSUME, least=5.0, beside=POLL, module=READING),
    Contender("poll of many, sent", "poll-sent", share=4.0, rival=CONSUME, beside=POLL, module=READING),
    Contender("poll of many, uncompiled", "poll", plain=True, share=0.2, rival=CONSUME, module=READING),
    Contender("poll as Arrow", "arrow", share=16.0, rival=CONSUME, least=20.0, beside=POLL, module=READING),
    Contender("poll as Arrow, sent", "arrow-sent", share=8.0, rival=CONSUME, beside=POLL, module=READING),
    Contender("poll as Arrow, uncompiled", "arrow", plain=True, share=0.2, rival=CONSUME, module=READING),
    Contender(POLL, "confluent-each", share=0.5, module=READING),
    Contender("one by one", "each", share=2.0, rival=POLL, least=1.0, module=READING),
    Contender("one by one, uncompiled", "each", plain=True, share=0.2, rival=POLL, module=READING),
    Contender("one by one, asyncio", "each-async", rival=POLL, module=READING),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One contender in one round: messages per second, and client CPU seconds per million."""

    rate: float
    cpu_s: float


def main() -> int:
    arguments = _parse()
    load_before = os.getloadavg()[0]
    chosen = [each for each in CONTENDERS if arguments.only in each.title or each.title == arguments.only]
    chosen += [
        each
        for each in CONTENDERS
        if each not in chosen and each.title in {name for one in chosen for name in (one.rival, one.beside)}
    ]
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
        peer = Millstream(Path(directory))
        peer.prepare()
        peer.start(flush_always=arguments.flush_always)
        try:
            found = measure(peer, chosen, arguments.rounds, arguments.messages)
        finally:
            peer.end()
    flush = "flush before every acknowledgement" if arguments.flush_always else "flush = os"
    lines = [
        "",
        f"`{' '.join(['python -m bench.sdk', *sys.argv[1:]])}` on {time.strftime('%Y-%m-%d', time.gmtime())}: "
        f"{arguments.rounds} rounds of {arguments.messages:,} messages, fewer of the slow, more of the fast; {flush}.",
        f"Machine: {machine()}; load average {load_before:.1f} before the run began.",
        "",
        f"- {Millstream(Path()).version()}; uvloop {version('uvloop')}, PyArrow {version('pyarrow')}",
        f"- confluent-kafka {version('confluent-kafka')}, aiokafka {version('aiokafka')} with its extension",
        "",
        "Median (smallest to largest) of the rounds; a ratio is taken within a round, the target is held to the first:",
        "",
        *table(found),
        "",
        *_imports(arguments.rounds),
        "",
    ]
    print("\n".join(lines))
    if arguments.output:
        rewrite(Path(arguments.output), lines, BEGIN, END)
    return 0


def measure(
    peer: Millstream, contenders: Sequence[Contender], rounds: int, messages: int
) -> Mapping[Contender, Sequence[Sample]]:
    found: dict[Contender, list[Sample]] = {each: [] for each in contenders}
    with millstream.connect(peer.bootstrap, timeout=60) as client:
        _fill(client, int(messages * max((each.share for each in contenders if each.reads), default=0)))
        files = list(peer.directory.rglob("*.log"))
        for number in range(rounds):
            for each in contenders if number % 2 == 0 else contenders[::-1]:
                count = max(1, int(messages * each.share))
                if each.reads:
                    found[each].append(_run(each, peer.bootstrap, READ_TOPIC, count, files))
                else:
                    topic = f"{each.way}-{number}-{int(each.plain)}"
                    client.create_topic(topic, partitions=1)
                    found[each].append(_run(each, peer.bootstrap, topic, count))
                    client.delete_topic(topic)
                print(f"{each.title}: {found[each][-1].rate / 1e6:.3g} M/s", file=sys.stderr, flush=True)
    return found


def _fill(client: millstream.Client, messages: int) -> None:
    """Writes the messages to read: as many as any reader counts, and those before the count starts."""
    if messages:
        client.create_topic(READ_TOPIC, partitions=1)
        value = b"v" * 100
        with client.producer(batch_bytes=1_000_000, batch_count=1_000_000) as producer:
            for left in range(messages + BEFORE, 0, -10_000):
                producer.put_many(READ_TOPIC, [value] * min(left, 10_000))


def _settle(contender: Contender, messages: int, files: Sequence[Path]) -> None:
    """Brings the machine to the same state for every contender.

    Dirty pages of earlier runs are flushed. For readers, the files are in the page cache. For writers, memory has just
    been allocated from the host: the host of a virtual machine takes back memory that is idle for seconds, and would
    return it at some 500 MB/s, which slows down only the fastest writers.
    """
    os.sync()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(_READ):
                pass
    if not contender.reads:
        with mmap.mmap(-1, messages * MEMORY_BYTES) as memory:
            for at in range(0, len(memory), mmap.PAGESIZE):
                memory[at] = 1


def _run(contender: Contender, bootstrap: str, topic: str, messages: int, files: Sequence[Path] = ()) -> Sample:
    _settle(contender, messages, files)
    command = [sys.executable, "-m", contender.module, contender.way]
    command += ["--brokers", bootstrap, "--topic", topic, "--messages", str(messages)]
    command += ["--plain"] * contender.plain
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True)
    told = json.loads(ran.stdout)
    return Sample(told["messages"] / told["seconds"], told["cpu_seconds"] / told["messages"] * 1e6)


def table(found: Mapping[Contender, Sequence[Sample]]) -> list[str]:
    by_title = {each.title: samples for each, samples in found.items()}
    lines = [
        "| way | M messages/s | client's CPU-s per million | times its rival | target | |",
        "|---|---|---|---|---|---|",
    ]
    for each, samples in found.items():
        cells = [
            each.title,
            spread([sample.rate / 1e6 for sample in samples]),
            spread([sample.cpu_s for sample in samples]),
        ]
        if each.rival in by_title:
            ratios = _ratios(samples, by_title[each.rival])
            beside = by_title.get(each.beside)
            other = "" if beside is None else f"; {spread(_ratios(samples, beside))} × {each.beside}"
            cells += [f"{spread(ratios)} × {each.rival}{other}", *_verdict(each, ratios)]
        lines.append(f"| {' | '.join([*cells, *[''] * (6 - len(cells))])} |")
    return lines


def _ratios(ours: Sequence[Sample], theirs: Sequence[Sample]) -> list[float]:
    return [one.rate / other.rate for one, other in zip(ours, theirs, strict=True)]


def _verdict(contender: Contender, ratios: Sequence[float]) -> list[str]:
    if not contender.least:
        return []
    return [f"≥ {contender.least:g}", "met" if statistics.median(ratios) >= contender.least else "**missed**"]


def _imports(rounds: int) -> list[str]:
    program = "import time; t = time.perf_counter(); import millstream; {}; print((time.perf_counter() - t) * 1000)"
    lines = []
    for what, then, most in (("millstream", "pass", IMPORT_MS_MAX), ("millstream.connect", "millstream.connect", 0)):
        command = [sys.executable, "-c", program.format(then)]
        took = [float(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout) for _ in range(rounds)]
        verdict = "met" if statistics.median(took) <= most else "**missed**"
        lines.append(f"- import of `{what}`: {spread(took)} ms" + (f"; target ≤ {most:g}: {verdict}" if most else ""))
    return lines


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.sdk", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three short rounds; results are only printed")
    parser.add_argument("--tiny", action="store_true", help="one minimal round, to test the bench itself")
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 5; 3 with --quick)")
    parser.add_argument("--messages", type=int, help="messages per writer (default: 1,000,000; 300,000 with --quick)")
    parser.add_argument("--only", default="", help="run only rows whose name contains this, and their rivals")
    parser.add_argument("--flush-always", action="store_true", help="flush before every acknowledgement")
    parser.add_argument(
        "--output", help="page to rewrite (default: bench/RESULTS.md; none with --quick, --tiny, --only)"
    )
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.tiny else 3 if arguments.quick else 5)
    arguments.messages = arguments.messages or (100 if arguments.tiny else 300_000 if arguments.quick else 1_000_000)
    if arguments.output is None and not (arguments.quick or arguments.tiny or arguments.only):
        arguments.output = str(ROOT / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
