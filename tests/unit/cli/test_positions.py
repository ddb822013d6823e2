"""Tests the parsing of positions in a topic."""

from datetime import datetime

import pytest

from millstream.cli.positions import Beginning, Latest, Offset, Position, Time, parse_position
from millstream.model.errors import ErrorCode, MillstreamError

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Beginning()),
        ("earliest", Beginning()),
        ("Beginning", Beginning()),
        ("latest", Latest()),
        ("end", Latest()),
        ("END", Latest()),
        ("0", Offset(0)),
        (" 17 ", Offset(17)),
        ("@1700000000123", Time(1_700_000_000_123)),
        ("10m", Time(NOW_MS - 600_000)),
        ("1.5h", Time(NOW_MS - 5_400_000)),
        ("250ms", Time(NOW_MS - 250)),
        ("2023-11-14T22:13:20+00:00", Time(NOW_MS)),
        ("2023-11-14T22:13:20.500Z", Time(NOW_MS + 500)),
    ],
)
def test_a_position_is_parsed(text: str, expected: Position) -> None:
    assert parse_position(text, "--from", NOW_MS) == expected


@pytest.mark.parametrize("text", ["2024-02-03T04:05", "2024-02-03 04:05:06", "2024-02-03"])
def test_a_time_without_a_zone_is_local_time(text: str) -> None:
    expected = round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    assert parse_position(text, "--from", NOW_MS) == Time(expected)


@pytest.mark.parametrize(
    "text", ["", "last", "-5", "1x", "@", "@x", "-10m", "2024-13-01", "٣", "0001-01-01T00:00x", "9" * 5000]
)
def test_an_invalid_position_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(MillstreamError) as caught:
        parse_position(text, "--to", NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_SETTING
    assert "--to" in caught.value.detail
    assert "beginning" in caught.value.detail


@pytest.mark.parametrize(
    "text",
    [
        str(2**63),
        f"@{2**63}",
        "99999999999999w",
        "9" * 400 + "w",
        f"{NOW_MS + 1}ms",
        "1969-12-31T23:59:59.999+00:00",
    ],
)
def test_a_position_outside_of_the_protocols_range_is_refused(text: str) -> None:
    with pytest.raises(MillstreamError) as caught:
        parse_position(text, "--to", NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_SETTING
    assert "--to" in caught.value.detail


def test_a_time_in_seconds_is_refused_with_the_milliseconds() -> None:
    with pytest.raises(MillstreamError, match=r"looks like seconds; give milliseconds \(@1738324800000\)") as caught:
        parse_position("@1738324800", "--from", NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_SETTING


def test_positions_at_the_limits_of_the_range_are_accepted() -> None:
    assert parse_position(str(2**63 - 1), "--to", NOW_MS) == Offset(2**63 - 1)
    assert parse_position("@0", "--to", NOW_MS) == Time(0)


def test_an_offset_in_milliseconds_is_refused_with_a_hint() -> None:
    with pytest.raises(MillstreamError, match=r"--from: '1763555000000' looks like milliseconds.*@1763555000000"):
        parse_position("1763555000000", "--from", NOW_MS)
