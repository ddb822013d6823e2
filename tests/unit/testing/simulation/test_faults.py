"""Checks that a seed enables kinds of faults, and then draws only faults of these kinds."""

from random import Random

import pytest

from millstream.testing.simulation.faults import (
    DAMAGE,
    LASTING,
    Fault,
    FaultHosts,
    FaultKind,
    draw_fault,
    draw_faults,
    draw_kinds,
)
from millstream.testing.simulation.plan import draw_plan

HOSTS = FaultHosts(brokers=("b1", "b2"), clients=("c1", "c2"), clocks=("b1", "clients"))
SEEDS = range(200)


def test_a_seed_enables_some_kinds_of_faults() -> None:
    drawn = [draw_kinds(Random(seed), FaultKind) for seed in SEEDS]
    assert drawn == [draw_kinds(Random(seed), FaultKind) for seed in SEEDS]
    for kind in FaultKind:
        assert 0.3 < sum(kind in kinds for kinds in drawn) / len(drawn) < 0.7


def test_only_faults_of_enabled_kinds_are_drawn() -> None:
    met = set()
    for seed in SEEDS:
        random = Random(seed)
        kinds = draw_kinds(random, FaultKind)
        faults = draw_faults(random, kinds, 10.0, HOSTS)
        assert {fault.kind for fault in faults} <= set(kinds)
        assert list(faults) == sorted(faults, key=lambda fault: fault.at_s)
        assert all(0 <= fault.at_s <= 10 for fault in faults)
        met |= {fault.kind for fault in faults}
    assert met == set(FaultKind)
    assert draw_faults(Random(1), (), 10.0, HOSTS) == ()


@pytest.mark.parametrize("kind", FaultKind)
def test_a_fault_affects_only_suitable_hosts(kind: FaultKind) -> None:
    faults = [draw_fault(Random(seed), kind, 1.0, HOSTS) for seed in SEEDS]
    network = {FaultKind.CUT, FaultKind.BLACK_HOLE, FaultKind.ONE_WAY}
    expected = (
        {"b1", "b2", "c1", "c2"}
        if kind in network
        else {"b1", "clients"}
        if kind is FaultKind.CLOCK_JUMP
        else {"b1", "b2"}
    )
    assert {fault.host for fault in faults} == expected
    assert all(fault.other != fault.host for fault in faults)
    assert {fault.other is None for fault in faults} == ({True, False} if kind in network else {True})
    assert all(fault.amount > 0 for fault in faults if kind in LASTING)


def test_plans_of_a_single_broker_contain_no_disk_damage() -> None:
    plans = [draw_plan(seed) for seed in SEEDS]
    assert all(not DAMAGE & set(plan.kinds) for plan in plans)
    assert all({fault.kind for fault in plan.faults} <= set(plan.kinds) for plan in plans)
    assert {plan.clock_rate for plan in plans} == {0.9, 1.0, 1.1}


def test_the_text_of_a_fault_has_its_hosts() -> None:
    assert str(Fault(1.5, FaultKind.ONE_WAY, 5.0, "a", "b")) == "1.500 s: one-way block, a > b 5"
    assert str(Fault(2.0, FaultKind.CRASH_IN_WRITE, 7, "a", power_loss=True)) == (
        "2.000 s: crash in a write, a 7 with power loss"
    )
