"""Reads the Prometheus rules and the Grafana dashboard of `deploy/`, and finds the metrics that they name.

The rules are read without a YAML library: the file has a fixed layout, which `alert_rules` checks.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana.json"
GUIDE = ROOT / "docs" / "operations.md"

_FIELD = re.compile(r"^ +(\w+): (.+)$")
_NAME = re.compile(r"\b((?:millstream|process)_\w+?)(?:_bucket|_sum|_count)?\b")


class AlertRule(NamedTuple):
    """One alert: its expression, its severity and its texts."""

    name: str
    expression: str
    severity: str
    summary: str
    description: str
    guide: str


def alert_rules() -> list[AlertRule]:
    """Return the rules of the file; KeyError if one lacks a field."""
    blocks = re.split(r"^ +- alert: ", RULES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [_rule(block) for block in blocks]


def _rule(block: str) -> AlertRule:
    name, _, rest = block.partition("\n")
    # A folded expression continues on deeper indented lines.
    folded = re.sub(r"expr: >-\n((?: {10}\S.*\n)+)", lambda match: f"expr: {' '.join(match[1].split())}\n", rest)
    fields = {match[1]: match[2] for line in folded.splitlines() if (match := _FIELD.match(line))}
    texts = {key: fields[key].strip('"') for key in ("severity", "summary", "description", "guide")}
    return AlertRule(name, fields["expr"], **texts)


def dashboard() -> dict[str, Any]:
    """Return the parsed dashboard."""
    parsed: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return parsed


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard without the headings of its rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def dashboard_expressions() -> Iterator[str]:
    """Yield every query of the panels, the annotations and the variables."""
    for panel in panels():
        yield from (target["expr"] for target in panel["targets"])
    yield from (each["expr"] for each in dashboard()["annotations"]["list"])
    yield from (each["definition"] for each in dashboard()["templating"]["list"] if each["type"] == "query")


def metric_names(expression: str) -> set[str]:
    """Return the metrics that an expression or a text names; a histogram counts under its own name."""
    return {match[1] for match in _NAME.finditer(expression)}


def quoted_metric_names(page: str) -> set[str]:
    """Return the metrics that a Markdown page names as code."""
    return {name for quoted in re.findall(r"`([^`\n]+)`", page) for name in metric_names(quoted)}
