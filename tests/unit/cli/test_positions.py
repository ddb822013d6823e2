"""Places in a topic as people write them."""

from datetime import datetime

import pytest

from millstream.cli.positions import Beginning, Latest, Offset, Position, Time, parse_position
from millstream.model.errors import ErrorCode, MillstreamError

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Beginning()),
        ("latest", Latest()),
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
def test_a_place_is_read(text: str, expected: Position) -> None:
    assert parse_position(text, "--from", NOW_MS) == expected


@pytest.mark.parametrize("text", ["2024-02-03T04:05", "2024-02-03 04:05:06", "2024-02-03"])
def test_a_time_without_a_zone_is_this_machines(text: str) -> None:
    expected = round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    assert parse_position(text, "--from", NOW_MS) == Time(expected)


@pytest.mark.parametrize(
    "text", ["", "end", "-5", "1x", "@", "@x", "10 m", "2024-13-01", "٣", "0001-01-01T00:00x", "9" * 5000]
)
def test_what_is_no_place_is_refused_with_what_would_be(text: str) -> None:
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
def test_a_place_the_protocol_has_no_number_for_is_refused(text: str) -> None:
    with pytest.raises(MillstreamError) as caught:
        parse_position(text, "--to", NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_SETTING
    assert "--to" in caught.value.detail


def test_the_limits_themselves_are_places() -> None:
    assert parse_position(str(2**63 - 1), "--to", NOW_MS) == Offset(2**63 - 1)
    assert parse_position("@0", "--to", NOW_MS) == Time(0)
