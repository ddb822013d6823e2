"""Drivers, workers and the broker are killed in the middle of queries that count and write: readers see every row once,
in order, and the counts are right."""

from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest

from faults.rounds import ROUNDS, SEED
from faults.spark.run import Victim, running
from spark.cluster.machines import Cluster

KILLS: dict[str, tuple[Victim, ...]] = {"local": (Victim.WORKER, Victim.BROKER, Victim.PLANNER, Victim.DRIVER)}
"""What is killed in a round, in some order. Drivers and clusters take long to start."""
if ROUNDS > 1:
    KILLS = {
        "local": (*(Victim.WORKER, Victim.BROKER, Victim.DRIVER) * 4, Victim.PLANNER, Victim.PLANNER),
        "cluster": (*(Victim.EXECUTOR,) * 8, Victim.WORKER, Victim.BROKER),
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("place", KILLS)
@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_whatever_is_killed_each_row_is_written_once_and_the_counts_are_right(
    tmp_path: Path, place: str, round_number: int
) -> None:
    random = Random(f"{SEED} {round_number} {place}")
    with (
        Cluster(tmp_path, 2) if place == "cluster" else nullcontext() as cluster,
        running(tmp_path, random, cluster) as run,
    ):
        for victim in random.sample(KILLS[place], len(KILLS[place])):
            run.kill(victim)
        run.finish()
        # Spark has one process for the driver's part of a source; without it a query fails, and is started again.
        assert len(run.driver.failures()) <= 2 * KILLS[place].count(Victim.PLANNER)
