"""Tests that an index agrees with its log after a power loss before every disk operation."""

from random import Random

import pytest

from builders.run_site import DUE_TIMES, Fault, RunSite, due
from millstream.testing.simulated.disk import PowerLoss

SEEDS = range(8)


def story(site: RunSite) -> None:
    """Save, merge, truncate, and write other messages at the truncated offsets."""
    for first in range(0, 16, 4):
        site.append(*(due(number % 5) for number in range(first, first + 4)))
        site.save()
    site.merge()
    site.truncate(7)
    site.append(due(8), due(9))
    site.save()
    site.truncate(8)
    site.append(due(7), due(6))


def operations() -> int:
    site = RunSite(DUE_TIMES)
    before = site.disk.operations
    story(site)
    return site.disk.operations - before


@pytest.mark.parametrize("loses_log", [False, True], ids=["whole_log", "shorter_log"])
def test_power_loss_at_any_moment_leaves_an_index_that_agrees_with_the_log(loses_log: bool) -> None:
    assert operations() > 40
    for number in range(1, operations() + 1):
        for seed in SEEDS:
            site, random = RunSite(DUE_TIMES), Random(seed)
            site.disk.before = Fault(number, PowerLoss)
            with pytest.raises(PowerLoss):
                story(site)
            site.disk.before = None
            site.disk.power_loss(random)
            if loses_log:
                del site.keys[random.randint(0, site.end_offset) :]
            site.restart()
            assert site.due() == site.live(), f"operation {number}, seed {seed}"
            site.append(due(3), due(1))
            site.disk.power_loss(random)
            site.restart()
            assert site.due() == site.live(), f"operation {number}, seed {seed}, second loss"
            site.save()
            site.restart()
            runs = {run.path for run in site.index.runs}
            assert {f"/log/{name}" for name in site.disk.list("/log") if name.endswith(".run")} == runs
