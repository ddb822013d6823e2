"""Tests that the simulation finds planted bugs within a bounded number of seeds, and that these seeds pass without."""

from collections.abc import Callable

import pytest

from builders.planted_bugs import (
    plant_acknowledge_before_flush,
    plant_commit_before_flush,
    plant_exchange_before_flush,
    plant_forget_ids_in_restart,
    plant_index_before_data,
    plant_retry_without_fence,
)
from millstream.testing.simulation.seed_run import SeedVerdict, run_seed

SEEDS = range(1, 101)
Plant = Callable[[pytest.MonkeyPatch], None]


def find(monkeypatch: pytest.MonkeyPatch, plant: Plant, signs: tuple[str, ...]) -> SeedVerdict | None:
    """Return the verdict of the first seed that shows one of the signs under a planted bug."""
    with monkeypatch.context() as patch:
        plant(patch)
        for seed in SEEDS:
            verdict = run_seed(seed, flush="always")
            if any(sign in problem for problem in verdict.problems for sign in signs):
                return verdict
    return None


@pytest.mark.parametrize(
    ("plant", "signs"),
    [
        pytest.param(
            plant_acknowledge_before_flush, ("NOT_DURABLE",), id="acknowledged before the flush, seen at once"
        ),
        pytest.param(plant_acknowledge_before_flush, ("LOST",), id="acknowledged before the flush, seen by the loss"),
        pytest.param(plant_commit_before_flush, ("COMMIT NOT DURABLE",), id="offsets committed before the flush"),
        pytest.param(plant_exchange_before_flush, ("QUARANTINED", "of the table is"), id="exchanged before the flush"),
        pytest.param(
            plant_index_before_data, ("LOST", "VANISHED", "GAP", "QUARANTINED"), id="index written before its data"
        ),
        pytest.param(plant_forget_ids_in_restart, ("STORED TWICE",), id="message ids forgotten by a start"),
        pytest.param(plant_retry_without_fence, ("STORED TWICE",), id="a retry that fences nothing"),
    ],
)
def test_a_planted_bug_is_found_by_a_seed_that_passes_without_it(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, signs: tuple[str, ...]
) -> None:
    found = find(monkeypatch, plant, signs)
    assert found is not None, "no seed found the planted bug"
    assert run_seed(found.seed, flush="always").problems == ()
