"""Tests what `millstream doctor` concludes from the pages of the operator port and from the clocks."""

import json
from typing import Any

import pytest

from millstream.cli.doctor import running_broker
from millstream.cli.doctor.running_broker import OperatorAnswers, ask_operator, clock_diagnosis, diagnose_answers

SOUND = {"process_open_fds": 20.0, "process_max_fds": 8192.0, "process_resident_memory_bytes": 2.0**26}


def levels(metrics: dict[str, float] | None = None, *, ready: str = "", **health: Any) -> dict[str, str]:
    answers = OperatorAnswers({"status": "ok", **health}, ready, {**SOUND, **(metrics or {})})
    return {each.subject: each.level for each in diagnose_answers(answers)}


def test_a_sound_broker_has_no_problem() -> None:
    assert levels() == {"health": "ok", "open files": "ok", "memory": "ok"}


def test_problems_and_warnings_of_health_are_repeated() -> None:
    assert levels(problems=["partition orders-0 refuses writes"])["health"] == "problem"
    rows = [*diagnose_answers(OperatorAnswers({"problems": [], "warnings": ["exposed"]}, "", SOUND))]
    assert ("warning", "health", "exposed") in [row[:3] for row in rows]


def test_a_broker_that_is_not_ready_is_a_problem_once() -> None:
    assert levels(ready="not ready: the broker is starting or stopping")["readiness"] == "problem"
    reason = "the gateway is starting"
    assert "readiness" not in levels(ready=f"not ready: {reason}", problems=[reason])


@pytest.mark.parametrize(
    ("metrics", "subject", "level"),
    [
        ({"process_open_fds": 7000.0}, "open files", "problem"),
        ({"process_max_fds": 1024.0}, "open files", "warning"),
        ({"process_resident_memory_bytes": 2.0**60}, "memory", "warning"),
    ],
)
def test_limits_that_are_low_or_nearly_reached_are_reported(
    metrics: dict[str, float], subject: str, level: str
) -> None:
    assert levels(metrics)[subject] == level


@pytest.mark.parametrize(("drift_ms", "level"), [(0, "ok"), (-1_000, "ok"), (1_001, "warning"), (-5_000, "warning")])
def test_clocks_that_differ_by_more_than_a_second_are_reported(drift_ms: int, level: str) -> None:
    assert clock_diagnosis(drift_ms).level == level


@pytest.mark.parametrize(
    ("drift_ms", "text"),
    [(0, "ahead of the broker by 0 ms"), (7, "ahead of the broker by 7 ms"), (-1, "behind the broker by 1 ms")],
)
def test_the_clock_difference_has_a_direction_and_no_sign(drift_ms: int, text: str) -> None:
    assert clock_diagnosis(drift_ms).text == f"this machine is {text}"


def test_operator_pages_are_parsed_and_unexpected_content_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {
        "/health": (200, json.dumps({"status": "ok"})),
        "/ready": (503, "not ready: why\n"),
        "/metrics": (200, '# HELP a text\na 1\nb{c="d"} 2\n'),
    }
    monkeypatch.setattr(running_broker, "_page", lambda url, timeout_s: pages["/" + url.rpartition("/")[2]])
    assert ask_operator("http://x", 1.0) == OperatorAnswers({"status": "ok"}, "not ready: why", {"a": 1.0})
    pages["/health"] = (200, "[]")
    with pytest.raises(ValueError, match="not a JSON object"):
        ask_operator("http://x", 1.0)
