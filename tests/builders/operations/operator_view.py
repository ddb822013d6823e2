"""Shows a running broker as an operator sees it: its metrics, its health and its log, and nothing else."""

import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple, cast

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from millstream.testing.real_broker import RealBroker

WAIT_S = 60.0


class Scrape:
    """The metrics of one moment."""

    def __init__(self, text: str) -> None:
        self._families = {family.name: family for family in text_string_to_metric_families(text)}

    @property
    def names(self) -> set[str]:
        """The names of all metrics; a counter has its `_total`."""
        return {_full_name(family) for family in self._families.values()}

    def series(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values of the samples with this name and these labels."""
        return [
            (sample.labels, sample.value)
            for family in self._families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples with this name and these labels; 0 if there are none."""
        return sum(value for _, value in self.series(name, **labels))

    def above(self, histogram: str, bound: float, **labels: str) -> float:
        """The number of observations above a bucket's bound."""
        below = sum(
            value
            for found, value in self.series(f"{histogram}_bucket", **labels)
            if found["le"] != "+Inf" and float(found["le"]) == bound
        )
        return self.value(f"{histogram}_count", **labels) - below


class Page(NamedTuple):
    status: int
    text: str


class OperatorView:
    """The pages of a broker's operator port, and its log."""

    def __init__(self, broker: RealBroker) -> None:
        self._broker = broker

    def page(self, path: str) -> Page:
        return read_page(f"http://127.0.0.1:{self._broker.operator_port}{path}")

    def scrape(self) -> Scrape:
        return Scrape(self.page("/metrics").text)

    @property
    def health(self) -> dict[str, Any]:
        return cast(dict[str, Any], json.loads(self.page("/health").text))

    def has_problem(self, *parts: str) -> bool:
        """True if one problem of the health contains all parts."""
        return any(all(part in text for part in parts) for text in self.health["problems"])

    def has_warning(self, *parts: str) -> bool:
        """True if one warning of the health contains all parts."""
        return any(all(part in text for part in parts) for text in self.health["warnings"])

    def log_lines(self, event: str) -> list[str]:
        """The log lines with an event."""
        return [line for line in self._broker.log_text().splitlines() if f" {event}" in line]


def read_page(url: str) -> Page:
    """Return the status and the text of a page, also of an error."""
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return Page(answer.status, answer.read().decode())
    except urllib.error.HTTPError as refused:
        with refused:
            return Page(refused.code, refused.read().decode())


def _full_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name
