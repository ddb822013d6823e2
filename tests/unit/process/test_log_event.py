"""Tests that events with fields are readable in every program, and have their fields in JSON logs."""

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.process.log_event import LogEvent
from millstream.process.logs import ConsoleLines, JsonLines

EVENT = LogEvent("connection lost", broker="127.0.0.1:9092", unanswered=2, error="timed out")
TEXT = 'connection lost broker=127.0.0.1:9092 unanswered=2 error="timed out"'
SOURCE = Path(__file__).parents[3] / "src" / "millstream"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """The output of a log handler whose formatter a test sets."""
    log = logging.getLogger("millstream.test_log_event")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    log.addHandler(handler)
    yield stream
    log.removeHandler(handler)


def printed(lines: io.StringIO, formatter: logging.Formatter) -> str:
    log = logging.getLogger("millstream.test_log_event")
    log.handlers[0].setFormatter(formatter)
    log.warning(EVENT)
    return lines.getvalue().rstrip("\n")


def test_other_formatters_show_the_fields_in_the_message(lines: io.StringIO) -> None:
    assert printed(lines, logging.Formatter("%(levelname)s %(message)s")) == f"WARNING {TEXT}"


def test_console_lines_show_the_fields_once(lines: io.StringIO) -> None:
    assert printed(lines, ConsoleLines()).endswith(f" warning {TEXT}")


def test_json_lines_have_a_member_per_field(lines: io.StringIO) -> None:
    row = json.loads(printed(lines, JsonLines()))
    assert row["event"] == "connection lost"
    assert (row["broker"], row["unanswered"], row["error"]) == ("127.0.0.1:9092", 2, "timed out")


def test_no_log_line_has_fields_inside_its_format() -> None:
    calls = re.compile(r"log\.(?:debug|info|warning|error|exception)\(\s*f?([\"'])(?:(?!\1).)*\w=[\"']?[%{]")
    found = [str(path) for path in sorted(SOURCE.rglob("*.py")) if calls.search(path.read_text(encoding="utf-8"))]
    assert found == []
