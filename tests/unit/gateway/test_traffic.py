"""Tests the counters, the durations and the debug lines of the gateway's requests."""

import logging

import pytest

from millstream.gateway import traffic as traffic_module
from millstream.gateway.traffic import Traffic, traffic_metrics
from millstream.model.rights import Right
from millstream.process.logs import fields_of
from millstream.process.metrics import render

ROUTE = "/v1/topics/{topic}"


def answer(traffic: Traffic) -> None:
    traffic.answered(Right.TOPICS_READ, ROUTE, "200", begun_s=1.0, method="GET", peer="10.0.0.7:5000")


def test_each_request_is_a_debug_line_with_its_route_and_duration(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic_module, "now_s", lambda: 1.25)
    for level in (logging.INFO, logging.DEBUG):
        with caplog.at_level(level):
            answer(Traffic("http"))
    (line,) = caplog.records
    assert line.getMessage() == "request handled"
    request = {"interface": "http", "method": "GET", "route": ROUTE, "status": "200"}
    assert fields_of(line) == {**request, "duration_ms": 250.0, "peer": "10.0.0.7:5000"}


def test_durations_are_a_histogram_by_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_module, "now_s", lambda: 1.25)
    traffic = Traffic("http")
    answer(traffic)
    traffic.refused(408)
    text = render(traffic_metrics((traffic,))).decode()
    assert f'request_seconds_bucket{{interface="http",route="{ROUTE}",le="0.1"}} 0\n' in text
    assert f'request_seconds_bucket{{interface="http",route="{ROUTE}",le="0.25"}} 1\n' in text
    assert 'requests_total{interface="http",right="nothing",route="",status="408"} 1\n' in text
