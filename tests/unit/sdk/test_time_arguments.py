"""Tests the conversion of durations and points in time."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.time_arguments import Times

NOW_MS = 1_700_000_000_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)


class StoppedClock:
    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_s(self) -> float:
        return 0.0


TIMES = Times(StoppedClock())


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0.0),
        (1.5, 1.5),
        (30, 30.0),
        (timedelta(minutes=2), 120.0),
        (timedelta(), 0.0),
        (NOW + timedelta(seconds=7), 7.0),
        (NOW.astimezone(timezone(timedelta(hours=5))) + timedelta(seconds=7), 7.0),
        (NOW - timedelta(seconds=7), 0.0),
    ],
)
def test_a_duration_is_seconds_a_timedelta_or_an_end_datetime(value: Any, seconds: float) -> None:
    assert TIMES.span_s(value) == seconds


@pytest.mark.parametrize(
    ("value", "moment_ms"),
    [
        (NOW, NOW_MS),
        (NOW.astimezone(timezone(timedelta(hours=-3))), NOW_MS),
        (NOW + timedelta(milliseconds=1), NOW_MS + 1),
        (timedelta(hours=-1), NOW_MS - 3_600_000),
        (timedelta(hours=1), NOW_MS - 3_600_000),
        (NOW_MS / 1000, NOW_MS),
        (1_700_000_000, NOW_MS),
        (0, 0),
    ],
)
def test_a_point_in_time_is_a_datetime_a_timedelta_or_epoch_seconds(value: Any, moment_ms: int) -> None:
    assert TIMES.moment_ms(value, "start") == moment_ms


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (-1, "negative"),
        (timedelta(seconds=-1), "negative"),
        (float("nan"), "outside the range of a clock"),
        (float("inf"), "outside the range of a clock"),
        (10**300, "outside the range of a clock"),
        (10**400, "outside the range of a clock"),
        (True, "expected seconds"),
        ("soon", r"is not a duration \(examples: 30s, 5m, 0.5\)"),
        ("-5s", "negative"),
        ("9" * 30 + "w", "outside the range of a clock"),
        (None, "expected seconds"),
        (datetime(2024, 1, 1), "has no time zone"),  # noqa: DTZ001  # that is the point
    ],
)
def test_an_invalid_duration_is_refused_with_its_parameter_name(value: Any, why: str) -> None:
    with pytest.raises(MillstreamError, match=why) as refused:
        TIMES.span_s(value, "linger")
    assert refused.value.code is ErrorCode.INVALID_SETTING
    assert refused.value.detail.startswith(("linger=", "linger: "))


@pytest.mark.parametrize(
    "value",
    [
        -1,
        timedelta(days=40_000),
        timedelta.min,
        timedelta.max,
        datetime(1969, 12, 31, tzinfo=UTC),
        "yesterday",
        datetime(2024, 1, 1),  # noqa: DTZ001
    ],
)
def test_an_invalid_point_in_time_is_refused_with_its_parameter_name(value: Any) -> None:
    with pytest.raises(MillstreamError) as refused:
        TIMES.moment_ms(value, "start")
    assert refused.value.code is ErrorCode.INVALID_SETTING
    assert refused.value.detail.startswith("start=")


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("7d", 604_800), ("250ms", 0.25), ("5", 5), ("1.5", 1.5)])
def test_a_duration_as_text_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert TIMES.span_s(text) == seconds


@pytest.mark.parametrize("number", [1_738_324_800_000, 1_738_324_800_000.0, 10**11 + 1])
def test_a_moment_in_milliseconds_is_refused_with_a_hint(number: float) -> None:
    with pytest.raises(MillstreamError, match="looks like milliseconds; give seconds") as refused:
        TIMES.moment_ms(number, "start")
    assert refused.value.code is ErrorCode.INVALID_SETTING
    assert refused.value.detail.startswith("start: ")


def test_the_latest_moment_in_seconds_is_the_year_5138() -> None:
    assert TIMES.moment_ms(10**11, "start") == 10**14


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [("beginning", -2), ("Earliest", -2), ("latest", -1), ("end", -1), ("10s", NOW_MS - 10_000)],
)
def test_a_position_as_text_is_a_start_word_or_an_age(text: str, time_ms: int) -> None:
    assert TIMES.lookup_ms(text, "start") == time_ms


@pytest.mark.parametrize(
    ("name", "what"), [("start", "a start position"), ("stop", "a stop position"), ("offset", "a position")]
)
def test_other_text_is_no_position_and_the_error_lists_the_accepted_ones(name: str, what: str) -> None:
    with pytest.raises(MillstreamError) as refused:
        TIMES.lookup_ms("abc", name)
    accepted = 'use "beginning", "latest", an offset, a datetime or a timedelta'
    assert refused.value.detail == f"{name}: 'abc' is not {what} ({accepted})"
    assert refused.value.code is ErrorCode.INVALID_SETTING


def test_an_age_before_1970_is_refused() -> None:
    with pytest.raises(MillstreamError, match="lies before 1970"):
        TIMES.lookup_ms("5200w", "start")
