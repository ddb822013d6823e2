"""Tests the console and JSON formats of log lines."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from millstream.process.logs import ConsoleLines, JsonLines, configure


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
    """Yields the root logger, and restores it afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
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
def test_an_exception_is_shown(layout: logging.Formatter) -> None:
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
