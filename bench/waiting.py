"""Measures how soon a waiting read is woken, and what idle waiting reads cost: `python -m bench.waiting [--quick]`.

One program writes messages, one after the other, to a topic that it also reads with `client.read(..., wait=...)`.
Meanwhile other reads of the same client wait on topics that receive no messages. For each message, three moments are
taken from one clock: put, acknowledged (the message is committed then, or a moment before), and returned to the reader.
"""

import argparse
import asyncio
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from bench.peers import ROOT, Millstream
from bench.report import figure
from bench.section import Section

import millstream

BEGIN = "<!-- waiting:begin (written by bench/waiting.py) -->"
END = "<!-- waiting:end -->"
TOPIC = "read"
WAIT_S = 3_600.0
TARGET_MS = 5.0
"""Maximum time from the commit to the reader, for 99 of 100 messages."""


@dataclass(frozen=True, slots=True)
class Case:
    """The other waiting reads."""

    title: str
    readers: int
    topics: int


@dataclass(slots=True)
class Found:
    """Milliseconds of each message, and the cost of the waiting reads."""

    put_ms: list[float] = field(default_factory=list)
    committed_ms: list[float] = field(default_factory=list)
    idle_percent: float = 0.0
    reader_bytes: float = 0.0


CASES = (
    Case("nobody", 0, 0),
    Case("1,000 readers at 1,000 topics", 1_000, 1_000),
    Case("10,000 readers at 10 topics", 10_000, 10),
)


def main() -> int:
    arguments = _parse()
    section = Section("bench.waiting", BEGIN, END)
    found: list[tuple[Case, Found]] = []
    for case in CASES:
        case = Case(case.title, case.readers // arguments.part, -(-case.topics // arguments.part))
        with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
            peer = Millstream(Path(directory))
            peer.start(flush_always=arguments.flush_always)
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    found.append((case, runner.run(measure(peer.bootstrap, case, arguments.messages, arguments.idle))))
            finally:
                peer.end()
    flush = "flush before every acknowledgement" if arguments.flush_always else "flush = os"
    section.publish(f"{arguments.messages:,} messages in each row; {flush}", table(found), arguments.output)
    return 0


async def measure(bootstrap: str, case: Case, messages: int, idle_s: float) -> Found:
    found = Found()
    async with millstream.connect_async(bootstrap, timeout=60) as client, client.producer(linger=0) as producer:
        topics = [f"other-{number}" for number in range(case.topics)]
        for topic in (TOPIC, *topics):
            await client.create_topic(topic, partitions=1)
        before_bytes = _resident_bytes()
        others = [
            asyncio.create_task(client.read(topics[number % case.topics], 0, 0, wait=WAIT_S))
            for number in range(case.readers)
        ]
        await _read_all(client, producer, 10, Found())  # Warm-up, and all other reads have arrived at the broker.
        found.reader_bytes = (_resident_bytes() - before_bytes) / max(1, case.readers)
        before_s = time.process_time()
        await asyncio.sleep(idle_s)
        found.idle_percent = (time.process_time() - before_s) / idle_s * 100
        await _read_all(client, producer, messages, found)
        assert not any(task.done() for task in others), "no other read was woken"
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    return found


async def _read_all(
    client: millstream.AsyncClient, producer: millstream.AsyncProducer, messages: int, found: Found
) -> None:
    """Writes one message after the other, and reads each as it arrives."""
    offset = (await client.offsets({(TOPIC, 0): "latest"}))[millstream.TopicPartition(TOPIC, 0)].offset
    for _ in range(messages):
        reading = asyncio.create_task(_read(client, offset))
        await asyncio.sleep(0.002)
        put_s = time.perf_counter()
        await producer.put(TOPIC, b"v" * 100)
        committed_s = time.perf_counter()
        offset, read_s = await reading
        found.put_ms.append((read_s - put_s) * 1000)
        found.committed_ms.append(max(0.0, read_s - committed_s) * 1000)


async def _read(client: millstream.AsyncClient, offset: int) -> tuple[int, float]:
    portion = await client.read(TOPIC, 0, offset, wait=WAIT_S)
    assert len(portion.messages) == 1
    return portion.next_offset, time.perf_counter()


def table(found: Sequence[tuple[Case, Found]]) -> list[str]:
    lines = [
        "| who else waits | put to read, p50 / p99 ms | commit to read, p50 / p99 ms | target | | idle client's CPU "
        "| memory for each who waits |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, each in found:
        late_ms = percentile(each.committed_ms, 99)
        verdict = "met" if late_ms <= TARGET_MS else "**missed**"
        kept = f"{figure(each.reader_bytes / 1024)} KiB" if case.readers else ""
        lines.append(
            f"| {case.title} | {both(each.put_ms)} | {both(each.committed_ms)} | p99 ≤ {TARGET_MS:g} | {verdict} "
            f"| {each.idle_percent:.1f} % | {kept} |"
        )
    return lines


def both(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} / {percentile(values, 99):.2f}"


def percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.waiting", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few messages; results are only printed")
    parser.add_argument("--tiny", action="store_true", help="minimal work, to test the bench itself")
    parser.add_argument("--flush-always", action="store_true", help="flush before every acknowledgement")
    parser.add_argument("--output", help="page to rewrite (default: bench/RESULTS.md; none with --quick or --tiny)")
    arguments = parser.parse_args()
    arguments.part = 100 if arguments.tiny else 1
    arguments.messages = 5 if arguments.tiny else 300 if arguments.quick else 2_000
    arguments.idle = 0.1 if arguments.tiny else 5.0
    if arguments.output is None and not (arguments.quick or arguments.tiny):
        arguments.output = str(ROOT / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
