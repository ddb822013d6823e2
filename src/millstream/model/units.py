"""Sizes and durations as people write them: `7d`, `500ms`, `1GiB`."""

import re

_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)\s*([a-zA-Z]*)")

DURATIONS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SIZES_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12} | {
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
UNLIMITED = ("none", "unlimited")


def read_duration_ms(text: str) -> int:
    """Milliseconds of `7d`, `1.5h` or a bare number of milliseconds; -1 for `none`. ValueError says what is legal."""
    return _read(text, DURATIONS_MS, "a duration such as 500ms, 30s, 12h or 7d")


def read_size_bytes(text: str) -> int:
    """Bytes of `1GB` (10^9), `1GiB` (2^30) or a bare number of bytes; -1 for `none`. ValueError says what is legal."""
    return _read(text, SIZES_BYTES, "a size such as 4096, 64KiB, 500MB or 1GiB")


def _read(text: str, units: dict[str, int], expected: str) -> int:
    plain = text.strip().lower()
    if plain in UNLIMITED:
        return -1
    match = _NUMBER.fullmatch(plain)
    if match is None or (match[2] and match[2] not in units):
        raise ValueError(f"expected {expected}")
    value = float(match[1]) * units.get(match[2], 1)
    # -1 is Kafka's way to say that there is no limit; no other negative number means anything.
    if value < 0 and value != -1:
        raise ValueError(f"expected {expected}, or none")
    return round(value)
