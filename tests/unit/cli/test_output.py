"""Tests the output of commands: sizes, escapes, tables and suggestions."""

import pytest

from millstream.cli.failures import explain
from millstream.cli.output import CELL_MAX, counted, print_line, print_note, print_table, printable, shown_size
from millstream.cli.suggestions import nearest_names
from millstream.model.errors import ErrorCode, MillstreamError


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (150 * 1024, "150 KiB"),
        (5 * 2**20, "5.0 MiB"),
        (2**40, "1.0 TiB"),
        (5000 * 2**40, "5000.0 TiB"),
    ],
)
def test_sizes_are_shown_with_a_unit_and_few_digits(size_bytes: int, text: str) -> None:
    assert shown_size(size_bytes) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 batches"), (1, "1 batch"), (2, "2 batches")])
def test_a_counted_noun_is_singular_or_plural(count: int, text: str) -> None:
    assert counted(count, "batch", "batches") == text


HOSTILE = "esc\x1b[31mRED\x1b]0;t\x07 \x9b1m\u202e\udcff\n[red]b[/red] :smile:"
HARMLESS = r"esc\x1b[31mRED\x1b]0;t\x07 \x9b1m\u202e\udcff\n[red]b[/red] :smile:"


def test_control_characters_are_escaped_in_lines_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(HOSTILE)
    print_note(HOSTILE)
    print_table(("name", HOSTILE), [(HOSTILE, 5)], numbers=(HOSTILE,))
    ended = capsys.readouterr()
    line, heading, _, row = ended.out.splitlines()
    assert line == ended.err.rstrip("\n") == HARMLESS
    assert heading.split("   ")[-1] == HARMLESS
    assert row.startswith(HARMLESS)


@pytest.mark.parametrize("text", ["plain", "grün", "日本\u3000語", "12\xa0€", "back\\slash"])
def test_printable_text_is_not_escaped(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize("as_json", [False, True])
def test_control_characters_are_escaped_in_errors(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    explain(MillstreamError(ErrorCode.UNKNOWN_SERVER_ERROR, f"it says {HOSTILE}"), as_json)
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert "[red]b[/red] :smile:" in told


def test_a_long_cell_ends_in_an_ellipsis(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("group", "state"), [("g" * 32_000, "Empty")])
    *_, row = capsys.readouterr().out.splitlines()
    assert row.split() == ["g" * (CELL_MAX - 1) + "…", "Empty"]


def test_a_table_in_a_pipe_has_no_maximum_width(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "messages"), [("x" * 300, 5)], numbers=("messages",))
    assert "x" * 300 in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ordrs", ["orders"]),
        ("ORDERS", ["orders"]),
        ("visit", ["visits"]),
        ("payments", []),
    ],
)
def test_nearest_names_finds_a_misspelled_name_and_no_other(name: str, expected: list[str]) -> None:
    assert nearest_names(name, ["orders", "visits", "greetings"]) == expected
