"""Parses positions in a topic: a start word, an offset, a time, or an age such as `10m`."""

from dataclasses import dataclass
from datetime import datetime

from millstream.cli.failures import usage_error
from millstream.model.start_words import BEGINNING, start_word
from millstream.model.units import TIME_MS_MAX, looks_like_seconds, looks_like_time_ms, read_age_ms

OFFSET_MAX = 2**63 - 1
"""The largest offset that the protocol can express."""

_TIMES = "a time such as 2025-01-31T12:00 or @1738324800000, or an age such as 10m"
EXPECTED = f"beginning (or earliest), latest (or end), an offset, {_TIMES}"
TARGETS = f"{EXPECTED}; or +N or -N to shift by N offsets"


@dataclass(frozen=True, slots=True)
class Beginning:
    pass


@dataclass(frozen=True, slots=True)
class Latest:
    pass


@dataclass(frozen=True, slots=True)
class Offset:
    offset: int


@dataclass(frozen=True, slots=True)
class Time:
    timestamp_ms: int


Position = Beginning | Latest | Offset | Time


def parse_position(text: str, flag: str, now_ms: int, expected: str = EXPECTED) -> Position:
    """Parses the value of `--from` or `--to`. A time without a zone is local time. Errors name what is `expected`."""
    try:
        position = _parse(text.strip(), now_ms)
    except (ValueError, OverflowError):
        what = "time" if expected == _TIMES else "position"
        raise usage_error(f"{flag}: {text!r} is not a {what} (use {expected})") from None
    if isinstance(position, Offset) and position.offset > OFFSET_MAX:
        raise usage_error(f"{flag}: {text!r} is too large (the largest possible offset is {OFFSET_MAX})")
    if isinstance(position, Offset) and looks_like_time_ms(position.offset):
        raise usage_error(
            f"{flag}: {text!r} looks like milliseconds, and a number is an offset (a time is @{text.strip()})"
        )
    if isinstance(position, Time):
        _check_time(position.timestamp_ms, text, flag)
    return position


def _check_time(time_ms: int, text: str, flag: str) -> None:
    """Raises a usage error for a time out of range. Brokers give negative timestamps a special meaning."""
    if not 0 <= time_ms <= TIME_MS_MAX:
        raise usage_error(f"{flag}: {text!r} is out of range (use a time between 1970 and {TIME_MS_MAX} ms later)")
    if text.strip().startswith("@") and looks_like_seconds(time_ms):
        raise usage_error(f"{flag}: {text!r} looks like seconds; give milliseconds (@{time_ms * 1000})")


def parse_time(text: str, flag: str, now_ms: int) -> int:
    """Parses a time or an age. Returns milliseconds since 1970."""
    position = parse_position(text, flag, now_ms, _TIMES)
    if not isinstance(position, Time):
        raise usage_error(f"{flag}: {text!r} is not a time (use {_TIMES})")
    return position.timestamp_ms


def _parse(plain: str, now_ms: int) -> Position:
    word = start_word(plain)
    if word is not None:
        return Beginning() if word == BEGINNING else Latest()
    if plain.isascii() and plain.isdigit():
        return Offset(int(plain))
    if plain.startswith("@") and plain[1:].isascii() and plain[1:].isdigit():
        return Time(int(plain[1:]))
    age_ms = read_age_ms(plain)
    if age_ms is not None:
        return Time(now_ms - age_ms)
    return Time(round(datetime.fromisoformat(plain).timestamp() * 1000))
