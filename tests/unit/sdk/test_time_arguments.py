"""Times as people write them."""

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
def test_how_long_is_seconds_a_timedelta_or_the_moment_it_ends(value: Any, seconds: float) -> None:
    assert TIMES.span_s(value) == seconds


@pytest.mark.parametrize(
    ("value", "moment_ms"),
    [
        (NOW, NOW_MS),
        (NOW.astimezone(timezone(timedelta(hours=-3))), NOW_MS),
        (NOW + timedelta(milliseconds=1), NOW_MS + 1),
        (timedelta(hours=-1), NOW_MS - 3_600_000),
        (timedelta(seconds=2), NOW_MS + 2000),
        (NOW_MS / 1000, NOW_MS),
        (1_700_000_000, NOW_MS),
        (0, 0),
    ],
)
def test_when_is_a_datetime_a_timedelta_from_now_or_seconds_since_the_epoch(value: Any, moment_ms: int) -> None:
    assert TIMES.moment_ms(value, "start") == moment_ms


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (-1, "negative"),
        (timedelta(seconds=-1), "negative"),
        (float("nan"), "no number that a clock reaches"),
        (float("inf"), "no number that a clock reaches"),
        (10**300, "no number that a clock reaches"),
        (10**400, "no number that a clock reaches"),
        (True, "expected seconds"),
        ("5", "expected seconds"),
        (None, "expected seconds"),
        (datetime(2024, 1, 1), "has no zone"),  # noqa: DTZ001  # that is the point
    ],
)
def test_what_is_no_time_to_wait_is_refused_with_its_name(value: Any, why: str) -> None:
    with pytest.raises(MillstreamError, match=why) as refused:
        TIMES.span_s(value, "linger")
    assert refused.value.code is ErrorCode.INVALID_SETTING
    assert refused.value.detail.startswith("linger=")


@pytest.mark.parametrize(
    "value",
    [-1, timedelta(days=-40_000), datetime(1969, 12, 31, tzinfo=UTC), "yesterday", datetime(2024, 1, 1)],  # noqa: DTZ001
)
def test_what_is_no_moment_is_refused_with_its_name(value: Any) -> None:
    with pytest.raises(MillstreamError) as refused:
        TIMES.moment_ms(value, "start")
    assert refused.value.code is ErrorCode.INVALID_SETTING
    assert refused.value.detail.startswith("start=")
