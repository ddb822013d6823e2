"""Penstock against itself, with little and with much: `python -m bench.growth [--quick] [--rounds N]`.

Two brokers run side by side, one with a little of what grows and one with a lot of it, and the same work is done on
both in alternating rounds. What counts is the CPU time of the broker per message, to the nanosecond as the scheduler
counts it; flat within ten percent is the target. Then one broker is started again and again on ten gigabytes, stopped
in order or killed.
"""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.driver import RAW, Driver, batch_file, settle
from bench.growing import CASES, FULL, QUICK, SIZE, TINY, Case, GrowthScale, Works
from bench.peers import ROOT, WORK, Penstock
from bench.processes import running_s
from bench.report import machine, rewrite, spread

BEGIN = "<!-- growth:begin (written by bench/growth.py) -->"
END = "<!-- growth:end -->"

RATIO_MAX = 1.1
RESTART = "restart"
PARTS = (*(case.name for case in CASES), RESTART)
RESTART_PARTITIONS = 16
RESTART_RECORDS = 8_000
CLEAN, KILLED, KILLED_UNDER_LOAD = "stopped in order", "killed", "killed just after all of it was written"
RESTART_S_MAX = {CLEAN: 1.0, KILLED: 3.0, KILLED_UNDER_LOAD: 3.0}


class GrowingPenstock(Penstock):
    """Groups form at once here: how long a broker waits for more members is not what is measured."""

    def command(self, *, flush_always: bool) -> Sequence[str]:
        return [*super().command(flush_always=flush_always), "--group-initial-rebalance-delay-ms", "0"]


@dataclass(frozen=True, slots=True)
class Cost:
    """One piece of work, one round: CPU per message with little and with much."""

    case: str
    work: str
    amount: int
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Restart:
    how: str
    data_bytes: int
    ready_s: float
    acknowledged_s: float


def main() -> int:
    arguments = _parse()
    scale = TINY if arguments.tiny else QUICK if arguments.quick else FULL
    load_before = os.getloadavg()[0]
    subprocess.run(["make", "-s", "-C", str(ROOT / "bench"), str(RAW)], check=True)
    only = set(arguments.only.split(",")) if arguments.only else set(PARTS)
    directory = Path(arguments.data)
    costs: list[Cost] = []
    for case in CASES:
        if case.name in only:
            costs += measure(case, scale, arguments.rounds, directory)
    restarts = measure_restarts(scale, arguments.rounds, directory) if RESTART in only else []
    lines = [
        "",
        f"`{' '.join(['python -m bench.growth', *sys.argv[1:]])}` on {time.strftime('%Y-%m-%d', time.gmtime())}: "
        f"{arguments.rounds} alternating rounds of {GrowingPenstock(directory).version()}.",
        f"Machine: {machine()}; load average {load_before:.1f} before the run began.",
        "",
        "Broker CPU in µs per message (or commit), median (smallest to largest):",
        "",
        *growth_table(costs),
        "",
        *restart_table(restarts),
        "",
    ]
    print("\n".join(lines))
    if arguments.output:
        rewrite(Path(arguments.output), lines, BEGIN, END)
    return 0


def measure(case: Case, scale: GrowthScale, rounds: int, directory: Path) -> list[Cost]:
    """Rounds of one case on a broker with little and one with much, both running all the time."""
    amounts = case.amounts(scale)
    with ExitStack() as stack:
        sides: dict[int, tuple[Driver, Works]] = {}
        for amount in amounts:
            peer = GrowingPenstock(directory / f"{case.name.replace(' ', '-')}-{amount}")
            stack.callback(shutil.rmtree, peer.directory, ignore_errors=True)
            stack.callback(peer.stop)
            peer.start()
            driver = Driver(peer)
            sides[amount] = driver, stack.enter_context(case.prepare(driver, amount, scale))
        if scale.settles:
            settle(directory)
        for _, works in sides.values():
            for work in works.values():
                work()
        costs: list[Cost] = []
        for number in range(rounds):
            for name in sides[amounts[0]][1]:
                for amount in amounts if number % 2 == 0 else amounts[::-1]:
                    costs.append(_measured(case, name, amount, *sides[amount]))
        return costs


def _measured(case: Case, name: str, amount: int, driver: Driver, works: Works) -> Cost:
    before_s = running_s(driver.peer.pid)
    count = works[name]()
    cost = Cost(case.name, name, amount, (running_s(driver.peer.pid) - before_s) * 1e6 / count)
    print(f"{case.name:22} {amount:>10,} {name:28} {cost.cpu_us:8.3f} µs", file=sys.stderr, flush=True)
    return cost


def measure_restarts(scale: GrowthScale, rounds: int, directory: Path) -> list[Restart]:
    """Start on nothing and on a lot; stopped in order, killed a moment after a write, and killed right after all."""
    found: list[Restart] = []
    for data_bytes in (0, scale.data_bytes):
        peer = GrowingPenstock(directory / f"restart-{data_bytes}")
        try:
            peer.start()
            driver = Driver(peer)
            with driver.topic(RESTART_PARTITIONS) as topic:
                _write(driver, topic, data_bytes)
                if data_bytes:
                    found.append(_restart(driver, topic, data_bytes, KILLED_UNDER_LOAD))
                for _ in range(rounds):
                    found.append(_restart(driver, topic, data_bytes, CLEAN))
                    _write(driver, topic, scale.unsettled_bytes if data_bytes else 0)
                    found.append(_restart(driver, topic, data_bytes, KILLED))
        finally:
            peer.stop()
            shutil.rmtree(peer.directory, ignore_errors=True)
    return found


def _write(driver: Driver, topic: str, data_bytes: int) -> None:
    batch = batch_file(RESTART_RECORDS, SIZE)
    requests = data_bytes // batch.stat().st_size
    if requests:
        options = {"partitions": RESTART_PARTITIONS, "batch": batch, "records": RESTART_RECORDS, "requests": requests}
        driver.raw("produce", [topic], settled=False, **options)


def _restart(driver: Driver, topic: str, data_bytes: int, how: str) -> Restart:
    peer = driver.peer
    if how != CLEAN:
        os.kill(peer.pid, signal.SIGKILL)
    peer.end()
    ready_s = peer.launch()
    driver.raw("produce", [topic], settled=False, batch=batch_file(1, SIZE), records=1, requests=1)
    restart = Restart(how, data_bytes, ready_s, time.monotonic() - peer.begun_s)
    print(
        f"{RESTART:22} {data_bytes:>14,} {how:40} {restart.ready_s:.3f} s to the first answer, "
        f"{restart.acknowledged_s:.3f} s to the first acknowledgement",
        file=sys.stderr,
        flush=True,
    )
    return restart


def growth_table(costs: Sequence[Cost]) -> list[str]:
    lines = [
        "| what grows | from, to | work | with little | with much | much / little | target |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, work in dict.fromkeys((cost.case, cost.work) for cost in costs):
        chosen = [cost for cost in costs if (cost.case, cost.work) == (case, work)]
        little, much = min(cost.amount for cost in chosen), max(cost.amount for cost in chosen)
        small = [cost.cpu_us for cost in chosen if cost.amount == little]
        large = [cost.cpu_us for cost in chosen if cost.amount == much]
        ratio = statistics.median(large) / statistics.median(small)
        verdict = f"≤ {RATIO_MAX:g}: {_verdict(ratio <= RATIO_MAX)}"
        lines.append(
            f"| {case} | {little:,}, {much:,} | {work} | {spread(small)} | {spread(large)} | {ratio:.2f} | {verdict} |"
        )
    return lines


def restart_table(restarts: Sequence[Restart]) -> list[str]:
    if not restarts:
        return []
    lines = [
        "| start on | after it was | s to the first answer | s to the first acknowledgement | target |",
        "|---|---|---|---|---|",
    ]
    for data_bytes, how in dict.fromkeys((restart.data_bytes, restart.how) for restart in restarts):
        chosen = [restart for restart in restarts if (restart.data_bytes, restart.how) == (data_bytes, how)]
        ready = [restart.ready_s for restart in chosen]
        acknowledged = [restart.acknowledged_s for restart in chosen]
        limit_s = RESTART_S_MAX[how]
        verdict = f"< {limit_s:g} s: {_verdict(statistics.median(ready) < limit_s)}"
        amount = f"{data_bytes / 1e9:g} GB" if data_bytes else "nothing"
        lines.append(f"| {amount} | {how} | {spread(ready)} | {spread(acknowledged)} | {verdict} |")
    return lines


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two rounds of less, printed only")
    parser.add_argument("--tiny", action="store_true", help="one round of next to nothing: whether it works at all")
    parser.add_argument("--rounds", type=int, help="how often each is measured (5, with --quick 2)")
    parser.add_argument("--only", help=f"a comma-separated choice of: {', '.join(PARTS)}")
    parser.add_argument("--data", default=str(WORK / "growth"), help="where the brokers keep their data meanwhile")
    parser.add_argument("--output", help="the page to rewrite (bench/RESULTS.md; with --quick, --tiny or --only none)")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.tiny else 2 if arguments.quick else 5)
    if arguments.output is None and not (arguments.quick or arguments.tiny or arguments.only):
        arguments.output = str(ROOT / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
