"""Compares the metrics that dashboard, alert rules and guides name with those that a broker and a gateway export."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream
from builders.gateways.processes import put
from builders.operations.monitoring import (
    GUIDE,
    ROOT,
    alert_rules,
    dashboard_expressions,
    metric_names,
    quoted_metric_names,
)
from builders.operations.operator_view import OperatorView, Scrape, read_page
from millstream.testing.real_broker import RealBroker

PAGES = [ROOT / "docs" / name for name in ("serve.md", "gateway.md")]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """The metrics with at least one sample of a broker and its gateway, after a small load."""
    with RealBroker(tmp_path_factory.mktemp("metrics") / "data", gateway=True) as broker:
        produce_and_consume(broker)
        assert put(f"http://127.0.0.1:{broker.http_port}", "orders", "three").status == 200
        gateway = Scrape(read_page(f"http://127.0.0.1:{broker.http_port}/metrics").text)
        yield OperatorView(broker).scrape().names | gateway.names


def produce_and_consume(broker: RealBroker) -> None:
    with millstream.connect(broker.bootstrap) as client:
        with client.producer() as producer:
            producer.put_many("orders", ["one", "two"]).result()
        with client.consumer("orders", group="billing", start="beginning") as member:
            while not member.poll(timeout=1):
                pass
            member.commit()


def test_every_metric_of_the_alert_rules_is_exported(exported: set[str]) -> None:
    for rule in alert_rules():
        assert metric_names(rule.expression) <= exported, rule.name


def test_every_metric_of_the_dashboard_is_exported(exported: set[str]) -> None:
    for expression in dashboard_expressions():
        assert metric_names(expression) <= exported, expression


@pytest.mark.parametrize("page", [GUIDE, *PAGES], ids=lambda page: page.name)
def test_every_metric_that_a_guide_names_is_exported(page: Path, exported: set[str]) -> None:
    named = quoted_metric_names(page.read_text(encoding="utf-8"))
    assert len(named) > 10
    assert sorted(named - exported) == []


def test_every_exported_metric_is_documented(exported: set[str]) -> None:
    documented = {name for page in PAGES for name in quoted_metric_names(page.read_text(encoding="utf-8"))}
    assert sorted(exported - documented) == []


def test_every_exported_metric_is_on_the_dashboard(exported: set[str]) -> None:
    shown = {name for expression in dashboard_expressions() for name in metric_names(expression)}
    assert sorted(exported - shown) == []
