"""Checks topic settings against `millstream.topics.setting_table` and converts them to types.

Values are strings, as in Kafka's requests and in the catalog. An unknown setting, an invalid value, or a value that
contradicts another setting is refused with INVALID_CONFIG and an error that names the setting.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.topics.setting_table import TABLE, SettingKind, TopicSetting

N = TypeVar("N", int, float)

_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,19}\s*", re.ASCII)
_FRACTION = re.compile(r"\s*[+-]?([0-9]{1,19}\.?[0-9]{0,19}|\.[0-9]{1,19})([eE][+-]?[0-9]{1,3})?\s*", re.ASCII)
_SEGMENT_MS_MIN = 1_000
_CODEC_DEFAULT_LEVEL = -1


class TopicSettings(Struct, frozen=True):
    """The checked and typed settings of a topic.

    `compact` and `delete` are the values of `cleanup.policy`. Age and size remove messages only under `delete`. Without
    both, all messages stay until they are deleted by offset. `compression_type` is `producer` or the compression in
    which batches are stored.
    `compression_level` is None if the codec has no levels or uses its default.
    """

    compact: bool
    delete: bool
    compression_level: int | None
    compression_type: str
    delete_retention_ms: int
    log_append_time: bool
    max_compaction_lag_ms: int
    max_message_bytes: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_ms: int
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int

    @classmethod
    def of(cls, settings: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> "TopicSettings":
        """Return the effective settings: the topic's own, then the broker's defaults, then the table's defaults.

        The settings must have passed `check`. An invalid one raises INVALID_CONFIG here too.
        """

        def text(name: str) -> str:
            return effective(name, settings, defaults or {})

        policy = text("cleanup.policy").split(",")
        return cls(
            compact="compact" in policy,
            delete="delete" in policy,
            compression_level=_compression_level(text),
            compression_type=text("compression.type"),
            delete_retention_ms=int(text("delete.retention.ms")),
            log_append_time=text("message.timestamp.type") == "LogAppendTime",
            max_compaction_lag_ms=int(text("max.compaction.lag.ms")),
            max_message_bytes=int(text("max.message.bytes")),
            min_cleanable_dirty_ratio=float(text("min.cleanable.dirty.ratio")),
            min_compaction_lag_ms=int(text("min.compaction.lag.ms")),
            min_insync_replicas=int(text("min.insync.replicas")),
            retention_bytes=int(text("retention.bytes")),
            retention_ms=int(text("retention.ms")),
            segment_bytes=int(text("segment.bytes")),
            segment_ms=_segment_ms(text, "delete" in policy),
            timestamp_after_max_ms=int(text("message.timestamp.after.max.ms")),
            timestamp_before_max_ms=int(text("message.timestamp.before.max.ms")),
        )


def effective(name: str, settings: Mapping[str, str], defaults: Mapping[str, str]) -> str:
    """Return the effective value of a setting in canonical form. Raises INVALID_CONFIG if it is invalid."""
    for source in (settings, defaults):
        if name in source:
            return _checked(TABLE[name], source[name])
    return TABLE[name].default


def check(settings: Mapping[str, str | None], defaults: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings in canonical form. Raises INVALID_CONFIG, which names the first invalid setting.

    `defaults` are the broker's defaults, against which related settings are compared.
    """
    checked = {name: _checked(_row(name), value) for name, value in settings.items()}
    low, high = (int(effective(f"{end}.compaction.lag.ms", checked, defaults or {})) for end in ("min", "max"))
    if low > high:
        raise MillstreamError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms: {low} is greater than max.compaction.lag.ms, which is {high}",
        )
    return checked


def _compression_level(text: Callable[[str], str]) -> int | None:
    name = f"compression.{text('compression.type')}.level"
    if name not in TABLE:
        return None
    level = int(text(name))
    return None if name == "compression.gzip.level" and level == _CODEC_DEFAULT_LEVEL else level


def _segment_ms(text: Callable[[str], str], delete: bool) -> int:
    """Return the age at which a segment ends. It is at most the retention time, which bounds the delay of retention."""
    segment_ms, retention_ms = int(text("segment.ms")), int(text("retention.ms"))
    return min(segment_ms, max(retention_ms, _SEGMENT_MS_MIN)) if delete and retention_ms >= 0 else segment_ms


def _row(name: str) -> TopicSetting:
    row = TABLE.get(name)
    if row is None:
        from difflib import get_close_matches  # only needed for an error message

        close = get_close_matches(name[:100], TABLE, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{name[:100]}: unknown topic setting{hint}")
    return row


def _checked(row: TopicSetting, value: str | None) -> str:
    if value is None:
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{row.name}: the value is null; give a value")
    match row.kind:
        case SettingKind.LIST:
            return _checked_list(row, value)
        case SettingKind.STRING:
            return _checked_text(row, value.strip())
        case SettingKind.BOOLEAN:
            return _checked_text(row, value.strip().lower())
        case SettingKind.DOUBLE:
            return str(_checked_number(row, value, float, _FRACTION, "a number"))
        case _:
            return str(_checked_number(row, value, int, _WHOLE, "a whole number"))


def _checked_list(row: TopicSetting, value: str) -> str:
    """Return the members of a list, each once and in the given order."""
    members = dict.fromkeys(_checked_text(row, member.strip()) for member in value.split(",")) if value.strip() else {}
    return ",".join(members)


def _checked_text(row: TopicSetting, text: str) -> str:
    if row.pattern and not re.fullmatch(row.pattern, text):
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{row.name}: {text[:100]!r} does not match {row.pattern}")
    if row.choices and text not in row.choices:
        raise MillstreamError(
            ErrorCode.INVALID_CONFIG, f"{row.name}: {text[:100]!r} is not supported; use {', '.join(row.choices)}"
        )
    return text


def _checked_number(row: TopicSetting, value: str, kind: Callable[[str], N], form: re.Pattern[str], noun: str) -> N:
    if not form.fullmatch(value):
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{row.name}: {value[:100]!r} is not {noun}")
    number = kind(value)
    if not row.low <= number <= row.high:
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{row.name}: {number} is not between {row.low} and {row.high}")
    if row.choices:
        _checked_text(row, str(number))
    return number
