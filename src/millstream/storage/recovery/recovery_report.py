"""Reports what the recovery of a data directory found: one line per damaged log, and a summary.

The storage knows no topics. It keeps a `RecoveredLog` for each log that was read or changed, and the partitions log it
with the name of the topic.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from millstream.model.ids import Offset
from millstream.model.names import PartitionKey
from millstream.storage.data_directory import log_directory_name
from millstream.storage.recovery.log_recovery import LogPlan

_logger = logging.getLogger(__name__)


class RecoveredLog(NamedTuple):
    """The recovery of one log, after a start that had to read or change it."""

    path: str
    end_offset: Offset
    duration_ms: int
    bytes_read: int
    """Bytes after the last checkpoint that were read and verified."""
    bytes_truncated: int
    journal_writes: int
    """Number of writes that were in the journal, but not in the segments."""
    quarantined: str | None
    """The reason for which the log is not served."""


def recovered_log(directory: str, key: PartitionKey, plan: LogPlan) -> RecoveredLog | None:
    """Returns the recovery of a log, or None if nothing was read or changed."""
    found = RecoveredLog(
        f"{directory}/{log_directory_name(key)}",
        plan.end_offset,
        int(plan.took_s * 1000),
        plan.bytes_read,
        plan.bytes_truncated,
        len(plan.writes),
        plan.quarantined,
    )
    changed = plan.quarantined is not None or plan.is_truncated or plan.writes or plan.bytes_read
    return found if changed else None


def report(directory: str, plans: Mapping[PartitionKey, LogPlan], *, took_s: float) -> None:
    """Logs the damaged logs, and a summary of the directory."""
    for key, plan in plans.items():
        _report_damage(f"{directory}/{log_directory_name(key)}", plan)
    unmarked = [key for key, plan in plans.items() if plan.may_lose_acknowledged and not plan.is_truncated]
    if unmarked:
        extra = {"path": f"{directory}/{log_directory_name(unmarked[0])}", "logs": len(unmarked)}
        _logger.error("end mark missing, acknowledged data may be lost", extra=extra)
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


def _report_damage(path: str, plan: LogPlan) -> None:
    if plan.quarantined is not None:
        _logger.error("partition quarantined", extra={"path": path, "error": plan.quarantined})
    elif plan.is_truncated:
        cut = {"bytes_truncated": plan.bytes_truncated, "cut": plan.cut, "set_aside": plan.set_aside}
        extra = {"path": path, "end_offset": plan.end_offset, **cut}
        if plan.may_lose_acknowledged:
            extra["whole_batches_set_aside"] = plan.whole_batches_set_aside
            _logger.error("log truncated, acknowledged data may be lost", extra=extra)
        else:
            _logger.warning("log truncated at torn tail", extra=extra)
