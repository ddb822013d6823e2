"""Measures how soon a long poll over HTTP is woken, and what the gateway costs while polls wait and while it is idle.

Usage: `python -m bench.gateway.waiting [--quick]`.

A broker, a gateway and this program run. The program posts events, one after the other, to a topic that it also polls.
Meanwhile other polls wait on topics that receive no events. The time runs from the response to a post, before which the
event was committed, to the response to the poll. The cost is CPU time, and how often threads of the gateway were woken.
"""

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from bench.gateway.load import answered, get, post
from bench.gateway.running import Running, gateway
from bench.peers import ROOT, Millstream
from bench.processes import resident_mb, usage
from bench.report import figure
from bench.section import Section
from bench.waiting import CASES, TARGET_MS, Case, both, percentile

BEGIN = "<!-- polls:begin (written by bench/gateway/waiting.py) -->"
END = "<!-- polls:end -->"
POLL_S = 60
"""Maximum wait of a poll. A client that waits longer must poll again."""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class Found:
    """Milliseconds of each event, and the gateway's cost while it is idle."""

    posted_ms: list[float] = field(default_factory=list)
    committed_ms: list[float] = field(default_factory=list)
    idle_percent: float = 0.0
    wakes_a_second: float = 0.0
    poll_bytes: float = 0.0


def main(given: Sequence[str] | None = None) -> int:
    arguments = _parse(given)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    section = Section("bench.gateway.waiting", BEGIN, END, given)
    found: list[tuple[Case, Found]] = []
    for case in CASES:
        case = Case(case.title, case.readers // arguments.part, -(-case.topics // arguments.part))
        with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
            peer = Millstream(Path(directory))
            peer.start(flush_always=False)
            try:
                with (
                    gateway(peer.bootstrap, "http", "grpc") as running,
                    asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
                ):
                    found.append((case, runner.run(measure(running, case, arguments.messages, arguments.idle))))
            finally:
                peer.end()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    section.publish(f"{arguments.messages:,} events in each row; flush = os", table(found), arguments.output)
    return 0


async def measure(running: Running, case: Case, messages: int, idle_s: float) -> Found:
    found = Found()
    pid, (port, _) = running
    writer = await _connected(port)
    topics = [f"other-{number}" for number in range(case.topics)]
    for topic in ("read", *topics):
        await answered(*writer, post("/events", json.dumps({"topic": topic, "value": "first"}).encode()))
    poll = await _connected(port)
    await _wake(writer, poll, 10, Found())
    before_mb = resident_mb(pid)
    others = [await _connected(port) for _ in range(case.readers)]
    for number, other in enumerate(others):
        other[1].write(_poll(topics[number % case.topics], 1))
    await _wake(writer, poll, 10, Found())  # All other polls have arrived at the gateway.
    found.poll_bytes = (resident_mb(pid) - before_mb) * 1e6 / max(1, case.readers)
    before = usage(pid)
    await asyncio.sleep(idle_s)
    idle = usage(pid) - before
    found.idle_percent = idle.cpu_s / idle_s * 100
    found.wakes_a_second = idle.voluntary_switches / idle_s
    await _wake(writer, poll, messages, found)
    for _, each in (writer, poll, *others):
        each.close()
        await each.wait_closed()
    return found


async def _connected(port: int) -> Connection:
    return await asyncio.open_connection("127.0.0.1", port)


def _poll(topic: str, offset: int) -> bytes:
    return get(f"/events?topic={topic}&partition=0&offset={offset}&wait={POLL_S}")


async def _wake(writer: Connection, poll: Connection, messages: int, found: Found) -> None:
    """Posts one event after the other; a poll waits for each before it is posted."""
    wake = post("/events", json.dumps({"topic": "read", "value": "v" * 100}).encode())
    offset = json.loads((await answered(*writer, wake))[1])["offset"] + 1
    for _ in range(messages):
        waiting = asyncio.ensure_future(answered(*poll, _poll("read", offset)))
        await asyncio.sleep(0.005)
        posted_s = time.perf_counter()
        committed_s, _ = await answered(*writer, wake)
        woken_s, body = await waiting
        found.posted_ms.append((woken_s - posted_s) * 1000)
        found.committed_ms.append(max(0.0, woken_s - committed_s) * 1000)
        offset = int(json.loads(body)["next"])


def table(found: Sequence[tuple[Case, Found]]) -> list[str]:
    lines = [
        "| who else waits | post to poll, p50 / p99 ms | commit to poll, p50 / p99 ms | target | | idle gateway's CPU "
        "| wakes a second | memory for each who waits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, each in found:
        verdict = "met" if percentile(each.committed_ms, 99) <= TARGET_MS else "**missed**"
        kept = f"{figure(each.poll_bytes / 1024)} KiB" if case.readers else ""
        lines.append(
            f"| {case.title} | {both(each.posted_ms)} | {both(each.committed_ms)} | p99 ≤ {TARGET_MS:g} | {verdict} "
            f"| {each.idle_percent:.1f} % | {each.wakes_a_second:.1f} | {kept} |"
        )
    return lines


def _parse(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.waiting", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few events; results are only printed")
    parser.add_argument("--tiny", action="store_true", help="minimal work, to test the bench itself")
    parser.add_argument("--output", help="page to rewrite (default: bench/RESULTS.md; none with --quick or --tiny)")
    arguments = parser.parse_args(given)
    arguments.part = 100 if arguments.tiny else 1
    arguments.messages = 5 if arguments.tiny else 200 if arguments.quick else 1_000
    arguments.idle = 0.1 if arguments.tiny else 10.0
    if arguments.output is None and not (arguments.quick or arguments.tiny):
        arguments.output = str(ROOT / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
