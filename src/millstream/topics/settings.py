"""A topic's settings: checked by their rows (`millstream.topics.setting_table`), and typed.

Values are text, as in Kafka's requests and in the catalog. Whatever is not in the table, not within its row's bounds,
or at odds with another setting, is refused with INVALID_CONFIG and an error that names the setting.
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
_LEVEL_LEFT_TO_THE_CODEC = -1


class TopicSettings(Struct, frozen=True):
    """A topic's settings, checked and typed.

    `compact` and `delete` are what `cleanup.policy` names, at least one of them: age and size remove messages only
    under `delete`. `compression_type` is `producer` or the one compression that batches are stored with, then at
    `compression_level` (None where the codec has no levels, or is to choose).
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
        """The effective settings: the topic's own, then the broker's defaults, then the table's.

        The settings must have passed `check`; a bad one raises INVALID_CONFIG here too.
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
    """What holds for a setting of the table, in its plain form; INVALID_CONFIG when its value is bad."""
    for source in (settings, defaults):
        if name in source:
            return _checked(TABLE[name], source[name])
    return TABLE[name].default


def check(settings: Mapping[str, str | None], defaults: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings in their plain form; INVALID_CONFIG, naming the first bad one, when there is one.

    `defaults` are the broker's, for settings that must fit another one.
    """
    checked = {name: _checked(_row(name), value) for name, value in settings.items()}
    low, high = (int(effective(f"{end}.compaction.lag.ms", checked, defaults or {})) for end in ("min", "max"))
    if low > high:
        raise MillstreamError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms: {low} is more than max.compaction.lag.ms, which is {high}",
        )
    return checked


def _compression_level(text: Callable[[str], str]) -> int | None:
    name = f"compression.{text('compression.type')}.level"
    if name not in TABLE:
        return None
    level = int(text(name))
    return None if name == "compression.gzip.level" and level == _LEVEL_LEFT_TO_THE_CODEC else level


def _segment_ms(text: Callable[[str], str], delete: bool) -> int:
    """A segment takes messages no longer than they are kept, so that retention is late by a bounded time."""
    segment_ms, retention_ms = int(text("segment.ms")), int(text("retention.ms"))
    return min(segment_ms, max(retention_ms, _SEGMENT_MS_MIN)) if delete and retention_ms >= 0 else segment_ms


def _row(name: str) -> TopicSetting:
    row = TABLE.get(name)
    if row is None:
        from difflib import get_close_matches  # only needed for an error message

        close = get_close_matches(name[:100], TABLE, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{name[:100]}: there is no such topic setting{hint}")
    return row


def _checked(row: TopicSetting, value: str | None) -> str:
    if value is None:
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{row.name}: a value is needed")
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
    """Each member once, in the order given."""
    members = dict.fromkeys(_checked_text(row, member.strip()) for member in value.split(",")) if value.strip() else {}
    if not members and not row.may_be_empty:
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{row.name}: give at least one of {', '.join(row.choices)}")
    return ",".join(members)


def _checked_text(row: TopicSetting, text: str) -> str:
    if row.pattern and not re.fullmatch(row.pattern, text):
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{row.name}: {text[:100]!r} does not look like {row.pattern}")
    if row.choices and text not in row.choices:
        raise MillstreamError(
            ErrorCode.INVALID_CONFIG, f"{row.name}: {text[:100]!r} is not supported, only {', '.join(row.choices)}"
        )
    return text


def _checked_number(row: TopicSetting, value: str, kind: Callable[[str], N], look: re.Pattern[str], what: str) -> N:
    if not look.fullmatch(value):
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{row.name}: {value[:100]!r} is not {what}")
    number = kind(value)
    if not row.low <= number <= row.high:
        raise MillstreamError(ErrorCode.INVALID_CONFIG, f"{row.name}: {number} is not between {row.low} and {row.high}")
    if row.choices:
        _checked_text(row, str(number))
    return number
