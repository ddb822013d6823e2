"""Plays seeds of the simulation (`python -m millstream.testing.simulate`): one seed, or as many as fit into a time."""

import argparse
import sys
import time
from collections.abc import Sequence

from millstream.testing.simulation.plan import Flush
from millstream.testing.simulation.seed_run import SeedVerdict, run_seed

_FLUSHES: tuple[Flush, ...] = ("always", "interval", "os")


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the requested seeds. Return 0 if none failed."""
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        return _replay(options.seed, options.flush, verbose=options.trace)
    return _explore(options.first, options.seconds, options.count, options.flush)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m millstream.testing.simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one seed and print its plan, its digest and its verdict")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every event")
    parser.add_argument("--seconds", type=float, default=60.0, help="play as many seeds as fit into this time (60)")
    parser.add_argument("--count", type=int, help="play this many seeds, however long it takes")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--flush", choices=_FLUSHES, help="play every seed under this flush policy")
    return parser


def _replay(seed: int, flush: Flush | None, *, verbose: bool) -> int:
    verdict = run_seed(seed, flush=flush, listener=_print if verbose else None)
    for line in verdict.plan.lines():
        _print(line)
    if verdict.problems and not verbose:
        _print("last events:")
        for line in verdict.last_events[-40:]:
            _print(f"  {line}")
    _print(_summary(verdict))
    for problem in verdict.problems:
        _print(f"  {problem}")
    return 1 if verdict.problems else 0


def _explore(first: int, seconds: float, count: int | None, flush: Flush | None) -> int:
    began_s = time.monotonic()
    failed: list[SeedVerdict] = []
    seed, simulated_s = first, 0.0
    while seed - first < count if count is not None else time.monotonic() - began_s < seconds:
        verdict = run_seed(seed, flush=flush)
        simulated_s += verdict.simulated_s
        if verdict.problems:
            failed.append(verdict)
            _print(_summary(verdict))
            _print(f"  {verdict.problems[0]}")
            _print(f"  replay: {_command(seed, flush)}")
        seed += 1
    took_s = max(time.monotonic() - began_s, 1e-9)
    played = seed - first
    _print(
        f"{played} seeds ({first} to {seed - 1}) in {took_s:.1f} s: {played / took_s:.1f} seeds/s, "
        f"{simulated_s / 3600:.2f} h of simulated time, {len(failed)} failed"
    )
    return 1 if failed else 0


def _command(seed: int, flush: Flush | None) -> str:
    return f"python -m millstream.testing.simulate --seed {seed}" + (f" --flush {flush}" if flush else "")


def _summary(verdict: SeedVerdict) -> str:
    result = f"FAILED, {len(verdict.problems)} problems" if verdict.problems else "passed"
    return (
        f"seed {verdict.seed}: {result}; {verdict.writes} writes, {verdict.crashes} crashes, {verdict.steps} steps, "
        f"{verdict.simulated_s:.1f} s simulated, digest {verdict.digest}"
    )


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
