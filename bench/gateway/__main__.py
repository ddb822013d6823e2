"""Measures the speed of the web API: `python -m bench.gateway [--quick]`.

A broker, a gateway and a client each run as a process. The client posts events of 100 bytes, 1,000 at a time and one by
one, in requests that were encoded before, to cost little. A long poll is woken while others wait on other topics; the
time runs from the response to the write until the response to the poll, or is 0 if the poll's came first. Finally the
gateway's CPU is measured while it is idle, and while the other polls wait.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import uvloop
from bench.gateway.load import answered, events_body, get, load, post
from bench.gateway.running import Running, gateway
from bench.peers import ROOT, Millstream
from bench.processes import running_s, usage
from bench.report import spread
from bench.section import Section

BEGIN = "<!-- gateway:begin (written by bench/gateway) -->"
END = "<!-- gateway:end -->"
MANY = 1_000
SIZE_BYTES = 100
OTHER_TOPICS = 20
WAKE_MS = 5.0


class Scale(NamedTuple):
    """Amount of work of each measurement."""

    rounds: int
    many: int
    single: int
    waiting: int
    wakes: int
    idle_s: float


FULL = Scale(3, 1_500, 15_000, 1_000, 400, 3.0)
QUICK = Scale(1, 1_000, 10_000, 1_000, 200, 2.0)
TINY = Scale(1, 5, 20, 5, 5, 0.1)


@dataclass(frozen=True, slots=True)
class Case:
    """One way of posting events."""

    title: str
    events: int
    connections: int
    target: int


@dataclass(slots=True)
class Found:
    """Events per second, and microseconds of the gateway's CPU per event, for each round."""

    rates: list[float] = field(default_factory=list)
    gateway_us: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Waited:
    """Milliseconds of each wake-up, and CPU in percent of a core."""

    woken_ms: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    idle_with_polls: list[float] = field(default_factory=list)


CASES = (
    Case("1,000 events a request, 1 connection", MANY, 1, 220_000),
    Case("1,000 events a request, 4 connections", MANY, 4, 220_000),
    Case("one event a request, 8 connections", 1, 8, 3_000),
    Case("one event a request, 64 connections", 1, 64, 3_000),
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    scale: Scale = options.scale
    section = Section("bench.gateway", BEGIN, END, arguments)
    found, waited = {case: Found() for case in CASES}, Waited()
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
        peer = Millstream(Path(directory))
        peer.start(flush_always=options.flush_always)
        try:
            for _ in range(scale.rounds):
                with (
                    gateway(peer.bootstrap, "http") as running,
                    asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
                ):
                    runner.run(_round(running, scale, found, waited))
        finally:
            peer.end()
    flush = "flush before every acknowledgement" if options.flush_always else "flush = os"
    conditions = f"events of {SIZE_BYTES} bytes; rounds: {scale.rounds}; {flush}"
    section.publish(conditions, [*table(found), "", *waits(waited, scale)], options.output)
    return 0


async def _round(running: Running, scale: Scale, found: Mapping[Case, Found], waited: Waited) -> None:
    (port,) = running.ports
    for case, each in found.items():
        many = case.events > 1
        one = json.dumps({"topic": "single", "value": "x" * SIZE_BYTES}).encode()
        request = post("/events", events_body("many", case.events, SIZE_BYTES) if many else one)
        requests = scale.many if many else scale.single
        await load(port, request, max(case.connections, requests // 10), case.connections)
        before = usage(running.pid)
        tally, taken_s = await load(port, request, requests, case.connections)
        assert tally.refused == 0, "the gateway refused some requests"
        events = tally.answered * case.events
        each.rates.append(events / taken_s)
        each.gateway_us.append((usage(running.pid).cpu_s - before.cpu_s) / events * 1e6)
    waited.idle.append(await _busy_percent(running.pid, scale.idle_s))
    await _wake(running, scale, waited)


async def _busy_percent(pid: int, seconds: float) -> float:
    before_s = running_s(pid)
    await asyncio.sleep(seconds)
    return (running_s(pid) - before_s) / seconds * 100


async def _wake(running: Running, scale: Scale, waited: Waited) -> None:
    (port,) = running.ports
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(OTHER_TOPICS):
        body = json.dumps({"topic": f"other-{number}", "value": "x"}).encode()
        await answered(reader, writer, post("/events", body))
    wake = post("/events", b'{"topic": "wake", "value": "x"}')
    await answered(reader, writer, wake)
    others = []
    for number in range(scale.waiting):
        other = (await asyncio.open_connection("127.0.0.1", port))[1]
        other.write(get(f"/events?topic=other-{number % OTHER_TOPICS}&offset=latest&wait=60"))
        others.append(other)
    poll = await asyncio.open_connection("127.0.0.1", port)
    place = json.loads((await answered(*poll, get("/events?topic=wake&offset=latest&wait=0")))[1])["next"]
    for _ in range(scale.wakes):
        waiting = asyncio.ensure_future(answered(*poll, get(f"/events?topic=wake&offset={place}&wait=30")))
        await asyncio.sleep(0.01)
        written_s, _ = await answered(reader, writer, wake)
        woken_s, body = await waiting
        waited.woken_ms.append(max(0.0, woken_s - written_s) * 1000)
        place = json.loads(body)["next"]
    waited.idle_with_polls.append(await _busy_percent(running.pid, scale.idle_s))
    for each in (writer, poll[1], *others):
        each.close()


def table(found: Mapping[Case, Found]) -> list[str]:
    lines = ["| posted as | events/s | target | | gateway's CPU, µs an event |", "|---|---|---|---|---|"]
    for case, each in found.items():
        verdict = _verdict(statistics.median(each.rates) >= case.target)
        cost = statistics.median(each.gateway_us)
        lines.append(f"| {case.title} | {spread(each.rates)} | ≥ {case.target:,} | {verdict} | {cost:.2f} |")
    return lines


def waits(waited: Waited, scale: Scale) -> list[str]:
    ordered = sorted(waited.woken_ms)
    late_ms = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    woken = f"{statistics.median(ordered):.2f} / {late_ms:.2f} | p99 ≤ {WAKE_MS:g} | {_verdict(late_ms <= WAKE_MS)}"
    return [
        "| while it waits | figure | target | |",
        "|---|---|---|---|",
        f"| a poll is woken while {scale.waiting:,} others wait, p50 / p99 ms | {woken} |",
        f"| gateway's CPU while nobody asks, % of a core | {statistics.median(waited.idle):.2f} | | |",
        f"| gateway's CPU while {scale.waiting:,} polls wait, % of a core "
        f"| {statistics.median(waited.idle_with_polls):.2f} | | |",
    ]


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round; results are only printed")
    parser.add_argument("--tiny", action="store_true", help="minimal work, to test the bench itself")
    parser.add_argument("--flush-always", action="store_true", help="flush before every acknowledgement")
    parser.add_argument("--output", help="page to rewrite (default: bench/RESULTS.md; none with --quick or --tiny)")
    options = parser.parse_args(arguments)
    options.scale = TINY if options.tiny else QUICK if options.quick else FULL
    if options.output is None and options.scale is FULL:
        options.output = str(ROOT / "bench" / "RESULTS.md")
    return options


if __name__ == "__main__":
    sys.exit(main())
