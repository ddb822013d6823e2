"""Turns Spark's row filters into limits on what is read.

Conditions on topic, partition and offset are applied exactly, so Spark does not check them again. Only a lower limit of
the timestamp can be used, because timestamps need not increase with offsets: reading starts at the first message at or
after that time, and Spark checks the condition on every row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from millstream.model.names import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_EXACT = ("topic", "partition", "offset")
Check = Callable[[Any], bool]


@dataclass
class FilterLimits:
    """Limits from the accepted filters. A new object has no limits."""

    checks: dict[str, list[Check]] = field(default_factory=lambda: {"topic": [], "partition": []})
    first_offset: int = 0
    end_offset: int = 2**63 - 1
    first_time_ms: int | None = None

    def wants(self, where: TopicPartition) -> bool:
        """True if the filters on topic and partition accept the partition."""
        checks = ((where.topic, self.checks["topic"]), (where.partition, self.checks["partition"]))
        return all(check(value) for value, each in checks for check in each)

    def clip(self, start: int, *, end: int) -> tuple[int, int]:
        """Returns the part of an offset range that the filters on the offset accept."""
        start = max(start, self.first_offset)
        return start, max(start, min(end, self.end_offset))


def push(filters: "Sequence[Filter]", limits: FilterLimits) -> "list[Filter]":
    """Adds the filters to `limits`, and returns those that Spark still has to check."""
    return [each for each in filters if not _take(each, limits)]


def _take(each: "Filter", limits: FilterLimits) -> bool:
    """Adds a filter to the limits if possible. Returns true if Spark need not check it again."""
    kind = type(each).__name__
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    name = attribute[0] if len(attribute) == 1 else ""
    if kind == "IsNotNull":
        return name in (*_EXACT, "timestamp")
    value = getattr(each, "value", None)
    if name in ("topic", "partition"):
        return _take_check(limits.checks[name], kind, value)
    if name == "offset" and type(value) is int:
        return _take_offset(limits, kind, value)
    if name == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        _take_time(limits, kind, value)
    return False


def _take_check(checks: list[Check], kind: str, value: Any) -> bool:
    known: Mapping[str, Check] = {
        "EqualTo": lambda found: bool(found == value),
        "EqualNullSafe": lambda found: bool(found == value),
        "In": lambda found: found in value,
        "GreaterThan": lambda found: bool(found > value),
        "GreaterThanOrEqual": lambda found: bool(found >= value),
        "LessThan": lambda found: bool(found < value),
        "LessThanOrEqual": lambda found: bool(found <= value),
    }
    if kind not in known or value is None:
        return False
    checks.append(known[kind])
    return True


def _take_offset(limits: FilterLimits, kind: str, value: int) -> bool:
    if kind in ("EqualTo", "EqualNullSafe"):
        first, end = value, value + 1
    elif kind in ("GreaterThan", "GreaterThanOrEqual"):
        first, end = value + (kind == "GreaterThan"), limits.end_offset
    elif kind in ("LessThan", "LessThanOrEqual"):
        first, end = limits.first_offset, value + (kind == "LessThanOrEqual")
    else:
        return False
    limits.first_offset = max(limits.first_offset, first)
    limits.end_offset = min(limits.end_offset, end)
    return True


def _take_time(limits: FilterLimits, kind: str, value: datetime) -> None:
    if kind in ("EqualTo", "GreaterThan", "GreaterThanOrEqual"):
        first_ms = max(0, int(value.timestamp() * 1000))
        limits.first_time_ms = max(limits.first_time_ms or 0, first_ms)
