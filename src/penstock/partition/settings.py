"""The settings a topic can have: one table, from which checking, defaults and documentation all come.

Values are text, as in Kafka's requests and in the catalog. Whatever is not in the table, or not within its row's
bounds, is refused with INVALID_CONFIG and an error that names the setting.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.limits import MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_DAY_MS = 24 * 3600 * 1000
_NUMBER = re.compile(r"\s*-?[0-9]{1,19}\s*", re.ASCII)
_SEGMENT_MS_MIN = 1_000


class Kind(StrEnum):
    """The type of a setting, by Kafka's names."""

    INT = "int"
    LONG = "long"
    STRING = "string"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: numbers have bounds (inclusive), texts have choices."""

    name: str
    kind: Kind
    default: str
    doc: str
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()


_ROWS = (
    Setting(
        "cleanup.policy",
        Kind.LIST,
        "delete",
        "What becomes of old messages: `delete` removes them by age and size. Compaction is not there yet.",
        choices=("delete",),
    ),
    Setting(
        "compression.type",
        Kind.STRING,
        "producer",
        "Batches are stored as the producer compressed them; the broker never opens them to compress anew.",
        choices=("producer",),
    ),
    Setting(
        "max.message.bytes",
        Kind.INT,
        str(MESSAGE_BYTES_MAX),
        "Largest batch the topic takes, after compression.",
        high=REQUEST_BYTES_MAX,
    ),
    Setting(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        str(3600 * 1000),
        "How far the newest time of a batch may lie ahead of the broker's clock (CreateTime only).",
        high=_LONG_MAX,
    ),
    Setting(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        str(_LONG_MAX),
        "How far the first and the newest time of a batch may lie behind the broker's clock (CreateTime only).",
        high=_LONG_MAX,
    ),
    Setting(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Whose time a message carries: its producer's (CreateTime) or the broker's (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Setting(
        "min.insync.replicas",
        Kind.INT,
        "1",
        "So many replicas must be in sync for a write with acks=all to be accepted.",
        low=1,
        high=_INT_MAX,
    ),
    Setting(
        "retention.bytes",
        Kind.LONG,
        "-1",
        "A partition larger than this loses its oldest segments; -1: no limit.",
        low=-1,
        high=_LONG_MAX,
    ),
    Setting(
        "retention.ms",
        Kind.LONG,
        str(7 * _DAY_MS),
        "Messages older than this are removed, a whole segment at a time; -1: never. A segment takes messages no "
        "longer than this, so the last one is gone after at most twice the time and one round of the cleaner.",
        low=-1,
        high=_LONG_MAX,
    ),
    Setting(
        "segment.bytes",
        Kind.INT,
        str(1024 * 1024 * 1024),
        "A segment file that has reached this size is followed by a new one.",
        low=16 * 1024,
        high=_INT_MAX,
    ),
    Setting(
        "segment.ms",
        Kind.LONG,
        str(7 * _DAY_MS),
        "A segment file of this age is followed by a new one, so that retention can take it.",
        low=1,
        high=_LONG_MAX,
    ),
)

TABLE: Mapping[str, Setting] = {row.name: row for row in _ROWS}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's settings, checked and typed."""

    max_message_bytes: int
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_ms: int
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    log_append_time: bool

    @classmethod
    def of(cls, settings: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> "TopicSettings":
        """The effective settings: the topic's own, then the broker's defaults, then the table's.

        The settings must have passed `check`; a bad one raises INVALID_CONFIG here too.
        """

        def text(name: str) -> str:
            for source in (settings, defaults or {}):
                if name in source:
                    return _checked(TABLE[name], source[name])
            return TABLE[name].default

        retention_ms = int(text("retention.ms"))
        segment_ms = int(text("segment.ms"))
        if retention_ms >= 0:
            segment_ms = min(segment_ms, max(retention_ms, _SEGMENT_MS_MIN))
        return cls(
            max_message_bytes=int(text("max.message.bytes")),
            min_insync_replicas=int(text("min.insync.replicas")),
            retention_bytes=int(text("retention.bytes")),
            retention_ms=retention_ms,
            segment_bytes=int(text("segment.bytes")),
            segment_ms=segment_ms,
            timestamp_after_max_ms=int(text("message.timestamp.after.max.ms")),
            timestamp_before_max_ms=int(text("message.timestamp.before.max.ms")),
            log_append_time=text("message.timestamp.type") == "LogAppendTime",
        )


def check(settings: Mapping[str, str | None]) -> dict[str, str]:
    """The settings in their plain form; INVALID_CONFIG, naming the first bad one, when there is one."""
    return {name: _checked(_row(name), value) for name, value in settings.items()}


def _row(name: str) -> Setting:
    row = TABLE.get(name)
    if row is None:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"{name[:100]}: there is no such topic setting; known are {', '.join(TABLE)}"
        )
    return row


def _checked(row: Setting, value: str | None) -> str:
    if value is None:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"{row.name}: a value is needed")
    if row.choices:
        plain = value.strip()
        if plain not in row.choices:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG, f"{row.name}: {value[:100]!r} is not supported, only {', '.join(row.choices)}"
            )
        return plain
    if not _NUMBER.fullmatch(value):
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"{row.name}: {value[:100]!r} is not a whole number")
    number = int(value)
    if not row.low <= number <= row.high:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"{row.name}: {number} is not between {row.low} and {row.high}")
    return str(number)
