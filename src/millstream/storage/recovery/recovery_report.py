"""Reports what the recovery of a data directory found: a summary, and lines for each log that was read or changed.

The storage knows no topics. It keeps a `RecoveredLog` for each such log. The partitions report it once the names of the
topics are known. If the start fails before that, the store reports it without names.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from millstream.model.ids import Offset, TopicId
from millstream.model.names import PartitionKey
from millstream.storage.data_directory import log_directory_name
from millstream.storage.log.log_label import LogLabel
from millstream.storage.recovery.log_recovery import LogPlan

_logger = logging.getLogger(__name__)


class Truncation(NamedTuple):
    """The part of a log that recovery removed. The bytes behind the cut are kept in a `.cut` file."""

    bytes_truncated: int
    cut_segment_offset: int | None
    """The base offset of the segment that was cut; None if only whole segments were set aside."""
    cut_position_bytes: int | None
    segments_set_aside: int
    whole_batches_set_aside: int
    may_lose_acknowledged: bool

    @property
    def fields(self) -> Mapping[str, object]:
        named = self._asdict()
        if not named.pop("may_lose_acknowledged"):
            del named["whole_batches_set_aside"]
        return {name: value for name, value in named.items() if value is not None}


class RecoveredLog(NamedTuple):
    """The recovery of one log, after a start that had to read or change it."""

    path: str
    end_offset: Offset
    duration_ms: int
    bytes_read: int
    """Bytes after the last checkpoint that were read and verified."""
    journal_writes: int
    """Number of writes that were in the journal, but not in the segments."""
    quarantined: str | None
    """The reason for which the log is not served."""
    truncation: Truncation | None


def recovered_log(directory: str, key: PartitionKey, plan: LogPlan) -> RecoveredLog | None:
    """Returns the recovery of a log, or None if nothing was read or changed."""
    found = RecoveredLog(
        f"{directory}/{log_directory_name(key)}",
        plan.end_offset,
        int(plan.took_s * 1000),
        plan.bytes_read,
        len(plan.writes),
        plan.quarantined,
        _truncation(plan) if plan.is_truncated else None,
    )
    changed = plan.quarantined is not None or plan.is_truncated or plan.writes or plan.bytes_read
    return found if changed else None


def _truncation(plan: LogPlan) -> Truncation:
    cut_segment_offset, cut_position_bytes = plan.cut or (None, None)
    return Truncation(
        plan.bytes_truncated,
        cut_segment_offset,
        cut_position_bytes,
        len(plan.set_aside),
        plan.whole_batches_set_aside,
        plan.may_lose_acknowledged,
    )


def report(directory: str, plans: Mapping[PartitionKey, LogPlan], *, took_s: float) -> None:
    """Logs a summary of the directory."""
    summary = {
        "path": directory,
        "logs": len(plans),
        "recovered": sum(recovered_log(directory, key, plan) is not None for key, plan in plans.items()),
        "truncated": sum(plan.is_truncated for plan in plans.values()),
        "quarantined": sum(plan.quarantined is not None for plan in plans.values()),
        "bytes_read": sum(plan.bytes_read for plan in plans.values()),
        "bytes_truncated": sum(plan.bytes_truncated for plan in plans.values()),
        "duration_ms": int(took_s * 1000),
    }
    _logger.info("directory recovered", extra=summary)


def report_recovered(recovered: Mapping[PartitionKey, RecoveredLog], names: Mapping[TopicId, str]) -> None:
    """Logs the recovery of each log, with the names of the topics that are known."""
    for key, found in recovered.items():
        label = LogLabel(key, found.path)
        label.named(names.get(key.topic_id, ""))
        _report_one(label.fields, found)


def _report_one(where: Mapping[str, object], found: RecoveredLog) -> None:
    ends, cut = {**where, "end_offset": found.end_offset}, found.truncation
    work = {"duration_ms": found.duration_ms, "bytes_read": found.bytes_read}
    changes = {"bytes_truncated": cut.bytes_truncated if cut else 0, "journal_writes": found.journal_writes}
    if found.quarantined is not None:
        _logger.error("partition quarantined", extra={**where, "error": found.quarantined})
        _logger.error("partition not recovered", extra={**ends, **work, **changes, "error": found.quarantined})
        return
    if cut is not None and cut.may_lose_acknowledged:
        _logger.error("log truncated, acknowledged data may be lost", extra={**ends, **cut.fields})
    elif cut is not None:
        _logger.warning("log truncated at torn tail", extra={**ends, **cut.fields})
    _logger.info("partition recovered", extra={**ends, **work, **changes})
