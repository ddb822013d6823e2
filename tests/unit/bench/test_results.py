"""Tests how samples become results: ratios, verdicts, floors, and plots."""

import xml.etree.ElementTree as ElementTree

import pytest
from bench.driver import Sample
from bench.plots import lines, ratios
from bench.processes import Usage
from bench.report import comparison, floor_table, verdicts
from bench.targets import rows

LABEL = "produce 100 B, raw"


def sample(peer: str, figure: float, metric: str = "CPU-s per million", workload: str = LABEL) -> Sample:
    return Sample(workload, peer, {metric: figure})


def busy(peer: str, rate: float, cpu_s: float) -> Sample:
    """Returns a sample of one second in which the broker used `cpu_s` of CPU."""
    usage = Usage(cpu_s, cpu_s, 0.0, 0, 0, 0, 0)
    return Sample(LABEL, peer, {"M messages/s": rate}, usage, {"seconds": 1.0})


@pytest.mark.parametrize(
    ("metric", "kafka", "millstream", "is_met"),
    [
        ("CPU-s per million", 2.0, 1.0, True),
        ("CPU-s per million", 2.0, 1.1, False),
        ("M messages/s", 1.0, 1.2, True),
        ("M messages/s", 1.0, 1.1, False),
        ("p50 µs", 1.0, 1.0, None),
    ],
)
def test_a_bench_target_is_judged_by_the_ratio_of_the_medians(
    metric: str, kafka: float, millstream: float, is_met: bool | None
) -> None:
    samples = [sample("Kafka", figure, metric) for figure in (kafka, kafka / 10, kafka * 10)]
    (row,) = rows([*samples, sample("Millstream", millstream, metric)])
    assert row.is_met is is_met


def test_without_kafka_figures_are_shown_without_verdicts() -> None:
    alone = [sample("Millstream", 0.5)]
    assert comparison(alone)[2:] == [f"| {LABEL} | CPU-s per million |  | 0.5 |  |"]
    assert "nothing to compare with" in verdicts(alone)[0]


def test_verdicts_count_met_targets_and_show_the_spread_of_the_rounds() -> None:
    found = verdicts([sample("Kafka", 4.0), sample("Kafka", 2.0), sample("Kafka", 3.0), sample("Millstream", 0.3)])
    assert found[0] == "**1 of 1 targets met.**"
    assert found[-1] == f"| {LABEL} | CPU-s per million | 3 (2 to 4) | 0.3 | 0.10 | ≤ 0.5 | met |"


def test_a_missed_rate_target_is_the_clients_limit_when_both_brokers_are_idle() -> None:
    limited = verdicts([busy("Kafka", 1.0, cpu_s=0.4), busy("Millstream", 1.0, cpu_s=0.1)])
    assert limited[-1].endswith("**missed**; client's limit, brokers busy 40% and 10% |")
    its_own = verdicts([busy("Kafka", 1.0, cpu_s=0.9), busy("Millstream", 1.0, cpu_s=0.1)])
    assert its_own[-1].endswith("**missed** |")


def test_the_floor_table_shows_broker_costs_as_multiples_of_the_floor_servers_cost() -> None:
    metric, workload = "CPU-s per GB", "consume 1 KB, raw"
    found = floor_table(
        [
            sample("Kafka", 0.6, metric, workload),
            sample("Millstream", 0.3, metric, workload),
            sample("floor, sendfile", 0.1, metric, workload),
            sample("Millstream", 0.3, metric, "consume 100 B, raw"),
        ]
    )
    assert found[2:] == [f"| {workload} | sendfile | 0.1 | 6.00 | 3.00 |"]
    assert floor_table([sample("Kafka", 0.6, metric)]) == []


def test_a_plot_of_ratios_is_valid_svg_and_deterministic() -> None:
    chosen = rows([sample("Kafka", 2.0), sample("Kafka", 4.0), sample("Millstream", 1.0), sample("Millstream", 1.5)])
    plot = ratios("A < B", chosen)
    assert plot == ratios("A < B", chosen)
    drawn = ElementTree.fromstring(plot)
    kinds = [part.get("class") for part in drawn.iter()]
    assert kinds.count("met") == 1
    assert kinds.count("target") == 1
    assert any(part.text == f"{LABEL}, CPU-s per million" for part in drawn.iter())
    assert "prefers-color-scheme: dark" in plot


def test_a_plot_of_growth_has_a_line_for_each_series_and_the_limit() -> None:
    plot = lines("Growth", {"produce": [(1, 1.0), (1000, 1.05)], "consume": [(0, 1.0), (5000, 0.9)]}, limit=1.1)
    kinds = [part.get("class") for part in ElementTree.fromstring(plot).iter()]
    assert kinds.count("line") == 2
    assert kinds.count("target") == 1
    assert "consume: 0.90" in plot
