"""Settings as people write them: `retention.ms=7d`, `segment.bytes=64MiB`."""

from collections.abc import Sequence

from millstream.cli.failures import usage_error
from millstream.model.units import read_duration_ms, read_size_bytes


def read_settings(texts: Sequence[str], flag: str) -> dict[str, str]:
    """Names and values; durations and sizes as the plain numbers that a broker takes."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or not name or not text.isprintable():
            raise usage_error(f"{flag} {text!r}: expected NAME=VALUE")
        if name in found:
            raise usage_error(f"{flag} {name}: it is given twice")
        try:
            found[name] = plain_value(name, value)
        except ValueError as error:
            raise usage_error(f"{flag} {text}: {error}") from None
    return found


def plain_value(name: str, value: str) -> str:
    """The value without its unit, where the name tells that it is a duration or a size; ValueError."""
    if name.endswith(".ms"):
        return str(read_duration_ms(value))
    if name.endswith(".bytes"):
        return str(read_size_bytes(value))
    return value
