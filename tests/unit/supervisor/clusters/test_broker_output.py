"""Tests the copies of a broker's log lines, and the reason for the broker's end that is taken from them."""

import json

import pytest

from millstream.supervisor.clusters.broker_output import BrokerOutput


def test_a_json_line_stays_one_object_that_begins_with_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    BrokerOutput("further", 2, "json").copy(b'{"time":"t","level":"info","event":"started"}\n')
    row = json.loads(capsys.readouterr().err)
    assert list(row.items()) == [
        ("time", "t"),
        ("level", "info"),
        ("event", "started"),
        ("cluster", "further"),
        ("broker", 2),
    ]


def test_a_line_that_is_not_json_is_logged_as_the_text_of_an_event(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    BrokerOutput("further", 2, "json").copy(b"Fatal Python error\n")
    assert capsys.readouterr().err == ""
    (record,) = caplog.records
    assert (record.msg, record.__dict__["text"]) == ("broker printed a line", "Fatal Python error")


def test_a_console_line_gets_a_label(capsys: pytest.CaptureFixture[str]) -> None:
    BrokerOutput("further", 2, "console").copy(b"started\n")
    assert capsys.readouterr().err == "[further 2] started\n"


@pytest.mark.parametrize(
    ("lines", "code", "reason"),
    [
        ([b"started", b"millstream: port in use", b"ended"], 4, "port in use"),
        ([b'{"event":"process failed","error":"port in use"}', b'{"event":"ended"}'], 4, "port in use"),
        ([b"started", b"ended"], 1, "ended"),
        ([b"started", b"topic created"], -9, ""),
        ([b"millstream: out of memory", b"topic created"], -6, "out of memory"),
        ([], 1, ""),
    ],
)
def test_the_reason_of_a_broker_that_ended_is_its_failure_or_last_line(
    lines: list[bytes], code: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = BrokerOutput("further", 2, "console")
    for line in lines:
        output.copy(line)
    assert output.take_failure(code) == reason
    assert output.take_failure(code) == ""
