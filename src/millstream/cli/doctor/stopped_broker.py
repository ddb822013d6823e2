"""Examines the data directories of a stopped broker, and changes nothing."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

from millstream.cli.doctor.diagnosis import Diagnosis
from millstream.cli.dump.names import CATALOG_NAME, catalog_copy, topic_names
from millstream.cli.dump.read_only_disk import ReadOnlyDisk
from millstream.cli.output import counted, shown_size
from millstream.model.errors import MillstreamError
from millstream.model.names import PartitionKey
from millstream.seams.clock import SystemClock
from millstream.seams.disk import Space
from millstream.seams.local_disk import lock_holder
from millstream.storage.disk_reserve import FILE_NAME as RESERVE_NAME
from millstream.storage.disk_reserve import DiskLimits
from millstream.storage.recovery.examination import DirectoryExamination, examine_directory
from millstream.storage.recovery.log_recovery import LogPlan
from millstream.storage.store import LOCK_NAME

_OTHERS = 0o077


def examine_directories(directories: Sequence[Path]) -> Iterator[Diagnosis]:
    """Yields what a start with these directories will find. The first one has the catalog."""
    names = topic_names(directories[0])
    members: dict[UUID, Path] = {}
    expected: set[UUID] = set()
    for directory in directories:
        try:
            holder = lock_holder(str(directory / LOCK_NAME))
            yield from _access(directory)
            if holder is not None:
                advice = "Examine the running broker with --bootstrap, or stop it first."
                yield Diagnosis("problem", str(directory), f"in use by process {holder}", advice)
                continue
            found = examine_directory(ReadOnlyDisk(), str(directory), SystemClock())
        except (OSError, MillstreamError) as problem:
            text = problem.detail if isinstance(problem, MillstreamError) else str(problem)
            yield Diagnosis("problem", str(directory), text, "Restore or mount it; check the user of the broker.")
            continue
        yield from _space(directory)
        if found.directory_id is None:
            yield Diagnosis("warning", str(directory), "contains no data of a broker", "Check the path and its mount.")
            continue
        members[found.directory_id] = directory
        expected |= found.members
        yield from _files(directory, found)
        for key, plan in sorted(found.plans.items()):
            yield _log(key, plan, names)
    if missing := expected - members.keys():
        text = f"{counted(len(missing), 'data directory', 'data directories')} of this broker not given or missing: "
        advice = "Mount them, and name all directories of the broker."
        yield Diagnosis("problem", "data directories", text + ", ".join(sorted(map(str, missing))), advice)
    if members:
        yield _catalog(directories[0])


def _access(directory: Path) -> Iterator[Diagnosis]:
    state = directory.stat()
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        yield Diagnosis("problem", str(directory), "this user cannot read and write it", "Run as the broker's user.")
    elif state.st_mode & _OTHERS:
        advice = "The next start restricts it, if it belongs to the broker's user."
        yield Diagnosis("warning", str(directory), f"other users have rights (mode {state.st_mode & 0o777:o})", advice)


def _space(directory: Path) -> Iterator[Diagnosis]:
    volume = os.statvfs(directory)
    space = Space(volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize)
    limits = DiskLimits()
    text = f"{shown_size(space.free_bytes)} of {shown_size(space.total_bytes)} free"
    if space.free_bytes < limits.reserve_of(space):
        yield Diagnosis("problem", f"space of {directory}", f"{text}; writes will be refused", "Free or add space.")
    elif space.free_bytes < limits.low_of(space):
        yield Diagnosis("warning", f"space of {directory}", f"{text}, which is low", "Free or add space soon.")
    else:
        yield Diagnosis("ok", f"space of {directory}", text)
    if not (directory / RESERVE_NAME).exists():
        text = "missing: the disk was full, or disk_reserve_bytes is 0"
        yield Diagnosis("warning", f"reserve of {directory}", text, "Free space; the next start creates it again.")


def _files(directory: Path, found: DirectoryExamination) -> Iterator[Diagnosis]:
    checkpoint = f"checkpoint of {directory}"
    if found.is_checkpoint_usable:
        text = "of a clean stop" if found.is_clean else "usable; the broker did not stop cleanly, so the start recovers"
        yield Diagnosis("ok", checkpoint, text)
    elif found.has_checkpoint or found.plans:
        text = "damaged" if found.has_checkpoint else "missing, but there are logs"
        advice = "The start reads all logs completely. Restore the file if there is a copy."
        yield Diagnosis("problem", checkpoint, text, advice)
    if found.missing_journal is not None:
        advice = "Restore the file; without it, partitions that lack acknowledged data are quarantined."
        yield Diagnosis("problem", f"journals of {directory}", f"{found.missing_journal} is missing", advice)
    else:
        text = f"{counted(found.journal_entries, 'entry', 'entries')} to apply"
        yield Diagnosis("ok", f"journals of {directory}", text)
    if found.plans and not found.has_end_marks:
        yield Diagnosis("warning", f"end marks of {directory}", "missing", "The start creates them again.")
    elif found.end_marks_damage is not None:
        advice = "The start creates them again, and cannot detect lost messages at the end of the logs without a mark."
        yield Diagnosis("warning", f"end marks of {directory}", found.end_marks_damage, advice)
    else:
        text = f"acknowledged ends of {counted(found.acknowledged_ends, 'log')}"
        yield Diagnosis("ok", f"end marks of {directory}", text)


def _log(key: PartitionKey, plan: LogPlan, names: dict[str, str]) -> Diagnosis:
    """Says what the next start will do with a log."""
    subject = f"partition {names.get(str(key.topic_id), str(key.topic_id))}-{key.partition}"
    if plan.quarantined is not None:
        advice = "Copy the directory, restore the file from a backup, then start. docs/serve.md has the steps."
        return Diagnosis("problem", subject, f"will be quarantined: {plan.quarantined}", advice)
    if plan.is_exchanged:
        return Diagnosis("ok", subject, "the start completes a compaction first")
    text = f"offsets {plan.start_offset} to {plan.end_offset}"
    if plan.may_lose_acknowledged and not plan.is_truncated:
        advice = "Compare the end of the partition with the source of the data."
        return Diagnosis("problem", subject, f"{text}; its end mark is lost, so messages may be missing", advice)
    if plan.cut is None and not plan.set_aside:
        return Diagnosis("ok", subject, text)
    text += f"; the start truncates it there and sets aside {plan.whole_batches_set_aside} whole batches"
    if plan.may_lose_acknowledged and plan.whole_batches_set_aside:
        advice = "Keep a copy of the directory, and compare the .cut file with the source of the data."
        return Diagnosis("problem", subject, f"{text}, which may be acknowledged", advice)
    tail = "a torn tail, perhaps of acknowledged data" if plan.may_lose_acknowledged else "a torn tail"
    return Diagnosis("warning", subject, f"{text} ({tail}); the removed bytes stay in a .cut file")


def _catalog(directory: Path) -> Diagnosis:
    advice = "Restore the file from a copy; the broker does not start without it."
    if not (directory / CATALOG_NAME).is_file():
        return Diagnosis("problem", "catalog", f"{directory / CATALOG_NAME} is missing", advice)
    try:
        with catalog_copy(directory) as connection:
            result = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            topics = connection.execute("SELECT count(*) FROM topics").fetchone()[0]
    except (OSError, sqlite3.Error) as problem:
        return Diagnosis("problem", "catalog", f"{directory / CATALOG_NAME} cannot be read: {problem}", advice)
    if result != "ok":
        return Diagnosis("problem", "catalog", f"{directory / CATALOG_NAME} is damaged: {result}", advice)
    return Diagnosis("ok", "catalog", counted(topics, "topic"))
