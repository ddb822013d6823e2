"""The growth bench's tables: what is compared with what, and what counts as met."""

from bench.growth import CLEAN, KILLED, Cost, Restart, growth_table, restart_table


def test_growth_is_the_ratio_of_the_medians_and_flat_within_a_tenth_is_met() -> None:
    little = [Cost("groups", "produce", 1, cpu_us) for cpu_us in (2.0, 1.0, 9.0)]
    much = [Cost("groups", "produce", 1000, cpu_us) for cpu_us in (2.2, 2.1, 2.2)]

    assert growth_table([*little, *much])[2:] == [
        "| groups | 1, 1,000 | produce | 2 (1 to 9) | 2.2 (2.1 to 2.2) | 1.10 | ≤ 1.1: met |"
    ]
    dearer = [Cost("groups", "produce", 1000, cpu_us=3.0)]
    assert growth_table([*little, *dearer])[2].endswith("| 1.50 | ≤ 1.1: **missed** |")


def test_starts_are_held_to_the_limit_of_the_way_in_which_the_broker_ended() -> None:
    found = [Restart(CLEAN, 10_000_000_000, 1.5, 1.6), Restart(KILLED, 10_000_000_000, 1.5, 1.6)]

    assert restart_table(found)[2:] == [
        "| 10 GB | stopped in order | 1.5 | 1.6 | < 1 s: **missed** |",
        "| 10 GB | killed | 1.5 | 1.6 | < 3 s: met |",
    ]
