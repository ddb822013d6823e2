"""Tests the comparison of two commits: names from pyproject.toml, ratios, spread, verdicts, and reuse of compiled
modules.
"""

import os
import time
from pathlib import Path
from typing import Any, cast

import pytest
from bench.against.builds import KEPT_S, STAMP, SUFFIX, Builds, copy_compiled
from bench.against.measures import MEASURES
from bench.against.outcome import Outcome
from bench.against.project import ProjectError, read_project
from bench.against.verdicts import Comparison, Verdict, interquartile_range, judge, summary, table
from bench.driver import Sample
from bench.processes import Usage
from bench.rounds import Failure

SLOWER = [1.1, 1.08, 1.12, 1.09, 1.2]
FASTER = [0.9, 0.8, 0.85, 0.7, 0.9]


def comparison(*ratios: float, name: str = "ready", higher_is_better: bool = False) -> Comparison:
    old = dict.fromkeys(range(len(ratios)), 10.0)
    new = {number: ratio * 10 for number, ratio in enumerate(ratios)}
    return Comparison(name, "process start to ready", "ms", old, new, higher_is_better)


def outcome(*comparisons: Comparison, failures: tuple[Failure, ...] = ()) -> Outcome:
    return Outcome({"old": "commit a", "new": "commit b"}, 5, 0.5, comparisons, failures)


def test_command_and_package_are_read_from_the_pyproject() -> None:
    project = read_project(
        '[project]\nname = "brook"\ndependencies = ["rich"]\n[project.scripts]\nbrook-cli = "brook.cli.main:main"\n'
    )
    assert (project.command, project.package, project.module, project.function) == (
        *("brook-cli", "brook"),
        *("brook.cli.main", "main"),
    )
    assert project.environment_prefix == "BROOK_CLI_"
    assert project.requirements == {"rich"}


def test_the_command_with_the_name_of_the_project_is_chosen_of_several() -> None:
    project = read_project('[project]\nname = "brook"\n[project.scripts]\nother = "a:b"\nbrook = "c.d:e"\n')
    assert (project.command, project.package) == ("brook", "c")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[project", "not valid TOML"),
        ("[build-system]", "found: none"),
        ('[project]\nname = "brook"\n[project.scripts]\na = "a:b"\nb = "a:b"', "found: a, b"),
        ('[project]\nname = "brook"\n[project.scripts]\nbrook = "brook"', '"module:function"'),
    ],
)
def test_a_pyproject_without_a_usable_command_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(ProjectError, match=reason):
        read_project(text)


def test_ratios_use_only_rounds_that_both_sides_completed() -> None:
    found = Comparison("ready", "", "ms", {0: 10.0, 1: 20.0, 3: 40.0}, {1: 22.0, 2: 9.0, 3: 30.0})
    assert found.ratios == [1.1, 0.75]


def test_the_spread_is_the_interquartile_range() -> None:
    assert interquartile_range([1.0, 2.0, 3.0, 4.0, 50.0]) == (2.0, 4.0)
    assert interquartile_range([1.5]) == (1.5, 1.5)


@pytest.mark.parametrize(
    ("ratios", "higher_is_better", "expected"),
    [
        ([1.05] * 5, False, Verdict.OK),
        ([0.95] * 5, True, Verdict.OK),
        ([0.5, 0.9, 1.04, 2.0, 3.0], False, Verdict.OK),
        (SLOWER, False, Verdict.REGRESSION),
        (SLOWER, True, Verdict.BETTER),
        (FASTER, False, Verdict.BETTER),
        (FASTER, True, Verdict.REGRESSION),
        ([0.9, 0.95, 1.1, 1.2, 1.3], False, Verdict.UNCLEAR),
        (SLOWER[:4], False, Verdict.UNCLEAR),
        ([], False, Verdict.NOT_MEASURED),
    ],
)
def test_the_verdict_is_unclear_when_the_spread_of_the_ratios_includes_one(
    ratios: list[float], higher_is_better: bool, expected: Verdict
) -> None:
    assert judge(ratios, higher_is_better=higher_is_better) is expected


def test_the_table_shows_medians_ratio_spread_and_verdict() -> None:
    assert table([comparison(*SLOWER)])[2:] == [
        "| ready | process start to ready, ms | 10 | 11 | 1.100 | 1.090 to 1.120 | 5 | **regression** |"
    ]
    assert table([comparison()])[2:] == ["| ready | process start to ready, ms |  |  |  |  | 0 | not measured |"]


def test_the_summary_names_every_measure_that_is_not_ok() -> None:
    assert summary([comparison(*[1.0] * 5)]) == "No regression."
    text = summary([comparison(*SLOWER), comparison(1.2, name="ack-p50"), comparison(name="ack-p99")])
    assert text.startswith("Regression of more than 5%: ready. Unclear: ack-p50;")
    assert text.endswith("Not measured: ack-p99.")


def test_the_exit_code_is_one_only_on_a_regression() -> None:
    failure = Failure("start", "old", "reason")
    assert outcome(comparison(*FASTER), comparison(1.5, 1.5)).exit_code == 0
    assert outcome(comparison(*SLOWER), failures=(failure,)).exit_code == 1
    assert outcome(comparison(*FASTER), failures=(failure,)).exit_code == 2


def test_measures_read_broker_cpu_per_message_by_side_and_round() -> None:
    measure = next(one for one in MEASURES if one.name == "produce-1KB")
    samples = [
        Sample("produce 1 KB, raw", side, {}, Usage(cpu_s, 0, 0, 0, 0, 0, 0), {"messages": 1_000_000}, round=number)
        for number, side, cpu_s in ((0, "old", 0.5), (0, "new", 0.6), (1, "new", 0.7))
    ]
    found = measure.compare([*samples, Sample("start", "old", {"s to ready": 1.0})])
    assert (found.old, found.new) == ({0: 0.5}, {0: 0.6, 1: 0.7})


@pytest.mark.parametrize("change", ["nothing", "module", "declarations", "setup.py", "stale"])
def test_compiled_modules_are_copied_when_the_sources_are_equal(change: str, tmp_path: Path) -> None:
    root, files = tmp_path / "root", tmp_path / "files"
    for directory in (root, files):
        (directory / "src").mkdir(parents=True)
        for name in ("setup.py", "src/module.py", "src/module.pxd"):
            (directory / name).write_text(name)
    compiled = root / "src" / f"module{SUFFIX}"
    compiled.write_text("compiled")
    changed = {"module": "src/module.py", "declarations": "src/module.pxd", "setup.py": "setup.py"}.get(change)
    if changed:
        (files / changed).write_text("changed")
    if change == "stale":
        os.utime(compiled, (0, 0))
    assert copy_compiled(root, files) is (change == "nothing")
    assert (files / "src" / f"module{SUFFIX}").exists() is (change == "nothing")


def test_builds_that_were_not_used_for_a_week_are_removed(tmp_path: Path) -> None:
    builds = Builds(cast(Any, None), tmp_path, print)
    old_s = time.time() - KEPT_S - 60
    for name, is_built, is_old in (("used", True, False), ("unused", True, True), ("failed", False, True)):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.lock").touch()
        stamp = tmp_path / name / STAMP
        if is_built:
            stamp.touch()
        if is_old:
            os.utime(stamp if is_built else tmp_path / name, (old_s, old_s))
    builds.remove_unused()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["used", "used.lock"]
