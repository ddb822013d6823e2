"""Tests that durations and sizes are parsed with and without units, and that errors give examples."""

import pytest

from millstream.model.units import (
    format_duration_ms,
    format_size_bytes,
    quoted,
    read_age_ms,
    read_duration_ms,
    read_duration_s,
    read_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [
        ("7d", 604_800_000),
        ("36h", 129_600_000),
        ("1.5h", 5_400_000),
        ("500ms", 500),
        ("2 w", 1_209_600_000),
        ("600000", 600_000),
        ("none", -1),
        ("unlimited", -1),
        ("-1", -1),
        (" 7D ", 604_800_000),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_a_duration_without_a_unit_is_in_milliseconds(text: str, value_ms: int) -> None:
    assert read_duration_ms(text) == value_ms


@pytest.mark.parametrize(("text", "value_s"), [("30s", 30), ("7d", 604_800), ("250ms", 0.25), ("5", 5), ("0.5", 0.5)])
def test_a_duration_in_seconds_without_a_unit_is_in_seconds(text: str, value_s: float) -> None:
    assert read_duration_s(text) == value_s


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("1GiB", 2**30), ("64kib", 65_536), ("500MB", 500_000_000), ("4096", 4_096), ("1.5KiB", 1_536)],
)
def test_a_size_without_a_unit_is_in_bytes(text: str, size_bytes: int) -> None:
    assert read_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "soon", "7 fortnights", "1GiB", "1e3", "d", "٣d"])
def test_other_text_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a duration \(examples: 7d, 36h, 600000\)"):
        read_duration_ms(text)
    with pytest.raises(ValueError, match=r"not a duration \(examples: 30s, 5m, 0.5\)"):
        read_duration_s(text)


@pytest.mark.parametrize("text", ["", "1 gallon", "7d", "big"])
def test_text_that_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a size \(examples: 1GiB"):
        read_size_bytes(text)


@pytest.mark.parametrize("read", [read_duration_ms, read_duration_s, read_size_bytes])
def test_negative_durations_and_sizes_are_refused(read: object) -> None:
    with pytest.raises(ValueError, match="negative, not a"):
        read("-5")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "age_ms"), [("10m", 600_000), ("1.5h", 5_400_000), ("10", None), ("-1h", None), ("x", None)]
)
def test_an_age_needs_a_unit(text: str, age_ms: int | None) -> None:
    assert read_age_ms(text) == age_ms


def test_a_quoted_value_is_short_and_has_no_control_characters() -> None:
    assert quoted("abc") == '"abc"'
    assert quoted(7) == "7"
    assert "\n" not in quoted("a\nb")
    assert len(quoted("x" * 1000)) < 70


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(604_800_000, "7d"), (5_400_000, "90m"), (1_500, "1500ms"), (30_000, "30s"), (0, "0"), (-1, "none")],
)
def test_a_duration_is_written_with_the_largest_unit_that_divides_it(duration_ms: int, text: str) -> None:
    assert format_duration_ms(duration_ms) == text
    assert read_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(2**28, "256MiB"), (2**40, "1TiB"), (1_000_000, "1000000"), (0, "0"), (-1, "none")]
)
def test_a_size_is_written_with_the_largest_unit_that_divides_it(size_bytes: int, text: str) -> None:
    assert format_size_bytes(size_bytes) == text
    assert read_size_bytes(text) == size_bytes
