"""Manages one data directory at run time: its logs, its journals, and the checkpoints that make journals removable.

On disk: `.lock`, `directory-id` (see `directory_identity`), `checkpoint`, `journal-*`, and a directory `<topic
id>-<partition>` for each log. A deleted log is first renamed to `….deleted`. Recovery removes what a crash leaves of
such directories.

Invariants: three kinds of files are removed only after a checkpoint makes them unnecessary. A journal goes once every
segment that it covers is flushed and the checkpoint records that. A deleted segment goes once the checkpoint has the
new start of its log. An exchange file (see `segment_exchange`) goes once the checkpoint has the new segment.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import PartitionKey
from millstream.seams.disk import Closeable, Disk
from millstream.seams.workers import Workers
from millstream.storage.cleaning.file_removal import remove_all, remove_directory
from millstream.storage.cleaning.segment_exchange import FILE_NAME as EXCHANGE_NAME
from millstream.storage.cleaning.segment_exchange import SwapStage
from millstream.storage.disk_reserve import DiskReserve, with_room
from millstream.storage.flush import checkpoint, quarantined_entries
from millstream.storage.flush.checkpoint import LogState
from millstream.storage.flush.end_marks import EndMarks
from millstream.storage.flush.flush_figures import FlushFigures, FlushKind
from millstream.storage.flush.group_commit import GroupCommit
from millstream.storage.flush.journal import Journal, journal_path
from millstream.storage.flush.written_marks import WrittenMarks
from millstream.storage.log.flush_state import FlushCapture
from millstream.storage.log.log import Log
from millstream.storage.log.segment import Segment
from millstream.storage.recovery.auto_repair import AutoRepair
from millstream.storage.recovery.disk_errors import DiskErrorLog

DELETED_SUFFIX = ".deleted"
JOURNAL_FULL_BYTES = 64 * 1024 * 1024
_ENCODED_AT_ONCE = 256
_FLUSHED_BY_ONE = 16
_FLUSHED_SIDE_BY_SIDE = 64
T = TypeVar("T")


def log_directory_name(key: PartitionKey) -> str:
    return f"{key.topic_id.hex}-{key.partition}"


def key_of(name: str) -> PartitionKey | None:
    """The key of a log directory's name; None for other names."""
    topic, _, partition = name.partition("-")
    if len(topic) != 32 or not partition.isdecimal():
        return None
    try:
        return PartitionKey(TopicId(UUID(hex=topic)), int(partition))
    except ValueError:
        return None


class DataDirectory:
    """Flushes, checkpoints and repairs the logs of one directory."""

    def __init__(
        self,
        path: str,
        directory_id: UUID,
        lock: Closeable,
        *,
        disk: Disk,
        workers: Workers,
        flush_workers: Workers,
        journaled: bool,
        written: WrittenMarks,
        end_marks: EndMarks,
        figures: FlushFigures,
        reserve: DiskReserve,
        trouble: DiskErrorLog,
    ) -> None:
        self.path, self.id = path, directory_id
        self.disk, self.trouble = disk, trouble
        self.written = written
        self.end_marks, self.figures = end_marks, figures
        self.reserve = reserve
        self.logs: dict[PartitionKey, Log] = {}
        self.kept_states: dict[PartitionKey, LogState] = {}
        """The checkpointed states of logs that could not be recovered. Each new checkpoint repeats them."""
        self.has_checkpoint = False
        """True once a checkpoint has been written. No log is created before: logs without a checkpoint show that the
        checkpoint was lost."""
        self.wants_checkpoint = asyncio.Event()
        self.keeps_journals = False
        """True when a journal has the only copy of some data. Then this run removes no journals."""
        self.graves: list[str] = []
        """Directories of deleted logs. They stay until a checkpoint no longer has the log, so that recovery notices a
        log that is missing for another reason."""
        self.first_journal = self.next_journal = self._replayed_from = 0
        """A start with the last written checkpoint reads the journals from `_replayed_from` on."""
        self.commits = GroupCommit(
            disk, flush_workers, figures, failed=self.flush_failed, journal_written=self._journal_written
        )
        self.auto_repair = AutoRepair(self, workers)
        self._journaled = journaled
        self._lock = lock
        self._workers, self._flush_workers = workers, flush_workers
        self._dirty: dict[Log, None] = {}
        self._encoded: dict[PartitionKey, bytes] = {}
        """The encoded checkpoint entries of logs that have not changed since."""
        self._deleted: dict[PartitionKey, None] = {}
        self._is_behind = True
        """True if no checkpoint has been written since the start, or since one failed."""
        self._checkpointing = asyncio.Lock()

    # Events of logs and group commits.

    def dirtied(self, log: Log) -> None:
        """Note that a log has something to flush or to checkpoint. Called at most once until that is done."""
        self._dirty[log] = None
        self._is_behind = True
        self._encoded.pop(log.key, None)
        if log.health.broken is not None:
            self.auto_repair.repair(log)
        if log.deleted_segments:
            self.wants_checkpoint.set()

    def flush_failed(self, log: Log, error: OSError) -> None:
        """Fence the log and schedule its repair, because its unflushed part is unknown until it is read back."""
        if log.is_deleted:
            return
        self._dirty[log] = None  # Journals must stay until the log is repaired.
        log.flush_failed(error)
        self.auto_repair.repair(log)

    def _journal_written(self, journal: Journal) -> None:
        if journal.size_bytes > JOURNAL_FULL_BYTES or journal.failed is not None:
            self.wants_checkpoint.set()

    @property
    def journal_bytes(self) -> int:
        """The size of the active journal."""
        journal = self.commits.journal
        return journal.size_bytes if journal is not None else 0

    def needs_checkpoint(self) -> bool:
        journal = self.commits.journal
        return (
            self._is_behind or bool(self._dirty or self.graves) or (journal is not None and journal.failed is not None)
        )

    # Background flushes.

    async def flush_behind(self) -> None:
        """Flush all dirty logs. Logs whose flush fails are fenced and left to `AutoRepair`."""
        async with self._checkpointing:  # A checkpoint must see the result of this flush.
            await self._flush_dirty(closed_only=False)

    async def _flush_dirty(self, *, closed_only: bool) -> bool:
        """Flush the dirty logs, and return True if all flushes succeeded."""
        dirty, self._dirty = list(self._dirty), {}
        succeeded = True
        try:
            for first in range(0, len(dirty), _FLUSHED_SIDE_BY_SIDE):
                part = [log for log in dirty[first : first + _FLUSHED_SIDE_BY_SIDE] if not log.is_deleted]
                succeeded = await self._flush(part, closed_only) and succeeded
        except BaseException:
            self._dirty.update(dict.fromkeys(dirty))
            raise
        return succeeded

    async def _flush(self, logs: Sequence[Log], closed_only: bool) -> bool:
        """Flush these logs, several per worker. Logs whose flush fails stay dirty."""
        captures: list[tuple[Log, FlushCapture]] = []
        succeeded = True
        for log in logs:
            capture = log.flush.capture_in_background(closed_only=closed_only)
            if capture is None:
                self._dirty[log] = None
                succeeded = False
            else:
                captures.append((log, capture))
        parts = [captures[first : first + _FLUSHED_BY_ONE] for first in range(0, len(captures), _FLUSHED_BY_ONE)]
        works = [
            self._flush_workers.run(
                partial(_flush_all, self.disk, [capture for _, capture in part], self.figures.monotonic_s)
            )
            for part in parts
        ]
        for part, outcomes in zip(parts, await asyncio.gather(*works), strict=True):
            for (log, capture), outcome in zip(part, outcomes, strict=True):
                succeeded = self._flushed(log, capture, outcome) and succeeded
        return succeeded

    def _flushed(self, log: Log, capture: FlushCapture, outcome: OSError | float | None) -> bool:
        """Apply the duration or the error of a flush. Return True if it succeeded."""
        if isinstance(outcome, OSError):
            self.flush_failed(log, outcome)
            return False
        if outcome is not None:
            self.figures.flushes[FlushKind.SEGMENT].observe(outcome)
        if log.flushed(capture):
            log.report_flush(None)
            return True
        self._dirty[log] = None
        return False

    # Checkpoints.

    async def checkpoint(self, *, closed_only: bool = False, is_clean: bool = False) -> bool:
        """Flush, write the checkpoint, and remove the files that it makes unnecessary.

        Return False if some logs could not be flushed and the checkpoint must be repeated. Raise OSError if the
        checkpoint itself cannot be written; then the previous one stays valid. A cancelled caller does not stop it,
        because a worker may be writing the file.
        """
        return await with_room(lambda: to_the_end(self._checkpoint(closed_only, is_clean)), self.reserve, self._workers)

    async def _checkpoint(self, closed_only: bool, is_clean: bool) -> bool:
        async with self._checkpointing:
            self.wants_checkpoint.clear()
            self._is_behind = False
            try:
                deleted, graves = list(self._deleted), list(self.graves)
                first_journal = await self._turn_journal(want_new=self._journaled and not is_clean)
                succeeded = await self._flush_dirty(closed_only=closed_only)
                can_cut = succeeded and not self.keeps_journals
                exchanged = [
                    log
                    for log in self.logs.values()
                    if log.cleaning.stage is SwapStage.DONE and log.key not in self.kept_states
                ]
                deleted_segments = await self._write(
                    # The start after a clean close reads no logs, so a log that must be read forbids a clean close.
                    is_clean=is_clean and succeeded and not self._needs_look(),
                    first_journal=first_journal if can_cut else self.first_journal,
                )
                if can_cut:
                    for key in deleted:
                        self._deleted.pop(key, None)
                    await self._remove_journals(first_journal)
                await self._remove_files(deleted_segments, graves, exchanged)
            except BaseException:
                self._is_behind = True
                raise
            return succeeded

    async def _write(self, *, is_clean: bool, first_journal: int) -> list[tuple[Log, list[Segment]]]:
        """Write the checkpoint, and return the deleted segments that it makes removable."""
        deleted_segments: list[tuple[Log, list[Segment]]] = []
        encoded = await self._encode(deleted_segments)
        await self.end_marks.flush(self._workers)
        write = partial(
            checkpoint.write,
            self.disk,
            self.path,
            self.id,
            is_clean=is_clean,
            first_journal=first_journal,
            has_journal=self.commits.journal is not None and self.commits.journal.number == first_journal,
            logs=encoded,
        )
        seconds = await self._workers.run(partial(_duration, write, self.figures.monotonic_s))
        self.figures.flushes[FlushKind.CHECKPOINT].observe(seconds)
        self.has_checkpoint = True
        self._replayed_from = first_journal
        await self.written.note(list(self.logs.values()))
        return deleted_segments

    async def note_written(self) -> None:
        """Write the written marks for the next process. Raise OSError if that fails; then the previous ones stay."""
        async with self._checkpointing:
            await to_the_end(self.written.note(list(self.logs.values())))

    async def save_end_marks(self) -> None:
        """Save the acknowledged end offset of each log for recovery. Raises OSError if the flush fails; the next call
        flushes again."""
        marks = self.end_marks
        if not marks.are_flushed_offsets:
            for number, log in enumerate(list(self.logs.values())):
                if number % _ENCODED_AT_ONCE == _ENCODED_AT_ONCE - 1:
                    await asyncio.sleep(0)
                if log.health.broken is None and log.health.quarantined is None and not log.is_deleted:
                    marks.advance(log.key, log.acknowledged_offset)
            marks.save()
        held_acknowledgements = marks.is_stale
        await marks.flush(self._flush_workers)
        if held_acknowledgements:
            for log in list(self.logs.values()):
                log.report_flush(None)

    async def retract_written(self) -> None:
        """Invalidate the written marks before a log is truncated. Raise OSError."""
        async with self._checkpointing:
            await to_the_end(self.written.retract())

    def _needs_look(self) -> bool:
        return bool(self.kept_states) or any(
            log.health.quarantined is not None or log.cleaning.stage is SwapStage.DECIDED for log in self.logs.values()
        )

    async def _turn_journal(self, *, want_new: bool) -> int:
        """Begin a new journal, so that no more is written to the old ones. Return the first journal still needed."""
        if want_new:
            old = self.commits.journal
            if old is None or old.frame_count or old.failed is not None:
                number = self.next_journal
                self.next_journal += 1
                try:
                    new = await self._workers.run(partial(Journal, self.disk, self.path, self.id, number))
                except OSError:
                    new = None  # Without a journal, each log is flushed on its own until the next checkpoint.
                self.commits.journal = new
                await self.commits.round_over()
        else:
            self.commits.journal = None
            await self.commits.round_over()
        return self.commits.journal.number if self.commits.journal else self.next_journal

    async def _encode(self, deleted_segments: list[tuple[Log, list[Segment]]]) -> list[bytes]:
        """Encode the checkpoint entry of each log, in slices. Add the segments that become removable to the list."""
        encoded = [checkpoint.encode_log(state) for state in self.kept_states.values()]
        for number, log in enumerate(list(self.logs.values())):
            if number % _ENCODED_AT_ONCE == _ENCODED_AT_ONCE - 1:
                await asyncio.sleep(0)
            if log.is_deleted or not log.flush_state.is_named or log.key in self.kept_states:
                continue
            encoded.append(self._encoded.get(log.key) or self._encode_one(log))
            if log.deleted_segments:
                deleted_segments.append((log, log.deleted_segments))
        return encoded

    def _encode_one(self, log: Log) -> bytes:
        encoded = checkpoint.encode_log(_flushed_state(log))
        if log not in self._dirty:
            self._encoded[log.key] = encoded
        return encoded

    async def _remove_journals(self, first_journal: int) -> None:
        assert self.first_journal <= first_journal <= self._replayed_from, (
            "a journal goes after a checkpoint without it"
        )
        gone = [journal_path(self.path, number) for number in range(self.first_journal, first_journal)]
        self.first_journal = first_journal
        await self._workers.run(partial(remove_all, self.disk, gone))

    async def _remove_files(
        self, deleted_segments: Sequence[tuple[Log, list[Segment]]], graves: Sequence[str], exchanged: Sequence[Log]
    ) -> None:
        """Remove deleted segments, deleted logs, and the exchange files whose new segments are in the checkpoint."""
        assert all(part[-1].next_offset <= log.start_offset for log, part in deleted_segments), "deleted segments"
        assert all(log.cleaning.stage is SwapStage.DONE for log in exchanged), "exchanges that are complete"
        segments = [segment for _, part in deleted_segments for segment in part]
        for segment in segments:
            segment.forget()
        paths = [path for segment in segments for path in (segment.path, segment.index_path())]
        paths += [f"{log.path}/{EXCHANGE_NAME}" for log in exchanged]
        await self._workers.run(partial(remove_all, self.disk, paths))
        for path in graves:
            await self._workers.run(partial(remove_directory, self.disk, path))
        for log, part in deleted_segments:
            log.segments_removed(part)
        for log in exchanged:
            log.cleaning.checkpointed()
        self.graves = [path for path in self.graves if path not in graves]

    # Creating and deleting logs.

    async def free_key(self, key: PartitionKey) -> None:
        """Remove all journals that refer to an earlier log of this key."""
        while key in self._deleted:
            if self.keeps_journals:
                raise MillstreamError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{self.path}: cannot create the log again, because a journal has the only copy of some data "
                    "and is kept until the next start; restart the broker",
                )
            if not await self.checkpoint():
                await self.auto_repair.all_repaired()

    async def delete(self, log: Log) -> None:
        """Delete a log. Its name is durably gone when this returns; the next checkpoint removes its files."""
        await with_room(lambda: to_the_end(self._delete(log)), self.reserve, self._workers)

    async def _delete(self, log: Log) -> None:
        log.deleted()
        self.logs.pop(log.key, None)
        self.kept_states.pop(log.key, None)
        self._dirty.pop(log, None)
        self._encoded.pop(log.key, None)
        self.written.forget(log.key)
        self.end_marks.forget(log.key)
        await self.commits.round_over()
        for segment in log.segments:
            segment.forget()
        self._deleted[log.key] = None
        async with log.cleaning.lock:
            await self._workers.run(partial(self._rename_away, log.path))
        self.graves.append(log.path + DELETED_SUFFIX)
        self.wants_checkpoint.set()

    def _rename_away(self, path: str) -> None:
        if self.disk.exists(path):
            self.disk.rename(path, path + DELETED_SUFFIX)
        quarantined_entries.remove(self.disk, path)
        self.disk.flush_directory(self.path)

    def close(self) -> None:
        self._lock.close()


def _flushed_state(log: Log) -> LogState:
    """The flushed part of the log. If no segment has a flushed name, the state is an empty log at its first offset."""
    states = tuple(segment.state() for segment in takewhile(lambda segment: segment.is_named, log.segments))
    beginning = log.segments[0].base_offset if log.segments else log.end_offset
    return LogState(log.key, log.start_offset, states[-1].next_offset if states else beginning, states)


def _flush_all(
    disk: Disk, captures: Sequence[FlushCapture], monotonic_s: Callable[[], float]
) -> list[OSError | float | None]:
    """Flush the captures, and return the duration or the error of each (blocking)."""
    outcomes: list[OSError | float | None] = []
    for capture in captures:
        try:
            outcomes.append(capture.flush(disk, monotonic_s))
        except OSError as error:
            outcomes.append(error)
            continue
        capture.save_indexes()
    return outcomes


def _duration(work: Callable[[], None], monotonic_s: Callable[[], float]) -> float:
    """Run `work`, and return how long it took."""
    begun_s = monotonic_s()
    work()
    return monotonic_s() - begun_s


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for `work`. If the caller is cancelled, the work continues."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)
