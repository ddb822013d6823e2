"""Converts the values of topic and group settings to the plain texts that Kafka's protocol has.

Clients convert before they send: `retention.ms` may be `7d`, `segment.bytes` may be `64MiB`, and values may be numbers
or booleans. The broker accepts only plain texts, as Kafka does.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.units import (
    UNLIMITED,
    format_duration_ms,
    format_size_bytes,
    quoted,
    read_duration_ms,
    read_size_bytes,
)

SettingValue = str | int | float | bool | timedelta | Sequence[str]
"""The accepted types of a setting's value. Only durations may be a `timedelta`. A list such as `["compact", "delete"]`
is sent as text with commas."""

_MILLISECOND = timedelta(milliseconds=1)
_LONG_MAX = 2**63 - 1


def readable_setting(name: str, value: str) -> str:
    """Return a plain value as people read it: durations and sizes with units, such as `36h`; `none` for no limit."""
    if value == str(_LONG_MAX):
        return UNLIMITED[0]
    if not value.removeprefix("-").isdecimal() or not name.endswith((".ms", "_ms", ".bytes", "_bytes")):
        return value
    return format_duration_ms(int(value)) if name.endswith("ms") else format_size_bytes(int(value))


def plain_settings(settings: Mapping[str, SettingValue]) -> dict[str, str]:
    """Return the plain texts of all values; raises INVALID_CONFIG, which names the setting, for an invalid value."""
    _check_mapping(settings)
    return {name: plain_setting(name, value) for name, value in settings.items()}


def plain_setting(name: str, value: SettingValue) -> str:
    """Return the plain text of one value; raises INVALID_CONFIG, which names the setting, for an invalid value.

    Numbers without a unit stay as they are, because the broker knows their limits.
    """
    if not isinstance(name, str):
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{name!r} is not the name of a setting (it must be str)")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta) and name.endswith((".ms", "_ms")):
        return str(value // _MILLISECOND)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    if not isinstance(value, str):
        why = f"{name}: {value!r} is not the value of a setting (use text, a number, a boolean or a list of texts)"
        raise MillstreamError(ErrorCode.INVALID_CONFIG, why)
    read = _reader(name)
    if read is None or _is_whole(value):
        return value
    try:
        return str(read(value))
    except ValueError as error:
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{name}: {quoted(value)} is {error}") from None


def _check_mapping(given: object) -> None:
    if not isinstance(given, Mapping):
        text = f"settings: {quoted(given)} is not a mapping of names to values"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)


def _reader(name: str) -> Callable[[str], int] | None:
    if name.endswith((".ms", "_ms")):
        return read_duration_ms
    return read_size_bytes if name.endswith((".bytes", "_bytes")) else None


def _is_whole(text: str) -> bool:
    digits = text.strip().removeprefix("-")
    return digits.isascii() and digits.isdigit()
