"""Tests simulated runs of a whole broker with clients: no guarantee is broken, and a seed repeats its run exactly."""

import logging
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from builders.loops import for_each
from millstream.testing.simulate import main
from millstream.testing.simulation.faults import DAMAGE, Fault, FaultKind
from millstream.testing.simulation.plan import draw_plan
from millstream.testing.simulation.seed_run import run_plan, run_seed

ROUND = range(1, 31)
COMMAND = (sys.executable, "-m", "millstream.testing.simulate")


@for_each("seed", ROUND)
def test_a_simulated_run_of_each_seed_loses_and_reorders_nothing(seed: int) -> None:
    verdict = run_seed(seed)
    replay = f"{' '.join(COMMAND[1:])} --seed {seed}"
    assert verdict.problems == (), f"replay with: python {replay}"
    assert verdict.writes > 0


def test_the_plans_of_all_seeds_cover_every_fault_kind_and_flush_policy() -> None:
    plans = [draw_plan(seed) for seed in ROUND]
    assert {fault.kind for plan in plans for fault in plan.faults} == set(FaultKind) - DAMAGE
    assert {plan.flush for plan in plans} == {"always", "interval", "os"}
    assert {len(plan.members) for plan in plans} == {0, 1, 3}


@for_each("seed", [3, 9, 14])
def test_a_seed_has_the_same_digest_in_every_process_and_hash_seed(seed: int) -> None:
    def digest(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [*COMMAND, "--seed", str(seed)], env=environment, capture_output=True, text=True, timeout=100, check=True
        )
        found = re.search(r"digest ([0-9a-f]{32})", done.stdout)
        assert found is not None, done.stdout
        return found[1]

    assert digest("1") == digest("2") == run_seed(seed).digest


def test_a_seed_has_the_same_digest_after_other_runs() -> None:
    first = [run_seed(seed).digest for seed in (5, 6, 7)]
    logging.getLogger("millstream.node.node").info("a quiet logger remembers that it is quiet")
    again = [run_seed(seed).digest for seed in (7, 6, 5)]
    assert first == again[::-1]
    assert len(set(first)) == 3


def test_log_lines_of_other_threads_do_not_change_a_digest() -> None:
    digest = run_seed(5).digest
    ended = threading.Event()

    def chatter() -> None:
        while not ended.wait(0.001):
            logging.getLogger("millstream.sdk.retrying").warning("another program in this process")

    other = threading.Thread(target=chatter)
    other.start()
    try:
        assert run_seed(5).digest == digest
    finally:
        ended.set()
        other.join()


def test_a_custom_plan_can_be_run() -> None:
    plan = draw_plan(1, flush="always")
    crashes = tuple(Fault(0.3 * n, FaultKind.POWER_LOSS) for n in range(1, 12))
    verdict = run_plan(replace(plan, faults=crashes))
    assert verdict.problems == ()
    assert verdict.crashes > 3


def test_the_command_replays_a_seed_with_its_plan_and_its_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2", "--trace"]) == 0
    said = capsys.readouterr().out
    assert f"digest {run_seed(2).digest}" in said
    assert "seed 2: passed" in said
    assert len(said.splitlines()) > 100


def test_the_command_runs_seeds_and_reports_the_rate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "2", "--from", "8"]) == 0
    assert re.search(r"2 seeds \(8 to 9\) in .* seeds/s, .* 0 failed", capsys.readouterr().out)
    assert main(["--seconds", "0"]) == 0


def test_the_command_prints_the_replay_of_a_failed_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.testing.simulation.world.SETTLING_S", 0.0)
    assert main(["--count", "1", "--from", "4", "--flush", "always"]) == 1
    said = capsys.readouterr().out
    assert "seed 4: FAILED" in said
    assert "replay: python -m millstream.testing.simulate --seed 4 --flush always" in said
    assert main(["--seed", "4"]) == 1
    assert "last events:" in capsys.readouterr().out
