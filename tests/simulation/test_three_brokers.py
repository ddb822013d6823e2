"""Tests three brokers on three machines in one loop: faults affect only their machine, and runs are repeatable."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from builders.loops import for_each
from builders.simulations.three_brokers import BROKERS, damaged, faults_of_every_kind, run_three_brokers
from millstream.testing.simulation.faults import Fault, FaultKind

TESTS = Path(__file__).parents[1]


SOME_UNDAMAGED = [seed for seed in range(1, 40) if set(BROKERS) - damaged(faults_of_every_kind(seed))][:8]


@for_each("seed", SOME_UNDAMAGED)
def test_undamaged_brokers_keep_what_they_acknowledged(seed: int) -> None:
    faults = faults_of_every_kind(seed)
    run = run_three_brokers(seed, faults)
    assert run.failures == []
    for host in set(BROKERS) - damaged(faults):
        broker = run.brokers[host]
        assert broker.stored is not None, f"{host} could not be read"
        assert broker.acknowledged
        assert set(broker.acknowledged) <= set(broker.stored)


@pytest.mark.parametrize("seed", [1, 4])
def test_a_plan_of_all_faults_has_one_digest_in_every_process(seed: int) -> None:
    def digest(hash_seed: str) -> str:
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-m", "builders.simulations.three_brokers", str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        return done.stdout.strip()

    assert {fault.kind for fault in faults_of_every_kind(seed)} == set(FaultKind)
    assert digest("1") == digest("2") == run_three_brokers(seed, faults_of_every_kind(seed)).digest


def test_different_seeds_have_different_digests() -> None:
    assert len({run_three_brokers(seed, ()).digest for seed in range(3)}) == 3


@pytest.mark.parametrize(
    "fault",
    [
        Fault(5.0, FaultKind.PAUSE, 10.0, "broker-2"),
        Fault(5.0, FaultKind.POWER_LOSS, 0, "broker-2"),
        Fault(5.0, FaultKind.ONE_WAY, 10.0, "broker-2"),
        Fault(5.0, FaultKind.BLACK_HOLE, 10.0, "client of broker-2", "broker-2"),
        Fault(5.0, FaultKind.DISK_LOST, 0, "broker-2"),
        Fault(5.0, FaultKind.DISK_ROLLED_BACK, 1.0, "broker-2"),
    ],
    ids=lambda fault: fault.kind.value,
)
def test_a_fault_of_one_broker_does_not_slow_the_others(fault: Fault) -> None:
    undisturbed = {host: len(each.acknowledged) for host, each in run_three_brokers(1, ()).brokers.items()}
    disturbed = {host: len(each.acknowledged) for host, each in run_three_brokers(1, [fault]).brokers.items()}
    for host in ("broker-1", "broker-3"):
        assert disturbed[host] == pytest.approx(undisturbed[host], rel=0.1)
    assert disturbed["broker-2"] < 0.97 * undisturbed["broker-2"]
