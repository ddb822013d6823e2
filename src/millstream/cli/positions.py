"""Places in a topic as people write them: `beginning`, `latest`, an offset, a time, or how long ago."""

import re
from dataclasses import dataclass
from datetime import datetime

from millstream.cli.failures import usage_error
from millstream.model.units import DURATIONS_MS

_AGO = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(DURATIONS_MS)})")

OFFSET_MAX = 2**63 - 1
"""The largest number the protocol has for an offset or a time."""

_TIMES = "a time such as 2025-01-31T12:00 or @1738324800000, or an age such as 10m"
EXPECTED = f"beginning, latest, an offset, {_TIMES}"
TARGETS = f"{EXPECTED}; +N or -N shifts it by so many"


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
    """What `--from` and `--to` say; a time without a zone is this machine's. An error says what was `expected`."""
    try:
        position = _parse(text.strip(), now_ms)
    except (ValueError, OverflowError):
        raise usage_error(f"{flag} {text!r}: expected {expected}") from None
    if isinstance(position, Offset) and position.offset > OFFSET_MAX:
        raise usage_error(f"{flag} {text!r}: the largest offset there can be is {OFFSET_MAX}")
    if isinstance(position, Time) and not 0 <= position.timestamp_ms <= OFFSET_MAX:
        # The numbers below 0 mean something else to a broker.
        raise usage_error(f"{flag} {text!r}: expected a time between 1970 and {OFFSET_MAX} ms after")
    return position


def parse_time(text: str, flag: str, now_ms: int) -> int:
    """The milliseconds of a time or an age."""
    position = parse_position(text, flag, now_ms, _TIMES)
    if not isinstance(position, Time):
        raise usage_error(f"{flag} {text!r}: expected {_TIMES}")
    return position.timestamp_ms


def _parse(plain: str, now_ms: int) -> Position:
    if plain == "beginning":
        return Beginning()
    if plain == "latest":
        return Latest()
    if plain.isascii() and plain.isdigit():
        return Offset(int(plain))
    if plain.startswith("@") and plain[1:].isascii() and plain[1:].isdigit():
        return Time(int(plain[1:]))
    ago = _AGO.fullmatch(plain)
    if ago:
        return Time(now_ms - round(float(ago[1]) * DURATIONS_MS[ago[2]]))
    return Time(round(datetime.fromisoformat(plain).timestamp() * 1000))
