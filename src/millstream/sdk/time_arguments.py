"""Converts time arguments: durations and points in time.

- Duration: a number of seconds, a text such as "30s" or "7d", a `timedelta`, or the `datetime` at which the duration
  ends.
- Point in time: an aware `datetime`, a `timedelta` ago with either sign, or seconds since 1970, as `time.time()`
  returns them. A number so large that it must be milliseconds is refused.
- Start position: a start word ("beginning", "latest" and their synonyms), an age such as "10m", or a point in time.

A `datetime` without a time zone is ambiguous and is refused.
"""

import math
from datetime import datetime, timedelta

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.start_words import BEGINNING, start_word
from millstream.model.units import quoted, read_age_ms, read_duration_s
from millstream.sdk import requests
from millstream.sdk.arguments import shortened, wrong
from millstream.seams.clock import Clock

Time = float | str | timedelta | datetime
"""The accepted types of every duration."""

Moment = float | timedelta | datetime
"""The accepted types of every point in time."""

_MS_MAX = 2**53
"""Larger than every date, and exact as a float."""

_MOMENT_S_MAX = 1e11
"""The year 5138. A larger number is a time in milliseconds."""

_POSITIONS = 'use "beginning", "latest", an offset, a datetime or a timedelta'
_KINDS = {"start": "start position", "stop": "stop position"}


class Times:
    """Converts times relative to a clock; raises INVALID_SETTING, which names the parameter, for other values."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def span_s(self, value: Time, name: str = "timeout") -> float:
        """Return a duration in seconds; 0 for a `datetime` that has passed."""
        if isinstance(value, str):
            value = _text_s(value, name)
        if isinstance(value, datetime):
            return max(0.0, (_epoch_ms(value, name) - self._clock.wall_ms()) / 1000)
        seconds = _seconds(value, name, 'expected seconds, a text such as "30s", a timedelta or a datetime')
        if seconds < 0:
            raise wrong(name, value, "it is negative")
        return seconds

    def moment_ms(self, value: Moment, name: str) -> int:
        """Return a point in time in milliseconds since 1970."""
        if isinstance(value, datetime):
            return _epoch_ms(value, name)
        if isinstance(value, int | float) and _MOMENT_S_MAX < value <= _MS_MAX:
            text = "looks like milliseconds; give seconds (value / 1000), a datetime or a timedelta"
            raise MillstreamError(ErrorCode.INVALID_SETTING, f"{name}: {value!r} {text}")
        if isinstance(value, timedelta):
            # `-timedelta.max` overflows, so the span is positive before it is subtracted.
            moment_ms = self._clock.wall_ms() - round(abs(value).total_seconds() * 1000)
        else:
            moment_ms = round(_seconds(value, name, "expected seconds, a timedelta or a datetime") * 1000)
        if moment_ms < 0:
            raise wrong(name, value, "it lies before 1970")
        return moment_ms

    def lookup_ms(self, text: str, name: str) -> int:
        """Return the time that leaders look up for a start word or an age; `requests.BEGINNING` and `LATEST` are codes
        for the ends of the log."""
        word = start_word(text)
        if word is not None:
            return requests.BEGINNING if word == BEGINNING else requests.LATEST
        age_ms = read_age_ms(text)
        if age_ms is None:
            raise not_a_position(text, name)
        if age_ms > self._clock.wall_ms():
            raise wrong(name, text, "it lies before 1970")
        return self._clock.wall_ms() - age_ms


def not_a_position(value: object, name: str) -> MillstreamError:
    """Return the error for a value that is not a start position, a stop position or another position."""
    text = f"{name}: {shortened(value)} is not a {_KINDS.get(name, 'position')} ({_POSITIONS})"
    return MillstreamError(ErrorCode.INVALID_SETTING, text)


def _text_s(text: str, name: str) -> float:
    try:
        return read_duration_s(text)
    except ValueError as error:
        raise MillstreamError(ErrorCode.INVALID_SETTING, f"{name}: {quoted(text)} is {error}") from None


def _epoch_ms(value: datetime, name: str) -> int:
    if value.tzinfo is None or value.utcoffset() is None:
        raise wrong(name, value, "it has no time zone (example: datetime.now(tz=timezone.utc))")
    moment_ms = math.floor(value.timestamp() * 1000 + 0.5)
    if moment_ms < 0:
        raise wrong(name, value, "it lies before 1970")
    return moment_ms


def _seconds(value: float | timedelta, name: str, expected: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(name, value, expected)
    if not -_MS_MAX / 1000 <= value <= _MS_MAX / 1000:  # Also refuses NaN.
        raise wrong(name, value, "it is outside the range of a clock")
    return float(value)
