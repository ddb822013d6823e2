"""Kills drivers, workers and the broker during queries: readers must see each row once, in order, with right counts."""

from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest

from faults.rounds import ROUNDS, SEED
from faults.spark.run import Victim, running
from spark.cluster.machines import Cluster

KILLS: dict[str, tuple[Victim, ...]] = {"local": (Victim.WORKER, Victim.BROKER, Victim.PLANNER, Victim.DRIVER)}
"""The victims of a round, in random order. Few drivers are killed, because they are slow to start."""
if ROUNDS > 1:
    KILLS = {
        "local": (*(Victim.WORKER, Victim.BROKER, Victim.DRIVER) * 4, Victim.PLANNER, Victim.PLANNER),
        "cluster": (*(Victim.EXECUTOR,) * 8, Victim.WORKER, Victim.BROKER),
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("place", KILLS)
@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_each_row_is_written_once_when_processes_are_killed(tmp_path: Path, place: str, round_number: int) -> None:
    random = Random(f"{SEED} {round_number} {place}")
    with (
        Cluster(tmp_path, 2) if place == "cluster" else nullcontext() as cluster,
        running(tmp_path, random, cluster) as run,
    ):
        for victim in random.sample(KILLS[place], len(KILLS[place])):
            run.kill(victim)
        run.finish()
        # Spark has one process for the driver's part of a source; if it is killed, the query fails and is restarted.
        assert len(run.driver.failures()) <= 2 * KILLS[place].count(Victim.PLANNER)
