"""Drivers, workers and the broker are killed in the middle of queries that count and write: readers see every row once,
in order, and the counts are right."""

from pathlib import Path
from random import Random

import pytest

from faults.rounds import ROUNDS, SEED
from faults.spark.run import Victim, running

KILLS = (Victim.WORKER, Victim.BROKER) * 2 + (Victim.DRIVER,) if ROUNDS == 1 else tuple(Victim) * 3
"""In a round; a driver takes long to start."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_whatever_is_killed_each_row_is_written_once_and_the_counts_are_right(
    tmp_path: Path, round_number: int
) -> None:
    random = Random(f"{SEED} {round_number} spark")
    with running(tmp_path, random) as run:
        for victim in random.sample(KILLS, len(KILLS)):
            run.kill(victim)
        run.finish()
        assert run.driver.failures() == []
