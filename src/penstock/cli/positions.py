"""Places in a topic as people write them: `beginning`, `latest`, an offset, a time, or how long ago."""

import re
from dataclasses import dataclass
from datetime import datetime

from penstock.cli.failures import usage_error

_AGO = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}

EXPECTED = "beginning, latest, an offset, a time such as 2025-01-31T12:00 or @1738324800000, or an age such as 10m"


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


def parse_position(text: str, flag: str, now_ms: int) -> Position:
    """What `--from` and `--to` say; a time without a zone is this machine's."""
    plain = text.strip()
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
        return Time(now_ms - round(float(ago[1]) * _UNITS_MS[ago[2]]))
    try:
        return Time(round(datetime.fromisoformat(plain).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise usage_error(f"{flag} {text!r}: expected {EXPECTED}") from None
