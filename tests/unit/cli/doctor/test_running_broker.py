"""Tests what `millstream doctor` concludes from the pages of the operator port and from the clocks."""

import json
from typing import Any

import pytest

from millstream.cli.doctor import running_broker
from millstream.cli.doctor.broker_metrics import Sample, diagnose_metrics, read_samples
from millstream.cli.doctor.health_advice import advice_for
from millstream.cli.doctor.running_broker import OperatorAnswers, ask_operator, clock_diagnosis, diagnose_answers

SOUND = {"process_open_fds": 20.0, "process_max_fds": 8192.0, "process_resident_memory_bytes": 2.0**26}


def levels(metrics: dict[str, float] | None = None, *, ready: str = "", **health: Any) -> dict[str, str]:
    samples = [Sample(name, {}, value) for name, value in {**SOUND, **(metrics or {})}.items()]
    answers = OperatorAnswers({"status": "ok", **health}, ready, samples)
    return {each.subject: each.level for each in diagnose_answers(answers)}


def test_a_sound_broker_has_no_problem() -> None:
    assert levels() == {"health": "ok", "open files": "ok", "memory": "ok"}


def test_problems_and_warnings_of_health_are_repeated() -> None:
    assert levels(problems=["partition orders-0 refuses writes"])["health"] == "problem"
    rows = [*diagnose_answers(OperatorAnswers({"problems": [], "warnings": ["exposed"]}, "", ()))]
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
    samples = [Sample("a", {}, 1.0), Sample("b", {"c": "d"}, 2.0)]
    assert ask_operator("http://x", 1.0) == OperatorAnswers({"status": "ok"}, "not ready: why", samples)
    pages["/health"] = (200, "[]")
    with pytest.raises(ValueError, match="not a JSON object"):
        ask_operator("http://x", 1.0)


PROBLEMS = [
    ("partition orders-0 refuses writes: it is quarantined: damaged", "Restore the partition"),
    ("partition orders-0 refuses writes: the last write or flush failed: No space left", "Check free space"),
    ("partition orders-0 was truncated at this start, perhaps below acknowledged messages", "Compare the .cut files"),
    ("partition orders-0 is rebuilding its message ids from the log", "Wait: until then a repeated"),
    ("data directory /d is full, writes refused (1 of 2 bytes are free)", "Delete topics, shorten retention"),
    ("the gateway has not answered since 2026-01-01T00:00:00+00:00: its process 5 is stopped", "Look at the process"),
    ("the gateway: the cluster default is not reachable at a:1 since 2026-01-01", "Check that the brokers"),
    ("the gateway exited with code 4 and it is restarted: cannot listen on 127.0.0.1:80", "Stop the process that uses"),
    ("the gateway exited with code 2 and it is not restarted: drain_ms = 'soon'", "Correct the settings"),
    ("the gateway was ended by SIGKILL and it is restarted", "Look for the kernel's out-of-memory killer"),
    ("broker 1 of orders exited with code 1: damaged", "The log has the lines of this process"),
    ("local clusters cannot be managed: /d/control.sock: denied", "Check owner, rights"),
    ("something new", "docs/serve.md describes each problem"),
]


@pytest.mark.parametrize(("problem", "advice"), PROBLEMS, ids=[advice for _, advice in PROBLEMS])
def test_each_kind_of_problem_has_its_advice(problem: str, advice: str) -> None:
    assert advice_for(problem).startswith(advice)


FSYNCS = """millstream_fsync_seconds_bucket{directory="/a",le="0.05"} %d
millstream_fsync_seconds_bucket{directory="/a",le="0.1"} %d
millstream_fsync_seconds_bucket{directory="/a",le="+Inf"} 1000
millstream_fsync_seconds_count{directory="/a"} 1000
"""


@pytest.mark.parametrize(("fast", "level"), [(995, "ok"), (900, "warning")])
def test_slow_flushes_are_a_warning(fast: int, level: str) -> None:
    (found,) = diagnose_metrics(read_samples(FSYNCS % (fast - 100, fast)))
    assert (found.level, found.subject) == (level, "flushes")
    assert found.text == f"{1000 - fast} of 1000 flushes took longer than 100 ms"


def test_a_group_that_is_far_behind_is_a_warning() -> None:
    rows = [f'millstream_group_lag{{group="slow",topic="a",partition="{number}"}} 60000' for number in (0, 1)]
    rows.append('millstream_group_lag{group="fast",topic="a",partition="0"} 3')
    (found,) = diagnose_metrics(read_samples("\n".join(rows)))
    assert (found.level, found.subject, found.text) == ("warning", "group slow", "120000 messages behind")
    assert "millstream group describe slow" in found.advice


def test_metrics_that_are_not_understood_are_left_out() -> None:
    text = 'millstream_group_lag{topic="a"} 1e9\nmillstream_fsync_seconds_bucket{le="x"} 1\nbroken{ 1\na b\na NaN\n'
    assert [*diagnose_metrics(read_samples(text))] == []
    (space,) = diagnose_metrics(read_samples('millstream_directory_free_bytes{directory="/a b"} 1073741824\n'))
    assert (space.subject, space.text) == ("space of /a b", "1.0 GiB free")
