"""One data directory at run time: its logs, its journals, and the checkpoints that let journals go.

On disk: `.lock`, `directory-id` (see `directory_identity`), `checkpoint`, `journal-*`, and a directory `<topic
id>-<partition>` for each log. A log that is deleted is renamed to `….deleted` first; recovery removes what is left of
such.

Invariant: journals are removed only after every segment they speak of was flushed and a checkpoint says so; files of
forgotten segments only after a checkpoint has the new start of their log; word of an exchange of segments (see
`exchange`) only after a checkpoint has the new one.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import PartitionKey
from millstream.seams.disk import Closeable, Disk
from millstream.seams.workers import Workers
from millstream.storage.cleaning.file_removal import remove_all, remove_directory
from millstream.storage.cleaning.segment_exchange import FILE_NAME as EXCHANGE_NAME
from millstream.storage.cleaning.segment_exchange import SwapStage
from millstream.storage.flush import checkpoint, quarantined_entries
from millstream.storage.flush.checkpoint import LogState
from millstream.storage.flush.group_commit import GroupCommit
from millstream.storage.flush.journal import Journal, journal_path
from millstream.storage.flush.log_flush import FlushCapture
from millstream.storage.flush.written_marks import WrittenMarks
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
        return PartitionKey(UUID(hex=topic), int(partition))
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
        trouble: DiskErrorLog,
    ) -> None:
        self.path = path
        self.id = directory_id
        self.disk = disk
        self.trouble = trouble
        self.written = written
        self.logs: dict[PartitionKey, Log] = {}
        self.kept_states: dict[PartitionKey, LogState] = {}
        """What the checkpoint goes on saying about logs that could not be recovered."""
        self.has_checkpoint = False
        """Whether one has ever been written. Before that no log is made: logs without a checkpoint tell that one was
        lost."""
        self.wants_checkpoint = asyncio.Event()
        self.keeps_journals = False
        """Set when a journal has the only copy of something; then none is removed in this run."""
        self.graves: list[str] = []
        """Directories of deleted logs. They stay until a checkpoint no longer knows the log, so that one which is
        missing for another reason is noticed."""
        self.first_journal = 0
        self.next_journal = 0
        self.commits = GroupCommit(disk, flush_workers, failed=self.flush_failed, journal_written=self._journal_written)
        self.auto_repair = AutoRepair(self, workers)
        self._journaled = journaled
        self._lock = lock
        self._workers = workers
        self._flush_workers = flush_workers
        self._dirty: dict[Log, None] = {}
        self._encoded: dict[PartitionKey, bytes] = {}
        """What the checkpoint says about logs that have not changed since."""
        self._deleted: dict[PartitionKey, None] = {}
        self._is_behind = True
        """Whether no checkpoint has been written since the start or since one failed."""
        self._checkpointing = asyncio.Lock()

    # What logs and rounds report.

    def dirtied(self, log: Log) -> None:
        """A log has something to flush or to checkpoint; called at most once until that is done."""
        self._dirty[log] = None
        self._is_behind = True
        self._encoded.pop(log.key, None)
        if log.broken is not None:
            self.auto_repair.mend(log)
        if log.doomed:
            self.wants_checkpoint.set()

    def flush_failed(self, log: Log, error: OSError) -> None:
        """Nothing more is believed of the log's unflushed part until it has been read back."""
        if log.is_deleted:
            return
        log.refused(error)
        log.fence(error)
        self._dirty[log] = None  # No journal may go before the log has been mended.
        self.auto_repair.mend(log)

    def _journal_written(self, journal: Journal) -> None:
        if journal.size_bytes > JOURNAL_FULL_BYTES or journal.failed is not None:
            self.wants_checkpoint.set()

    def needs_checkpoint(self) -> bool:
        journal = self.commits.journal
        return (
            self._is_behind or bool(self._dirty or self.graves) or (journal is not None and journal.failed is not None)
        )

    # Flushing behind.

    async def flush_behind(self) -> None:
        """Flush whatever is dirty. Failed logs are fenced and left to `AutoRepair`."""
        async with self._checkpointing:  # A checkpoint must not overlook what is being flushed.
            await self._flush_dirty(closed_only=False)

    async def _flush_dirty(self, *, closed_only: bool) -> bool:
        """Whether all of it succeeded."""
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
        """Flush some logs, a few of them by each worker; those that fail stay dirty."""
        captures = []
        succeeded = True
        for log in logs:
            log.is_dirty = False
            if any(segment.failed is not None for segment in log.segments):
                self._dirty[log] = None
                succeeded = False
            else:
                captures.append(FlushCapture.of(log, closed_only=closed_only))
        parts = [captures[first : first + _FLUSHED_BY_ONE] for first in range(0, len(captures), _FLUSHED_BY_ONE)]
        works = [self._flush_workers.run(partial(_flush_all, self.disk, part)) for part in parts]
        for part, errors in zip(parts, await asyncio.gather(*works), strict=True):
            for capture, error in zip(part, errors, strict=True):
                if error is not None:
                    succeeded = False
                    self.flush_failed(capture.log, error)
                elif not capture.conclude():
                    succeeded = False
                    self._dirty[capture.log] = None
        return succeeded

    # Checkpoints.

    async def checkpoint(self, *, closed_only: bool = False, is_clean: bool = False) -> bool:
        """Flush, write the checkpoint, let go what it makes needless. False when a part must be tried again later.

        Raises OSError when the checkpoint itself cannot be written; the one before stays true. Goes on to its end
        when whoever waits for it is cancelled: a worker might be writing the file.
        """
        return await to_the_end(self._checkpoint(closed_only, is_clean))

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
                    if log.exchange_stage is SwapStage.DONE and log.key not in self.kept_states
                ]
                doomed = await self._write(
                    # After a clean close nothing is looked at, so a log that needs looking at forbids one.
                    is_clean=is_clean and succeeded and not self._needs_look(),
                    first_journal=first_journal if can_cut else self.first_journal,
                )
                if can_cut:
                    for key in deleted:
                        self._deleted.pop(key, None)
                    await self._remove_journals(first_journal)
                await self._remove_files(doomed, graves, exchanged)
            except BaseException:
                self._is_behind = True
                raise
            return succeeded

    async def _write(self, *, is_clean: bool, first_journal: int) -> list[tuple[Log, list[Segment]]]:
        """Write the checkpoint; which segments it makes needless."""
        doomed: list[tuple[Log, list[Segment]]] = []
        encoded = await self._encode(doomed)
        await self._workers.run(
            partial(
                checkpoint.write,
                self.disk,
                self.path,
                self.id,
                is_clean=is_clean,
                first_journal=first_journal,
                logs=encoded,
            )
        )
        self.has_checkpoint = True
        await self.written.note(list(self.logs.values()))
        return doomed

    async def note_written(self) -> None:
        """Tell the next process how far the logs were written; raises OSError, and then what was told before holds."""
        async with self._checkpointing:
            await to_the_end(self.written.note(list(self.logs.values())))

    async def retract_written(self) -> None:
        """Before a log is cut: nothing that was told may be believed any more. Raises OSError."""
        async with self._checkpointing:
            await to_the_end(self.written.retract())

    def _needs_look(self) -> bool:
        return bool(self.kept_states) or any(
            log.quarantined is not None or log.exchange_stage is SwapStage.DECIDED for log in self.logs.values()
        )

    async def _turn_journal(self, *, want_new: bool) -> int:
        """Begin a new journal, so that the old ones come to an end; the number of the first that stays needed."""
        if want_new:
            old = self.commits.journal
            if old is None or old.frame_count or old.failed is not None:
                number = self.next_journal
                self.next_journal += 1
                try:
                    new = await self._workers.run(partial(Journal, self.disk, self.path, self.id, number))
                except OSError:
                    new = None  # Without a journal each log is flushed by itself until the next checkpoint.
                self.commits.journal = new
                await self.commits.round_over()
        else:
            self.commits.journal = None
            await self.commits.round_over()
        return self.commits.journal.number if self.commits.journal else self.next_journal

    async def _encode(self, doomed: list[tuple[Log, list[Segment]]]) -> list[bytes]:
        """Every log's part of the checkpoint, made in slices; notes the segments that may go once it is written."""
        encoded = [checkpoint.encode_log(state) for state in self.kept_states.values()]
        for number, log in enumerate(list(self.logs.values())):
            if number % _ENCODED_AT_ONCE == _ENCODED_AT_ONCE - 1:
                await asyncio.sleep(0)
            if log.is_deleted or not log.is_named or log.key in self.kept_states:
                continue
            encoded.append(self._encoded.get(log.key) or self._encode_one(log))
            if log.doomed:
                doomed.append((log, log.doomed))
                log.doomed = list(log.doomed)
        return encoded

    def _encode_one(self, log: Log) -> bytes:
        encoded = checkpoint.encode_log(_flushed_state(log))
        if log not in self._dirty:
            self._encoded[log.key] = encoded
        return encoded

    async def _remove_journals(self, first_journal: int) -> None:
        gone = [journal_path(self.path, number) for number in range(self.first_journal, first_journal)]
        self.first_journal = first_journal
        await self._workers.run(partial(remove_all, self.disk, gone))

    async def _remove_files(
        self, doomed: Sequence[tuple[Log, list[Segment]]], graves: Sequence[str], exchanged: Sequence[Log]
    ) -> None:
        """Remove forgotten segments, deleted logs, and word of exchanges that the checkpoint knows."""
        segments = [segment for _, part in doomed for segment in part]
        for segment in segments:
            segment.forget()
        paths = [path for segment in segments for path in (segment.path, segment.index_path())]
        paths += [f"{log.path}/{EXCHANGE_NAME}" for log in exchanged]
        await self._workers.run(partial(remove_all, self.disk, paths))
        for path in graves:
            await self._workers.run(partial(remove_directory, self.disk, path))
        for log, part in doomed:
            log.doomed = [segment for segment in log.doomed if segment not in part]
        for log in exchanged:
            log.exchange_stage = SwapStage.UNKNOWN  # Its removal has not been flushed.
        self.graves = [path for path in self.graves if path not in graves]

    # Logs that come and go.

    async def free_key(self, key: PartitionKey) -> None:
        """Make sure that no journal speaks of an earlier log of this key."""
        while key in self._deleted:
            if self.keeps_journals:
                raise MillstreamError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: a journal cannot be removed before the next start"
                )
            if not await self.checkpoint():
                await self.auto_repair.all_mended()

    async def delete(self, log: Log) -> None:
        """Forget a log; its name is gone durably when this returns, its files go with the next checkpoint."""
        await to_the_end(self._delete(log))

    async def _delete(self, log: Log) -> None:
        log.is_deleted = True
        log.fence("deleted")
        self.logs.pop(log.key, None)
        self.kept_states.pop(log.key, None)
        self._dirty.pop(log, None)
        self._encoded.pop(log.key, None)
        self.written.forget(log.key)
        await self.commits.round_over()
        for segment in log.segments:
            segment.forget()
        self._deleted[log.key] = None
        async with log.exchanging:
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
    """What of the log is known to be on stable storage; where it goes on when none of its segments is."""
    states = tuple(segment.state() for segment in takewhile(lambda segment: segment.is_named, log.segments))
    beginning = log.segments[0].base_offset if log.segments else log.end_offset
    return LogState(log.key, log.start_offset, states[-1].next_offset if states else beginning, states)


def _flush_all(disk: Disk, captures: Sequence[FlushCapture]) -> list[OSError | None]:
    errors: list[OSError | None] = []
    for capture in captures:
        try:
            capture.flush(disk)
            errors.append(None)
        except OSError as error:
            errors.append(error)
            continue
        for segment, _ in capture.parts:
            if segment.is_closed:
                segment.save_index()
    return errors


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for `work`, which goes on when the wait is cancelled."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)
