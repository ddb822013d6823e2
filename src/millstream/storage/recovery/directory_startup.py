"""Recovers all logs of a data directory from the checkpoint, the journals and the segments.

First, decided exchanges of segments are completed and everything is read. Then the logs are repaired by parallel
workers. Only afterwards is a new checkpoint written and are the old journals removed. A crash before that repeats the
recovery from the same files with the same result. After a clean close only the checkpoint is read.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from millstream.model.ids import Offset
from millstream.model.names import PartitionKey
from millstream.seams.clock import Clock
from millstream.seams.workers import Workers
from millstream.storage.cleaning import segment_exchange
from millstream.storage.cleaning.file_removal import remove_all
from millstream.storage.data_directory import DELETED_SUFFIX, DataDirectory, key_of, log_directory_name
from millstream.storage.flush import checkpoint, quarantined_entries
from millstream.storage.flush.checkpoint import FILE_NAME as CHECKPOINT_NAME
from millstream.storage.flush.checkpoint import UNKNOWN, Checkpoint, LogState
from millstream.storage.flush.end_marks import SavedMarks
from millstream.storage.flush.journal import JournalEntry, journal_numbers, journal_path, read_journal
from millstream.storage.flush.written_marks import FILE_NAME as WRITTEN_NAME
from millstream.storage.recovery import log_recovery
from millstream.storage.recovery.log_recovery import LogPlan
from millstream.storage.recovery.recovery_report import report
from millstream.storage.sealed_file import UNFINISHED

LOGS_AT_ONCE = 64
SIDE_BY_SIDE = 8
"""The minimum number of slices, so that several workers share even a few logs."""
RETRY_AFTER_S = (0.1, 0.5, 2.0)
"""Delays before retries after a disk error. After the last one, a log stays quarantined until the next start."""

_logger = logging.getLogger(__name__)
T = TypeVar("T")


class DirectoryContents(Struct):
    """The contents of a data directory before any change."""

    known: dict[PartitionKey, LogState]
    is_clean: bool
    is_trusted: bool
    """False if the checkpoint is lost or damaged although there are logs. New logs require a new checkpoint."""
    keys: dict[PartitionKey, None]
    unfinished: list[str]
    deleted: list[str]
    first_journal: int
    """The first journal that the checkpoint still needs. Lower numbers must not be used again."""
    journals: list[int]
    entries: dict[PartitionKey, list[JournalEntry]]
    written: dict[PartitionKey, LogState]
    """The written marks of the previous process in this boot, for logs whose flush is left to the kernel."""
    marks: SavedMarks
    """The acknowledged ends that the previous process recorded."""
    kept: list[PartitionKey]
    """Logs whose journal entries an earlier start has saved."""


def take_inventory(directory: DataDirectory) -> DirectoryContents:
    """Read the checkpoint, the names and the journals (blocking). Raise OSError or DATA_DIRECTORY_MISSING."""
    disk, path = directory.disk, directory.path
    names = disk.list(path)
    found = checkpoint.read(disk, path, directory.id)
    last = found or Checkpoint(False, 0, {}, has_journal=False)
    keys = {key: None for key in map(key_of, names) if key is not None}
    unfinished = [name for name in names if name.endswith(UNFINISHED)]
    deleted = [name for name in names if name.endswith(DELETED_SUFFIX)]
    journals = journal_numbers(names)
    entries = _journal_entries(directory, last, journals)
    kept = [
        name.removesuffix(quarantined_entries.SUFFIX) for name in names if name.endswith(quarantined_entries.SUFFIX)
    ]
    for name in kept:
        for entry in quarantined_entries.read(disk, f"{path}/{name}"):
            entries.setdefault(entry.key, []).append(entry)
    kept_keys = [key for key in map(key_of, kept) if key is not None]
    is_there = CHECKPOINT_NAME in names
    is_trusted = found is not None or not (is_there or keys)
    if not is_trusted:
        reason = "it is damaged" if is_there else "it is missing, but there are logs"
        _logger.error("checkpoint unusable, all logs will be read", extra={"path": path, "error": reason})
    directory.has_checkpoint = found is not None
    marks = directory.end_marks.read()
    if marks.damage is not None and keys and not last.is_clean:
        directory.end_marks.lost(marks.damage)
    return DirectoryContents(
        last.logs,
        last.is_clean,
        is_trusted,
        keys,
        unfinished,
        deleted,
        last.first_journal,
        journals,
        entries,
        directory.written.read(),
        marks,
        kept_keys,
    )


def _journal_entries(
    directory: DataDirectory, last: Checkpoint, journals: Sequence[int]
) -> dict[PartitionKey, list[JournalEntry]]:
    """Read the journals that the checkpoint still needs, and report a missing one."""
    if last.has_journal and last.first_journal not in journals and not last.is_clean:
        _logger.error(
            "journal missing",
            extra={"path": journal_path(directory.path, last.first_journal), "needed_by": "checkpoint"},
        )
    entries: dict[PartitionKey, list[JournalEntry]] = {}
    for number in journals:
        if number >= last.first_journal:
            for entry in read_journal(directory.disk, directory.path, directory.id, number):
                entries.setdefault(entry.key, []).append(entry)
    return entries


async def recover(directory: DataDirectory, workers: Workers, clock: Clock) -> dict[PartitionKey, LogPlan]:
    """Recover every log of the directory. Raise OSError if the directory itself cannot be read."""
    begun_s = clock.monotonic_s()
    inventory = await workers.run(partial(take_inventory, directory))
    gone = {key_of(name.removesuffix(DELETED_SUFFIX)) for name in inventory.deleted}
    keys = [*inventory.keys, *(key for key in inventory.known if key not in inventory.keys and key not in gone)]
    plans: dict[PartitionKey, LogPlan] = {}
    if inventory.is_clean and not inventory.journals:
        plans = {key: as_known(inventory.known[key]) for key in inventory.keys if key in inventory.known}
        keys = [key for key in keys if key not in plans]
    plans.update(await _repair(directory, inventory, workers, clock, keys))
    for wait_s in RETRY_AFTER_S:
        again = [key for key, plan in plans.items() if plan.may_pass]
        if not again:
            break
        await asyncio.sleep(wait_s)
        plans.update(await _repair(directory, inventory, workers, clock, again))
    quarantined: dict[PartitionKey, None] = {}
    for key, plan in plans.items():
        if plan.quarantined is not None:
            quarantined[key] = None
            end = Offset(0 if plan.is_trusted else UNKNOWN)
            directory.kept_states[key] = inventory.known.get(key) or LogState(key, end, end, ())
    ends = {key: plan.end_offset for key, plan in plans.items() if plan.quarantined is None and not plan.unflushed}
    starts = {key: plan.start_offset for key, plan in plans.items() if plan.quarantined is None and plan.start_offset}
    ends |= {key: inventory.marks.ends[key] for key in quarantined if key in inventory.marks.ends}
    starts |= {key: inventory.marks.starts[key] for key in quarantined if key in inventory.marks.starts}
    marks = inventory.marks._replace(ends=ends, starts=starts)
    await workers.run(partial(_tidy, directory, inventory, quarantined, marks))
    directory.graves = [f"{directory.path}/{name}" for name in inventory.deleted]
    directory.first_journal = min(inventory.journals, default=inventory.first_journal)
    directory.next_journal = max(inventory.first_journal, *(number + 1 for number in inventory.journals), 0)
    report(directory.path, plans, took_s=clock.monotonic_s() - begun_s)
    return plans


async def _repair(
    directory: DataDirectory, inventory: DirectoryContents, workers: Workers, clock: Clock, keys: Sequence[PartitionKey]
) -> dict[PartitionKey, LogPlan]:
    """Read the logs, then repair those that are not quarantined."""
    plans = dict(await _in_slices(workers, keys, partial(_plan, directory, inventory, clock)))
    sound = [(key, plan) for key, plan in plans.items() if plan.quarantined is None]
    plans.update(await _in_slices(workers, sound, partial(_apply, directory, clock)))
    return plans


def as_known(state: LogState) -> LogPlan:
    """Return the plan of a log that is exactly as in the checkpoint."""
    return LogPlan(start_offset=state.start_offset, end_offset=state.end_offset, segments=list(state.segments))


def _plan(
    directory: DataDirectory, inventory: DirectoryContents, clock: Clock, key: PartitionKey
) -> tuple[PartitionKey, LogPlan]:
    path = f"{directory.path}/{log_directory_name(key)}"
    if key not in inventory.keys:
        return key, LogPlan(quarantined=f"{path} is missing, but the checkpoint lists it")
    begun_s = clock.monotonic_s()
    try:
        exchanged = segment_exchange.finish(directory.disk, path)
        known, entries = inventory.known.get(key), inventory.entries.get(key, ())
        if exchanged is not None and known is not None:
            known = known._replace(segments=segment_exchange.merged(known, exchanged))
        noted = inventory.written.get(key) if exchanged is None else None
        plan = log_recovery.plan_log(
            directory.disk,
            path,
            known,
            entries,
            clock.wall_ms(),
            trusted=inventory.is_trusted,
            exchanged=exchanged is not None,
            marked_start=inventory.marks.start_of(key),
            flushes=not directory.written.is_kept,
            written=noted.segments if noted is not None else (),
        )
        marks = inventory.marks
        is_missing = marks.is_missing(key, is_in_checkpoint=known is not None)
        plan.check_mark(path, marks.ends.get(key), is_complete=marks.is_complete, is_missing=is_missing)
    except OSError as error:
        plan = _failed(f"{path} cannot be read: {error}", inventory.is_trusted)
    plan.timed(clock.monotonic_s() - begun_s)
    return key, plan


def _apply(directory: DataDirectory, clock: Clock, item: tuple[PartitionKey, LogPlan]) -> tuple[PartitionKey, LogPlan]:
    key, plan = item
    path = f"{directory.path}/{log_directory_name(key)}"
    begun_s = clock.monotonic_s()
    try:
        log_recovery.apply(directory.disk, path, plan)
    except OSError as error:
        plan = _failed(f"{path} cannot be repaired: {error}", plan.is_trusted)
    plan.timed(clock.monotonic_s() - begun_s)
    return key, plan


def _failed(reason: str, is_trusted: bool) -> LogPlan:
    return LogPlan(quarantined=reason, may_pass=True, is_trusted=is_trusted)


async def _in_slices(
    workers: Workers, items: Sequence[T], work: Callable[[T], tuple[PartitionKey, LogPlan]]
) -> list[tuple[PartitionKey, LogPlan]]:
    size = min(LOGS_AT_ONCE, len(items) // SIDE_BY_SIDE + 1)
    slices = [items[at : at + size] for at in range(0, len(items), size)]
    works = [workers.run(partial(lambda part: [work(item) for item in part], part)) for part in slices]
    return [result for part in await asyncio.gather(*works) for result in part]


def _tidy(
    directory: DataDirectory,
    inventory: DirectoryContents,
    quarantined: Collection[PartitionKey],
    marks: SavedMarks,
) -> None:
    """Remove unneeded files, and save the end marks and the journal entries of logs that could not be recovered."""
    disk = directory.disk
    for name in inventory.unfinished:
        disk.remove(f"{directory.path}/{name}")
    for key in inventory.kept:
        if key not in quarantined:
            quarantined_entries.remove(disk, f"{directory.path}/{log_directory_name(key)}")
    for key in quarantined:
        if key in inventory.entries:
            try:
                quarantined_entries.write(disk, f"{directory.path}/{log_directory_name(key)}", inventory.entries[key])
            except OSError:
                directory.keeps_journals = True
    remove_all(disk, [f"{directory.path}/{WRITTEN_NAME}"])  # Also if it was saved under another flush policy.
    directory.end_marks.begin(marks.ends, marks.starts)
    checkpoint.begin(disk, directory.path)
    disk.flush_directory(directory.path)  # The names of log directories may be newer than the last flush.
