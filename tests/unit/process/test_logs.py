"""Tests the console and JSON formats of log lines."""

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from millstream.process.client_events import LIMITED, log_client_event
from millstream.process.logs import LIMITED_LINES_MAX, ConsoleLines, JsonLines, configure, report_failure


def record(message: str, *, raised: bool = False, **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"msg": message, "levelname": "WARNING", "name": "millstream.x", "created": 0.5, **fields}
    )
    if raised:
        try:
            raise ValueError("broken")
        except ValueError:
            made.exc_info = sys.exc_info()
    return made


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """Yields the root logger, and restores it and the hooks for uncaught exceptions afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    hooks = sys.excepthook, sys.unraisablehook, threading.excepthook
    yield root
    sys.excepthook, sys.unraisablehook, threading.excepthook = hooks
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_console_line_has_time_level_event_and_fields() -> None:
    line = ConsoleLines().format(record("connection cut off", peer="127.0.0.1", error="a garbage frame", left=""))
    assert line == ('1970-01-01 00:00:00.500 warning connection cut off peer=127.0.0.1 error="a garbage frame" left=""')


def test_a_line_break_in_a_field_does_not_split_the_log_line() -> None:
    assert "\n" not in ConsoleLines().format(record("odd name", topic="a\nb c"))


def test_a_json_line_has_all_fields_and_converts_other_types_to_text() -> None:
    row = json.loads(JsonLines().format(record("stored", offset=7, key=b"k", what={"a": 1}, thing=object)))
    assert row["time"] == "1970-01-01T00:00:00.500+00:00"
    assert (row["level"], row["logger"], row["event"], row["offset"]) == ("warning", "millstream.x", "stored", 7)
    assert row["what"] == {"a": 1}
    assert row["thing"] == "<class 'object'>"


def test_a_field_does_not_overwrite_the_event() -> None:
    assert json.loads(JsonLines().format(record("stored", event="other")))["event"] == "stored"


@pytest.mark.parametrize("layout", [ConsoleLines(), JsonLines()])
def test_log_line_has_the_exception_of_the_record(layout: logging.Formatter) -> None:
    assert "ValueError: broken" in layout.format(record("failed", raised=True))


@pytest.mark.parametrize("layout", ["console", "json"])
def test_configured_logs_go_to_one_stream_at_or_above_the_level(layout: str, root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    configure("warning", layout, stream)
    configure("warning", layout, stream)
    logging.getLogger("millstream.test").info("quiet")
    logging.getLogger("millstream.test").warning("loud", extra={"count": 3})
    written = stream.getvalue()
    assert "quiet" not in written
    assert written.count("loud") == 1


def test_a_json_line_begins_with_time_level_and_event() -> None:
    assert list(json.loads(JsonLines().format(record("stored", level="other", a=1)))) == [
        "time",
        "level",
        "event",
        "logger",
        "a",
    ]


@pytest.mark.parametrize("value", [2**80, "\udc80.log", {2**80: 1}, float("nan")])
def test_a_value_that_json_cannot_express_does_not_lose_the_line(value: object) -> None:
    row = json.loads(JsonLines().format(record("stored", path=value)))
    assert row["event"] == "stored"
    assert "path" in row


def test_a_message_with_wrong_arguments_is_logged_without_them() -> None:
    assert json.loads(JsonLines().format(record("%d messages", args=("x",))))["event"] == "%d messages"


def test_control_characters_of_a_client_are_escaped_on_the_console() -> None:
    line = ConsoleLines().format(record("topic created", client_id="\x1b[2J\u2028"))
    assert line.isprintable()
    assert "\\u001b[2J" in line


def test_lines_about_client_events_are_limited_and_the_others_are_not(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    configure("info", "json", stream)
    logger = logging.getLogger("millstream.test")
    handler = root_logger.handlers[0]
    for number in range(LIMITED_LINES_MAX + 5):
        logger.handle(event_at(100.0, number))
    log_client_event(logger, "topic created", topic="later")
    logger.info("recovered")
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [row["number"] for row in rows[:-2]] == list(range(LIMITED_LINES_MAX))
    assert (rows[-2]["topic"], rows[-2]["suppressed"]) == ("later", 5)
    assert (rows[-1]["event"], handler.filters != []) == ("recovered", True)


def event_at(created: float, number: int) -> logging.LogRecord:
    fields = {"msg": "topic created", "levelno": logging.INFO, "levelname": "INFO", "created": created}
    return logging.makeLogRecord({**fields, "number": number, LIMITED: True})


def test_json_logs_contain_warnings_uncaught_exceptions_and_the_failure_of_a_start() -> None:
    script = (
        "import threading, warnings\n"
        "from millstream.process import logs\n"
        "logs.configure('info', 'json')\n"
        "warnings.warn('old')\n"
        "thread = threading.Thread(target=lambda: 1 / 0)\n"
        "thread.start()\n"
        "thread.join()\n"
        "logs.report_failure('cannot start: port 1 is in use')\n"
        "class Loud:\n"
        "    def __del__(self): raise ValueError('loud')\n"
        "Loud()\n"
        "raise KeyError('last')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in ended.stderr.splitlines()]
    assert (ended.returncode, len(rows)) == (1, 5)
    assert "old" in rows[0]["event"]
    assert "ZeroDivisionError" in rows[1]["exception"]
    assert rows[2]["error"] == "cannot start: port 1 is in use"
    assert "loud" in rows[3]["exception"]
    assert "KeyError: 'last'" in rows[4]["exception"]


def test_start_failure_is_plain_text_when_json_logs_are_off(capsys: pytest.CaptureFixture[str]) -> None:
    report_failure("cannot start: port 1 is in use")
    assert capsys.readouterr().err == "millstream: cannot start: port 1 is in use\n"
