"""Tests rounds with failing workloads and with an interrupt."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.driver import Driver, Sample, batch_file
from bench.floor import FLOOR, Floor
from bench.peers import ROOT
from bench.rounds import Interrupts, Rounds
from bench.workloads import TINY, Scale, Workload

Fail = Callable[[], None]


@pytest.fixture
def peer(tmp_path: Path) -> Floor:
    subprocess.run(["make", "-s", "-C", str(ROOT / "bench"), str(FLOOR)], check=True)
    return Floor(tmp_path / "peer", "copy", batch_file(1, 100), 1)


def run(peer: Floor, tmp_path: Path, at: int, fail: Fail) -> Rounds:
    """Run a warm-up and two rounds of a workload that calls `fail` from its `at`th attempt on."""
    attempts = 0

    def work(driver: Driver, scale: Scale) -> Iterator[Sample]:
        nonlocal attempts
        attempts += 1
        if attempts >= at:
            fail()
        assert driver.peer.is_running
        yield Sample("work", driver.peer.name, {"attempt": float(attempts)})

    rounds = Rounds([peer], 2, TINY, tmp_path, Interrupts())
    rounds.run([Workload("work", False, work, "work")], starts=False, memory=False)
    return rounds


def test_a_failed_measurement_is_retried_on_a_restarted_broker(peer: Floor, tmp_path: Path) -> None:
    failed: list[bool] = []

    def fail() -> None:
        if not failed:
            failed.append(True)
            peer.end()
            raise RuntimeError("once")

    rounds = run(peer, tmp_path, at=2, fail=fail)

    assert [sample.metrics["attempt"] for sample in rounds.samples] == [3.0, 4.0]
    assert rounds.failures == []


def test_a_measurement_that_fails_twice_is_recorded_and_skipped(peer: Floor, tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("always\nand a long log")

    rounds = run(peer, tmp_path, at=3, fail=fail)

    assert len(rounds.samples) == 1
    assert [(one.workload, one.peer, one.reason) for one in rounds.failures] == [("work", "floor, copy", "always")]
    assert not peer.is_running


def test_an_interrupt_ends_the_run_and_its_broker(peer: Floor, tmp_path: Path) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(peer, tmp_path, at=2, fail=fail)

    assert not peer.is_running
    assert list(peer.directory.glob("data*")) == []
