"""Compares the broker of the working tree with that of another commit: `python -m bench.against COMMIT`.

Both are built from git and run on this machine in alternating rounds, driven by the load tools of the working tree.
Each measure gets the ratio new / old of every round, its median and interquartile range, and a verdict: `ok` when the
median is within 5 %, `better` or `regression` when it differs by more and the range excludes 1.0, else `unclear`.
With fewer than 5 rounds a difference of more than 5 % is always `unclear`.

The exit code is 0 without a regression, 1 with one, 2 when the comparison failed, 130 when it was interrupted.
"""

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from bench.against.builds import Builds
from bench.against.checkout import Checkout
from bench.against.measures import MEASURES, NAMES
from bench.against.outcome import Outcome
from bench.against.side import NEW, OLD, Side
from bench.building import run
from bench.driver import RAW
from bench.peers import ROOT, WORK
from bench.processes import end_children
from bench.rounds import Interrupts, Rounds
from bench.workloads import FULL, QUICK, TINY

EXIT_FAILED = 2
EXIT_INTERRUPTED = 130


def main() -> int:
    arguments = _parse()
    interrupts = Interrupts()
    interrupts.watch()
    try:
        return _compare(arguments, interrupts)
    except KeyboardInterrupt:
        _tell("interrupted")
        return EXIT_INTERRUPTED
    except (RuntimeError, OSError) as error:
        _tell(str(error))
        return EXIT_FAILED
    finally:
        end_children()


def _compare(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    load_average = os.getloadavg()[0]
    measures = [measure for measure in MEASURES if measure.name in (arguments.only or NAMES)]
    sides = _sides(arguments.commit, Path(arguments.data))
    run("make", "-s", "-C", ROOT / "bench", RAW)
    scale = TINY if arguments.tiny else QUICK if arguments.quick else FULL
    rounds = Rounds(sides, arguments.rounds, scale, Path(arguments.data), interrupts)
    workloads = dict.fromkeys(measure.workload for measure in measures)
    interrupted = False
    with ExitStack() as stack:
        for side in sides:
            stack.callback(side.stop)
        try:
            rounds.run([one for one in workloads if one is not None], starts=None in workloads, memory=False)
        except KeyboardInterrupt:
            interrupted = True
    versions = {side.name: side.version() for side in sides}
    comparisons = [measure.compare(rounds.samples) for measure in measures]
    outcome = Outcome(versions, arguments.rounds, load_average, comparisons, rounds.failures, interrupted)
    print(outcome.text(), flush=True)
    if arguments.json:
        outcome.write_json(Path(arguments.json))
    return EXIT_INTERRUPTED if interrupted else outcome.exit_code


def _sides(commit: str, data: Path) -> tuple[Side, Side]:
    """Builds both sides, and checks that they can be compared."""
    checkout = Checkout(ROOT)
    builds = Builds(checkout, WORK / "against", _tell)
    builds.remove_unused()
    revisions = {OLD: checkout.commit(commit), NEW: checkout.working_tree()}
    built = {name: builds.build(revision) for name, revision in revisions.items()}
    old, new = (Side(name, data / name, revision, built[name]) for name, revision in revisions.items())
    for side in (old, new):
        side.check()
    differing = built[OLD].project.requirements ^ built[NEW].project.requirements
    if differing:
        _tell(
            f"both sides use the packages of {sys.prefix}, but declare different ones: {', '.join(sorted(differing))}"
        )
    return old, new


def _tell(text: str) -> None:
    print(f"bench.against: {text}", file=sys.stderr, flush=True)


def _parse() -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=__doc__, formatter_class=formatter)
    parser.add_argument("commit", metavar="COMMIT", help="the commit to compare with, by any name that git knows")
    parser.add_argument("--rounds", type=_count, help="how often each side runs each workload (9; 3 with --quick)")
    parser.add_argument(
        "--only",
        action="append",
        choices=NAMES,
        metavar="MEASURE",
        help=f"measure only this; repeat it for several (of: {', '.join(NAMES)})",
    )
    parser.add_argument("--quick", action="store_true", help="three rounds of less work, for a first look")
    parser.add_argument("--tiny", action="store_true", help="one round of next to no work, to test the tool itself")
    parser.add_argument("--json", metavar="PATH", help="also write the outcome with every round to this file")
    parser.add_argument("--data", default=str(WORK / "against-data"), help="data directory of the brokers")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.tiny else 3 if arguments.quick else 9)
    if arguments.json and not Path(arguments.json).absolute().parent.is_dir():
        parser.error(f"--json: the directory of {arguments.json} does not exist; create it first")
    return arguments


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of rounds (1 or more)')
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
