"""Parses sizes and durations as users write them: `7d`, `500ms`, `1GiB`.

A number without a unit is in milliseconds, seconds or bytes, depending on the function. A ValueError has the form "not
a duration (examples: …)"; the caller adds the name and the value of the field.
"""

import re

_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)\s*([a-zA-Z]*)", re.ASCII)

DURATIONS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SIZES_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12} | {
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
TIME_MS_MAX = 10**14
"""The largest timestamp that clients accept as a position, in milliseconds: the year 5138. The same number of seconds
would be far in the future, so the SDK takes larger numbers of seconds for milliseconds."""

_SECONDS_MIN, _SECONDS_MAX = 10**8, 10**10
_OFFSET_TIME_MIN_MS, _OFFSET_TIME_MAX_MS = 10**12, 5 * 10**12
"""The years 2001 to 2128. Offsets of this size are rare: at 100,000 messages/s a partition has them after 115 days."""

UNLIMITED = ("none", "unlimited")
_DURATION_UNITS_MS = {unit: DURATIONS_MS[unit] for unit in ("d", "h", "m", "s", "ms")}
_SIZE_UNITS_BYTES = {unit: SIZES_BYTES[unit.lower()] for unit in ("TiB", "GiB", "MiB", "KiB")}
"""Units of formatted values, largest first."""

_SHOWN_MAX = 60
_DURATION_MS = "not a duration (examples: 7d, 36h, 600000)"
_DURATION_S = "not a duration (examples: 30s, 5m, 0.5)"
_SIZE = "not a size (examples: 1GiB, 64KiB, 500MB, 4096)"


def read_duration_ms(text: str) -> int:
    """Parse `7d`, `1.5h` or a number of milliseconds; `none` is -1."""
    return _limit(text, DURATIONS_MS, _DURATION_MS)


def read_size_bytes(text: str) -> int:
    """Parse `1GB` (10^9), `1GiB` (2^30) or a number of bytes; `none` is -1."""
    return _limit(text, SIZES_BYTES, _SIZE)


def read_duration_s(text: str) -> float:
    """Parse `30s`, `1.5h` or a number of seconds."""
    span = _scaled(text, DURATIONS_MS, _DURATION_S, unit=1_000)
    if span < 0:
        raise ValueError(f"negative, {_DURATION_S}")
    return span / 1_000


def read_age_ms(text: str) -> int | None:
    """Parse an age such as `10m`, which has a unit; None for text that is not an age."""
    match = _NUMBER.fullmatch(text.strip().lower())
    if match is None or match[2] not in DURATIONS_MS or match[1].startswith("-"):
        return None
    return round(_number(match[1]) * DURATIONS_MS[match[2]])


def looks_like_seconds(time_ms: int) -> bool:
    """Return True if a time in milliseconds is probably a time in seconds.

    In milliseconds these numbers are times between January and April 1970; in seconds, times from 1973 to 2286.
    """
    return _SECONDS_MIN <= time_ms < _SECONDS_MAX


def looks_like_time_ms(offset: int) -> bool:
    """Return True if a single offset that a user gave is probably a time in milliseconds since 1970."""
    return _OFFSET_TIME_MIN_MS <= offset < _OFFSET_TIME_MAX_MS


def format_duration_ms(duration_ms: int) -> str:
    """Write a duration with the largest unit that divides it, such as `7d` or `1500ms`; -1 is `none`."""
    return _format(duration_ms, _DURATION_UNITS_MS)


def format_size_bytes(size_bytes: int) -> str:
    """Write a size with the largest power of 1024 that divides it, such as `256MiB`; -1 is `none`."""
    return _format(size_bytes, _SIZE_UNITS_BYTES)


def quoted(given: object) -> str:
    """Return a value for an error message: text in double quotes, shortened, with escaped control characters."""
    shown = repr(given)
    if len(shown) > _SHOWN_MAX:
        shown = shown[:_SHOWN_MAX] + "..." + shown[-1:]
    return f'"{shown[1:-1]}"' if isinstance(given, str) else shown


def _format(value: int, units: dict[str, int]) -> str:
    if value == -1:
        return UNLIMITED[0]
    unit = next((unit for unit, size in units.items() if value > 0 and value % size == 0), "")
    return f"{value // units[unit]}{unit}" if unit else str(value)


def _limit(text: str, units: dict[str, int], expected: str) -> int:
    if text.strip().lower() in UNLIMITED:
        return -1
    value = _scaled(text, units, expected, unit=1)
    # Kafka uses -1 for "no limit"; other negative numbers are errors.
    if value < 0 and value != -1:
        raise ValueError(f"negative, {expected[:-1]}, or none for no limit)")
    return round(value)


def _scaled(text: str, units: dict[str, int], expected: str, *, unit: int) -> int | float:
    """Parse a number with a unit; `unit` applies if the text has none."""
    match = _NUMBER.fullmatch(text.strip().lower())
    if match is None or (match[2] and match[2] not in units):
        raise ValueError(expected)
    return _number(match[1]) * (units[match[2]] if match[2] else unit)


def _number(digits: str) -> int | float:
    """Parse digits exactly if they are a whole number: a float cannot hold every 64-bit integer."""
    return float(digits) if "." in digits else int(digits)
