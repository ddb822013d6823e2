"""Tests the tables of the growth bench, their verdicts, and the stored samples."""

from pathlib import Path

from bench.growth_tables import (
    Cost,
    Found,
    Part,
    Standing,
    growth_table,
    keep,
    kept_parts,
    restart_table,
    standing_table,
)
from bench.restarting import CLEAN, KILLED, Restart

TEN_GB = 10_000_000_000


def test_growth_targets_are_met_up_to_ten_percent_of_the_median_ratio() -> None:
    little = [Cost("groups", "produce", 1, cpu_us) for cpu_us in (2.0, 4.0, 4.0)]
    much = [Cost("groups", "produce", 1000, cpu_us) for cpu_us in (2.2, 4.4, 9.0)]

    assert growth_table([*little, *much])[2:] == [
        "| groups | 1, 1,000 | produce | 4 (2 to 4) | 4.4 (2.2 to 9) | 1.10 | ≤ 1.1: met |"
    ]
    dearer = [Cost("groups", "produce", 1000, cost.cpu_us * 1.5) for cost in little]
    assert growth_table([*little, *dearer])[2].endswith("| 1.50 | ≤ 1.1: **missed** |")


def test_the_standing_table_shows_memory_per_unit_of_growth() -> None:
    standing = [Standing("idle connections", 0, 40.0, 20.0), Standing("idle connections", 5000, 65.0, 21.0)]

    assert standing_table(standing)[2:] == ["| idle connections | 0, 5,000 | 40 | 65 | 5 | 20 | 21 |"]


def test_restart_limits_depend_on_how_the_broker_ended() -> None:
    found = [Restart("case", CLEAN, TEN_GB, 0.9, 1.6), Restart("case", KILLED, TEN_GB, 1.5, 1.6)]

    assert restart_table(found)[2:] == [
        "| case | 10 GB | stopped in order | 0.9 | 1.6 | < 1 s: **missed** |",
        "| case | 10 GB | killed | 1.5 | 1.6 | < 3 s: met |",
    ]


def test_keep_replaces_the_samples_of_one_part_and_keeps_the_others(tmp_path: Path) -> None:
    cost, restart = Cost("groups", "produce", 1, 2.5), Restart("case", KILLED, TEN_GB, 1.5, 1.6)
    standing = Standing("groups", 1, 40.0, 20.0)
    before, first, second = (
        Part("command", "version", "date", 0.5, found)
        for found in (Found([cost, cost]), Found([cost], [standing]), Found(restarts=[restart]))
    )
    for name, part in (("groups", before), ("restart", second), ("groups", first)):
        keep(tmp_path / "samples", name, part)

    assert kept_parts(tmp_path / "samples") == {"groups": first, "restart": second}
