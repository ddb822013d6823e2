"""Checks the dashboard, the alert rules and the operations guide for gaps between them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from builders.operations.monitoring import (
    GUIDE,
    ROOT,
    alert_rules,
    dashboard,
    dashboard_expressions,
    metric_names,
    panels,
)

GRID_WIDTH = 24


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_each_alert_is_complete_and_named_once() -> None:
    rules = alert_rules()
    assert len(rules) > 20
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.name.startswith("Millstream"), rule
        assert rule.severity in ("critical", "warning"), rule
        assert rule.summary != rule.description, rule
        assert "{{ $labels.instance }}" in rule.summary, rule


def test_each_alert_links_to_its_heading_in_the_guide() -> None:
    found = anchors(GUIDE)
    for rule in alert_rules():
        page, _, anchor = rule.guide.partition("#")
        assert ROOT / page == GUIDE
        assert anchor == rule.name.lower()
        assert anchor in found, f"{rule.name} has no heading"


def test_each_alert_heading_of_the_guide_has_a_rule() -> None:
    headings = re.findall(r"^### (Millstream\w+)$", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(headings) == sorted(rule.name for rule in alert_rules())


def test_each_log_event_of_the_guide_is_logged_somewhere() -> None:
    table = GUIDE.read_text(encoding="utf-8").partition("## Log lines to look for")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    events = [event for cell in cells for event in re.findall(r"`([^`]+)`", cell)]
    assert len(events) > 15
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "millstream").rglob("*.py"))
    assert [event for event in events if f'"{event}"' not in sources] == []


def test_alert_rules_use_only_jobs_of_the_scrape_configuration() -> None:
    configured = re.findall(r"job_name: (\S+)", (ROOT / "deploy" / "prometheus.yml").read_text(encoding="utf-8"))
    patterns = {match[1] for rule in alert_rules() for match in re.finditer(r'job=~?"([^"]+)"', rule.expression)}
    assert patterns
    for pattern in patterns:
        assert any(re.fullmatch(pattern, job) for job in configured), pattern


def test_each_panel_has_a_title_a_description_and_a_unit() -> None:
    shown = panels()
    assert len(shown) > 50
    for panel in shown:
        assert panel["title"], panel
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    everything: list[dict[str, Any]] = dashboard()["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    cells = [cell for panel in everything for cell in _cells(panel["gridPos"])]
    assert len(set(cells)) == len(cells)
    assert all(column < GRID_WIDTH for column, _ in cells)


def _cells(position: dict[str, int]) -> Iterator[tuple[int, int]]:
    for column in range(position["x"], position["x"] + position["w"]):
        for line in range(position["y"], position["y"] + position["h"]):
            yield column, line


def test_each_query_uses_the_variables_of_the_dashboard() -> None:
    names = [variable["name"] for variable in dashboard()["templating"]["list"]]
    assert names == ["datasource", "instance", "gateway"]
    for panel in panels():
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}", panel["title"]
            selectors = re.findall(r'instance=~"\$(instance|gateway)"', target["expr"])
            assert len(selectors) == len(re.findall(r"(?:millstream|process)_\w+\{", target["expr"])), target["expr"]


def test_counters_are_shown_and_alerted_as_rates() -> None:
    rate = re.compile(r"(?:rate|increase)\((\w+)")
    for expression in [*dashboard_expressions(), *(rule.expression for rule in alert_rules())]:
        counters = {name for name in metric_names(expression) if name.endswith("_total")}
        compared = {match[1] for match in rate.finditer(expression)}
        # A count of series needs no rate.
        assert counters <= compared or "count by" in expression, expression
