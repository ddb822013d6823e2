"""Measures reads and commits of many consumers that share the gateway's connection to the broker.

Usage: `python -m bench.gateway.mixed [--quick]`.

A broker that flushes before each acknowledgement, a gateway and this program run. Readers get one event after another
by offset. Consumers, each in a group of its own, get one event and commit it. The rows run either kind alone, then
both, so the table shows whether a read waits for the commits of others.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import uvloop
from bench.gateway.load import answered, events_body, get, post
from bench.gateway.running import gateway
from bench.peers import ROOT, Millstream
from bench.section import Section
from bench.waiting import percentile

BEGIN = "<!-- mixed:begin (written by bench/gateway/mixed.py) -->"
END = "<!-- mixed:end -->"
SIZE_BYTES = 100
TOPIC_EVENTS = 1_000

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Case(NamedTuple):
    """The readers and the committing consumers that use the gateway at the same time."""

    title: str
    readers: int
    consumers: int


CASES = (
    Case("16 readers", 16, 0),
    Case("16 consumers that commit", 0, 16),
    Case("16 readers and 16 consumers", 16, 16),
    Case("64 readers and 64 consumers", 64, 64),
)


class Scale(NamedTuple):
    """Amount of work of each measurement."""

    rounds: int
    seconds: float


FULL = Scale(3, 10.0)
QUICK = Scale(1, 4.0)
TINY = Scale(1, 0.2)


@dataclass(slots=True)
class Found:
    """Milliseconds of each request, and the measured time."""

    reads_ms: list[float] = field(default_factory=list)
    commits_ms: list[float] = field(default_factory=list)
    taken_s: float = 0.0


def main(given: Sequence[str] | None = None) -> int:
    arguments = _parse(given)
    scale: Scale = arguments.scale
    section = Section("bench.gateway.mixed", BEGIN, END, given)
    found = {case: Found() for case in CASES}
    for _ in range(scale.rounds):
        for case, each in found.items():
            with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
                peer = Millstream(Path(directory))
                peer.start(flush_always=True)
                try:
                    with (
                        gateway(peer.bootstrap, "http") as running,
                        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
                    ):
                        runner.run(_measure(running.ports[0], case, scale, each))
                finally:
                    peer.end()
    conditions = f"events of {SIZE_BYTES} bytes; rounds: {scale.rounds}; flush before every acknowledgement"
    section.publish(conditions, table(found), arguments.output)
    return 0


async def _measure(port: int, case: Case, scale: Scale, found: Found) -> None:
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(case.readers + case.consumers)]
    for number, connection in enumerate(connections):
        await _ask(connection, post("/events", events_body(f"topic-{number}", TOPIC_EVENTS, SIZE_BYTES)))
    for number in range(case.readers, len(connections)):  # The first request of a consumer joins its group.
        await _consume(connections[number], number)
    begun_s = time.perf_counter()
    until_s = begun_s + scale.seconds
    works = [_read_until(until_s, connections[number], number, found) for number in range(case.readers)]
    works += [
        _consume_until(until_s, connections[number], number, found) for number in range(case.readers, len(connections))
    ]
    await asyncio.gather(*works)
    found.taken_s += time.perf_counter() - begun_s
    for _, writer in connections:
        writer.close()


async def _ask(connection: Connection, request: bytes) -> tuple[float, bytes]:
    """Returns the milliseconds until the response, and its body."""
    begun_s = time.perf_counter()
    ended_s, body = await answered(*connection, request)
    assert b'"error"' not in body[:200], f"the gateway refused a request: {body[:200]!r}"
    return (ended_s - begun_s) * 1000, body


async def _read_until(until_s: float, connection: Connection, number: int, found: Found) -> None:
    offset = 0
    while time.perf_counter() < until_s:
        path = f"/events?topic=topic-{number}&partition=0&offset={offset % TOPIC_EVENTS}&wait=0&max_messages=1"
        taken_ms, _ = await _ask(connection, get(path))
        found.reads_ms.append(taken_ms)
        offset += 1


async def _consume_until(until_s: float, connection: Connection, number: int, found: Found) -> None:
    left = TOPIC_EVENTS - 1
    while time.perf_counter() < until_s:
        if not left:
            await _ask(connection, post("/events", events_body(f"topic-{number}", TOPIC_EVENTS, SIZE_BYTES)))
            left = TOPIC_EVENTS
        found.commits_ms.append(await _consume(connection, number))
        left -= 1


async def _consume(connection: Connection, number: int) -> float:
    """Reads one event and commits it; returns the milliseconds of the commit."""
    who = f"group=group-{number}&consumer=one"
    body = b""
    while b'"offset"' not in body:  # The group may still assign its partition.
        _, body = await _ask(connection, get(f"/events?topic=topic-{number}&{who}&offset=beginning&max_messages=1"))
    commit = json.dumps({"group": f"group-{number}", "consumer": "one"}).encode()
    return (await _ask(connection, post("/offset", commit)))[0]


def table(found: dict[Case, Found]) -> list[str]:
    lines = [
        "| at the same time | reads/s | read, p50 / p99 ms | commits/s | commit, p50 / p99 ms |",
        "|---|---|---|---|---|",
    ]
    for case, each in found.items():
        reads, commits = _figures(each.reads_ms, each.taken_s), _figures(each.commits_ms, each.taken_s)
        lines.append(f"| {case.title} | {reads} | {commits} |")
    return lines


def _figures(taken_ms: list[float], seconds: float) -> str:
    if not taken_ms:
        return "| "
    ordered = sorted(taken_ms)
    return f"{len(ordered) / seconds:,.0f} | {percentile(ordered, 50):.2f} / {percentile(ordered, 99):.2f}"


def _parse(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.mixed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; results are only printed")
    parser.add_argument("--tiny", action="store_true", help="minimal work, to test the bench itself")
    parser.add_argument("--output", help="page to rewrite (default: bench/RESULTS.md; none with --quick or --tiny)")
    options = parser.parse_args(given)
    options.scale = TINY if options.tiny else QUICK if options.quick else FULL
    if options.output is None and options.scale is FULL:
        options.output = str(ROOT / "bench" / "RESULTS.md")
    return options


if __name__ == "__main__":
    sys.exit(main())
