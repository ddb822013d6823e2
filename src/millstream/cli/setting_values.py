"""Parses the `NAME=VALUE` arguments of settings, such as `retention.ms=7d` or `segment.bytes=64MiB`."""

from collections.abc import Sequence

from millstream.cli.failures import usage_error
from millstream.model.setting_values import plain_setting


def read_settings(texts: Sequence[str], flag: str) -> dict[str, str]:
    """Parses `NAME=VALUE` arguments. Durations and sizes become the plain numbers that a broker accepts.

    Raises a usage error for another form, and INVALID_CONFIG for a value that is not a duration or a size.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or not name or not text.isprintable():
            raise usage_error(f"{flag} {text!r}: expected NAME=VALUE")
        if name in found:
            raise usage_error(f"{flag} {name}: given twice")
        found[name] = plain_setting(name, value)
    return found
