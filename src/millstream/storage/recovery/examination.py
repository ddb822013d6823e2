"""Examines a stopped data directory as the next start will find it, and changes nothing.

It uses the plans of recovery (`log_recovery`), so it reads the same part of each log as the start: the part after the
last checkpoint.
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from millstream.model.ids import Offset
from millstream.model.names import PartitionKey
from millstream.seams.clock import Clock
from millstream.seams.disk import Disk
from millstream.storage.cleaning import segment_exchange
from millstream.storage.data_directory import key_of, log_directory_name
from millstream.storage.flush import checkpoint, end_marks, quarantined_entries
from millstream.storage.flush.checkpoint import LogState
from millstream.storage.flush.journal import JournalEntry, journal_numbers, journal_path, read_journal
from millstream.storage.recovery import directory_identity, log_recovery
from millstream.storage.recovery.disk_errors import DiskErrorLog
from millstream.storage.recovery.log_recovery import LogPlan


class DirectoryExamination(Struct):
    """The state that a start will find. `directory_id` is None for a directory without a readable identity."""

    directory_id: UUID | None = None
    members: frozenset[UUID] = frozenset()
    """The ids of all data directories of the broker, this one included."""
    has_checkpoint: bool = False
    is_checkpoint_usable: bool = False
    is_clean: bool = False
    missing_journal: str | None = None
    """Path of a journal that the checkpoint needs."""
    journal_entries: int = 0
    has_end_marks: bool = False
    end_marks_damage: str | None = None
    """The reason for which end marks may be missing."""
    acknowledged_ends: int = 0
    """Number of logs whose acknowledged end is known."""
    plans: dict[PartitionKey, LogPlan] = field(default_factory=dict)


def examine_directory(disk: Disk, path: str, clock: Clock) -> DirectoryExamination:
    """Examine a data directory (blocking). Raise OSError, or DATA_DIRECTORY_MISSING for a damaged identity."""
    found = DirectoryExamination()
    identity = directory_identity.read_identity(disk, path)
    if identity is None:
        return found
    names = disk.list(path)
    found.directory_id, found.members = identity
    found.has_checkpoint = checkpoint.FILE_NAME in names
    last = checkpoint.read(disk, path, identity.own) if found.has_checkpoint else None
    found.is_checkpoint_usable = last is not None
    last = last or checkpoint.Checkpoint(False, 0, {}, has_journal=False)
    found.is_clean = last.is_clean
    journals = journal_numbers(names)
    if last.has_journal and last.first_journal not in journals and not last.is_clean:
        found.missing_journal = journal_path(path, last.first_journal)
    entries = _entries(disk, path, identity.own, [number for number in journals if number >= last.first_journal])
    found.journal_entries = sum(map(len, entries.values()))
    for name in names:
        if name.endswith(quarantined_entries.SUFFIX):
            for entry in quarantined_entries.read(disk, f"{path}/{name}"):
                entries.setdefault(entry.key, []).append(entry)
    found.has_end_marks = end_marks.FILE_NAME in names
    marks = end_marks.EndMarks(disk, path, identity.own, DiskErrorLog(clock), flushed=True).read()
    found.acknowledged_ends = len(marks.ends)
    found.end_marks_damage = marks.damage
    keys = {key: None for key in map(key_of, names) if key is not None}
    is_trusted = found.is_checkpoint_usable or not (found.has_checkpoint or keys)
    for key in keys:
        found_entries, start = entries.get(key, ()), marks.start_of(key)
        plan = _plan(disk, path, key, last.logs.get(key), found_entries, clock.wall_ms(), start, is_trusted)
        if not plan.is_exchanged:
            is_missing = marks.is_missing(key, is_in_checkpoint=key in last.logs)
            log_path = f"{path}/{log_directory_name(key)}"
            plan.check_mark(log_path, marks.ends.get(key), is_complete=marks.is_complete, is_missing=is_missing)
        found.plans[key] = plan
    for key in last.logs:
        if key not in keys:
            missing = f"{path}/{log_directory_name(key)} is missing, but the checkpoint lists it"
            found.plans[key] = LogPlan(quarantined=missing)
    return found


def _entries(disk: Disk, path: str, own: UUID, numbers: Sequence[int]) -> dict[PartitionKey, list[JournalEntry]]:
    entries: dict[PartitionKey, list[JournalEntry]] = {}
    for number in numbers:
        for entry in read_journal(disk, path, own, number):
            entries.setdefault(entry.key, []).append(entry)
    return entries


def _plan(
    disk: Disk,
    path: str,
    key: PartitionKey,
    known: LogState | None,
    entries: Sequence[JournalEntry],
    now_ms: int,
    marked_start: Offset | None,
    is_trusted: bool,
) -> LogPlan:
    log_path = f"{path}/{log_directory_name(key)}"
    try:
        if segment_exchange.decided(disk, log_path) is not None:
            return LogPlan(is_exchanged=True)  # The start completes the exchange first, which changes files.
        return log_recovery.plan_log(
            disk, log_path, known, entries, now_ms, trusted=is_trusted, marked_start=marked_start
        )
    except OSError as error:
        return LogPlan(quarantined=f"{log_path} cannot be read: {error}")
