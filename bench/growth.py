"""Compares Millstream with itself, with little and with much data: `python -m bench.growth [--quick] [--only PARTS]
[--page]`.

Two brokers run side by side, one with little of what grows (messages, partitions, connections, groups) and one with
much of it. Both do the same work in alternating rounds. The figure is the broker's CPU time per message, from the
scheduler in nanoseconds; the target is growth within ten percent. Then both brokers are idle, to measure their cost at
rest. Finally, a broker with ten gigabytes is restarted many times, see `restarting`.

Each part stores its samples. A complete run writes its section of the page; `--page` writes it from the stored samples
of parts that ran separately.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import growing, restarting
from bench.driver import RAW, Driver, settle
from bench.growing import Case, GrowthScale, Works
from bench.growth_tables import (
    Cost,
    Found,
    Part,
    Standing,
    growth_plot,
    growth_table,
    keep,
    kept_parts,
    restart_table,
    samples_table,
    standing_table,
)
from bench.peers import ROOT, WORK, Millstream
from bench.processes import resident_mb, running_s
from bench.report import machine, rewrite
from bench.restarting import RestartCase, RestartScale, measure_restarts

BEGIN = "<!-- growth:begin (written by bench/growth.py) -->"
END = "<!-- growth:end -->"
PLOT = "plots/growth.svg"
PARTS = (*(case.name for case in growing.CASES), *(case.name for case in restarting.CASES))


class GrowingMillstream(Millstream):
    """A broker whose groups form without delay: the initial rebalance delay is not to be measured."""

    def command(self, *, flush_always: bool) -> Sequence[str]:
        return [*super().command(flush_always=flush_always), "--group-initial-rebalance-delay-ms", "0"]


def main() -> int:
    arguments = _parse()
    directory = Path(arguments.data)
    directory.mkdir(parents=True, exist_ok=True)
    if not arguments.page:
        subprocess.run(["make", "-s", "-C", str(ROOT / "bench"), str(RAW)], check=True)
        for name in arguments.only or PARTS:
            run_part(name, arguments, directory)
    kept = kept_parts(_samples(arguments))
    lines = page({name: kept[name] for name in arguments.only or PARTS if name in kept})
    print("\n".join(lines))
    if arguments.output:
        write(Path(arguments.output), lines, [cost for part in kept.values() for cost in part.found.costs])
    return 0


def write(path: Path, lines: Sequence[str], costs: Sequence[Cost]) -> None:
    """Rewrites this section of the page, with a plot if there are costs."""
    if costs:
        plot = path.parent / PLOT
        plot.parent.mkdir(exist_ok=True)
        plot.write_text(growth_plot(costs))
        lines = ["", f"![Broker CPU per message as something grows]({PLOT})", *lines]
    rewrite(path, lines, BEGIN, END)


def run_part(name: str, arguments: argparse.Namespace, directory: Path) -> None:
    load_before = os.getloadavg()[0]
    found = _parts(arguments, directory)[name]()
    keep(
        _samples(arguments),
        name,
        Part(
            " ".join(["python -m bench.growth", *sys.argv[1:]]),
            GrowingMillstream(directory).version(),
            time.strftime("%Y-%m-%d", time.gmtime()),
            load_before,
            found,
        ),
    )


def _samples(arguments: argparse.Namespace) -> Path:
    """Returns the file for samples. Quick and tiny runs have files of their own."""
    size = "-tiny" if arguments.tiny else "-quick" if arguments.quick else ""
    return Path(arguments.data, f"samples{size}.json")


def _parts(arguments: argparse.Namespace, directory: Path) -> dict[str, Callable[[], Found]]:
    size = "TINY" if arguments.tiny else "QUICK" if arguments.quick else "FULL"
    scale, restart_scale = getattr(growing, size), getattr(restarting, size)
    rounds, restart_rounds = arguments.rounds, min(arguments.rounds, 3)
    parts: dict[str, Callable[[], Found]] = {}
    for case in growing.CASES:
        parts[case.name] = partial(measure, case, scale, rounds, directory)
    for restart in restarting.CASES:
        parts[restart.name] = partial(_restarts, restart, restart_scale, restart_rounds, directory)
    return parts


def _restarts(case: RestartCase, scale: RestartScale, rounds: int, directory: Path) -> Found:
    return Found(restarts=measure_restarts(case, scale, rounds, directory))


def measure(case: Case, scale: GrowthScale, rounds: int, directory: Path) -> Found:
    """Runs the rounds of one case on a broker with little and one with much, both running all the time."""
    amounts = case.amounts(scale)
    with ExitStack() as stack:
        sides: dict[int, tuple[Driver, Works]] = {}
        for amount in amounts:
            peer = GrowingMillstream(directory / f"{case.name.replace(' ', '-')}-{amount}")
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
        return Found(costs, _at_rest(case, {amount: driver for amount, (driver, _) in sides.items()}, scale))


def _measured(case: Case, name: str, amount: int, driver: Driver, works: Works) -> Cost:
    before_s = running_s(driver.peer.pid)
    count = works[name]()
    cost = Cost(case.name, name, amount, (running_s(driver.peer.pid) - before_s) * 1e6 / count)
    print(f"{case.name:22} {amount:>10,} {name:34} {cost.cpu_us:8.3f} µs", file=sys.stderr, flush=True)
    return cost


def _at_rest(case: Case, drivers: dict[int, Driver], scale: GrowthScale) -> list[Standing]:
    before_s = {amount: running_s(driver.peer.pid) for amount, driver in drivers.items()}
    time.sleep(scale.rest_s)
    return [
        Standing(
            case.name,
            amount,
            resident_mb(driver.peer.pid),
            (running_s(driver.peer.pid) - before_s[amount]) * 1e3 * 60 / scale.rest_s,
        )
        for amount, driver in drivers.items()
    ]


def page(parts: dict[str, Part]) -> list[str]:
    """Returns the section for the parts that were measured."""
    found = sum((part.found for part in parts.values()), Found())
    lines = ["", f"Machine: {machine()}.", ""]
    lines += [
        f"- {name}: `{part.command}` of {part.version} on {part.date}, load average {part.load_before:.1f} before"
        for name, part in parts.items()
    ]
    if found.costs:
        lines += ["", "Broker CPU in µs per message (batch, commit, heartbeat), median (smallest to largest):", ""]
        lines += [*growth_table(found.costs), "", "Memory after all that, and CPU when nothing is asked:", ""]
        lines += standing_table(found.standing)
    if found.restarts:
        lines += ["", *restart_table(found.restarts)]
    return [*lines, "", "Round by round:", "", *samples_table(found), ""]


def _names(text: str) -> list[str]:
    names = text.split(",")
    if not set(names) <= set(PARTS):
        raise argparse.ArgumentTypeError(f"unknown part in {names}; --help lists them")
    return names


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds; results are only printed")
    parser.add_argument("--tiny", action="store_true", help="one minimal round, to test the bench itself")
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 7; 2 with --quick)")
    parser.add_argument("--only", type=_names, help=f"comma-separated parts to run, of: {', '.join(PARTS)}")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page from the stored samples")
    parser.add_argument("--data", default=str(WORK / "growth"), help="directory for the brokers' data and the samples")
    parser.add_argument(
        "--output", help="page to rewrite (default: bench/RESULTS.md; none with --quick, --tiny, --only)"
    )
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.tiny else 2 if arguments.quick else 7)
    if arguments.output is None and not (arguments.quick or arguments.tiny or arguments.only):
        arguments.output = str(ROOT / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
