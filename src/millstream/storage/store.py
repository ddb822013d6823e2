"""All logs of a broker, in one or several data directories.

`commit` is what an acknowledgement waits for. What each flush policy can lose when power fails:
  always    nothing that was acknowledged (group commit: see `group_commit`);
  interval  what was acknowledged in the last `flush_interval_ms`;
  os        what the kernel has not written yet, tens of seconds of it; closed segments are flushed.
None of them loses anything when only the process ends.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import PartitionKey
from millstream.seams.clock import Clock
from millstream.seams.disk import Closeable, Disk, Space
from millstream.seams.entropy import Entropy
from millstream.seams.workers import Workers
from millstream.storage import snapshot
from millstream.storage.cleaning.cleaner import Cleaner, CleanerLimits, CleaningJob
from millstream.storage.cleaning.segment_exchange import SwapStage
from millstream.storage.data_directory import DataDirectory, log_directory_name, to_the_end
from millstream.storage.flush.flush_round import FlushRound
from millstream.storage.flush.uncheckpointed_tails import UncheckpointedTails
from millstream.storage.flush.written_marks import WrittenMarks, carry_on
from millstream.storage.log.log import Log, LogSettings
from millstream.storage.log.open_files import OpenFiles
from millstream.storage.recovery.directory_identity import identify
from millstream.storage.recovery.directory_startup import recover
from millstream.storage.recovery.disk_errors import DiskErrorLog
from millstream.storage.recovery.log_recovery import LogPlan

LOCK_NAME = ".lock"
OPEN_FILES_MAX = 512
"""Of logs, at a time, unless the process may have more."""

_TAILS_SEEN_TO_S = 1.0
_NOTED_AFTER_S = 1.0
_NOTED_AFTER_S_PER_LOG = 0.002
"""How much may have been written that the process after a crash has to read; see `written_marks`."""

_logger = logging.getLogger(__name__)


class FlushPolicy(StrEnum):
    ALWAYS = "always"
    INTERVAL = "interval"
    OS = "os"


class LogStore:
    """Opens, creates, flushes and deletes logs. Made by `open`, ended by `close`."""

    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        workers: Workers,
        flush_workers: Workers,
        policy: FlushPolicy,
        files_max: int,
        cleaner_limits: CleanerLimits,
    ) -> None:
        self.policy = policy
        self._disk = disk
        self._clock = clock
        self._workers = workers
        self._flush_workers = flush_workers
        self._always = policy is FlushPolicy.ALWAYS
        self._files = OpenFiles(disk, files_max)
        self._cleaner = Cleaner(disk=disk, workers=workers, clock=clock, limits=cleaner_limits)
        self._directories: list[DataDirectory] = []
        self._logs: dict[PartitionKey, tuple[Log, DataDirectory]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = asyncio.Event()

    @classmethod
    async def open(
        cls,
        directories: Sequence[str],
        *,
        disk: Disk,
        clock: Clock,
        workers: Workers,
        flush_workers: Workers,
        policy: FlushPolicy,
        entropy: Entropy,
        flush_interval_ms: int = 1000,
        checkpoint_interval_ms: int = 30_000,
        open_files_max: int = OPEN_FILES_MAX,
        cleaner_limits: CleanerLimits | None = None,
    ) -> "LogStore":
        """Lock the directories, recover what is in them, begin to serve.

        Raises DATA_DIRECTORY_IN_USE, DATA_DIRECTORY_MISSING, and OSError when a directory cannot be read or written.
        A log that cannot be recovered does not prevent the start; it is quarantined.
        """
        store = cls(
            disk=disk,
            clock=clock,
            workers=workers,
            flush_workers=flush_workers,
            policy=policy,
            files_max=open_files_max,
            cleaner_limits=cleaner_limits or CleanerLimits(),
        )
        locks: list[Closeable] = []
        try:
            await workers.run(partial(store._lock, directories, locks))
            ids = await workers.run(partial(identify, disk, directories, entropy))
            for path, directory_id, lock in zip(directories, ids, locks, strict=True):
                directory = DataDirectory(
                    path,
                    directory_id,
                    lock,
                    disk=disk,
                    workers=workers,
                    flush_workers=flush_workers,
                    journaled=store._always,
                    written=WrittenMarks(disk, path, directory_id, workers, is_kept=policy is FlushPolicy.OS),
                    trouble=DiskErrorLog(clock),
                )
                store._directories.append(directory)
                for key, plan in (await recover(directory, workers, clock.wall_ms())).items():
                    store._adopt(directory, key, plan)
            for directory in store._directories:
                await store._first_checkpoint(directory)
            for log, _ in store._logs.values():
                if log.unflushed or log.unnamed:
                    log.mark_dirty()
        except BaseException:
            for lock in locks:
                lock.close()
            raise
        store._start(flush_interval_ms, checkpoint_interval_ms)
        return store

    async def _first_checkpoint(self, directory: DataDirectory) -> None:
        """A full disk is no reason not to serve what is there; the checkpoint is tried again."""
        try:
            await directory.checkpoint()
        except OSError as error:
            _logger.error("the first checkpoint failed", extra={"directory": directory.path, "why": str(error)})

    def _lock(self, directories: Sequence[str], locks: list[Closeable]) -> None:
        for path in directories:
            self._disk.make_directory(path)
            locks.append(self._disk.lock(f"{path}/{LOCK_NAME}"))

    def _adopt(self, directory: DataDirectory, key: PartitionKey, plan: LogPlan) -> None:
        """Make a log of what recovery found."""
        if key in self._logs:
            raise MillstreamError(
                ErrorCode.DATA_DIRECTORY_MISSING,
                f"{self._logs[key][0].path} and {directory.path} both hold partition {log_directory_name(key)}",
            )
        log = self._new_log(directory, key, LogSettings())
        log.is_named = True
        log.quarantined = plan.quarantined
        log.exchange_stage = SwapStage.DONE if plan.is_exchanged else SwapStage.UNKNOWN
        log.start_offset = plan.start_offset
        log.end_offset = log.durable_offset = plan.end_offset
        for state in plan.segments:
            segment = log.stored_segment(state)
            segment.is_closed = True
            log.segments.append(segment)
        if log.segments:
            log.segments[-1].is_closed = False
        if plan.unflushed:
            carry_on(log, plan.unflushed)
        self._logs[key] = (log, directory)
        directory.logs[key] = log

    def _new_log(self, directory: DataDirectory, key: PartitionKey, settings: LogSettings) -> Log:
        return Log(
            key,
            f"{directory.path}/{log_directory_name(key)}",
            settings,
            files=self._files,
            clock=self._clock,
            journaled=self._always,
            careful=self.policy is not FlushPolicy.OS,
            dirtied=directory.dirtied,
            request_commit=directory.commits.request,
            abandon_commit=directory.commits.abandon,
            trouble=directory.trouble,
        )

    # Logs.

    def get(self, key: PartitionKey) -> Log | None:
        found = self._logs.get(key)
        return found[0] if found is not None else None

    def keys(self) -> list[PartitionKey]:
        return list(self._logs)

    @property
    def directories(self) -> list[str]:
        """The paths of the data directories."""
        return [directory.path for directory in self._directories]

    def directory_of(self, key: PartitionKey) -> str | None:
        """The path of the data directory that a log is in; None for one that is not there."""
        found = self._logs.get(key)
        return found[1].path if found is not None else None

    async def space(self, directory: str) -> Space:
        """Of the volume that a data directory is on; raises OSError."""
        return await self._workers.run(partial(self._disk.space, directory))

    async def create(self, key: PartitionKey, settings: LogSettings) -> Log:
        """Begin an empty log in the directory with the fewest; raises KAFKA_STORAGE_ERROR when the disk refuses."""
        if key in self._logs:
            raise MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS, f"partition {log_directory_name(key)} exists already")
        directory = min(self._directories, key=lambda candidate: len(candidate.logs))
        log = self._new_log(directory, key, settings)
        self._logs[key] = (log, directory)
        directory.logs[key] = log
        try:
            if not directory.has_checkpoint:
                await directory.checkpoint()
            await directory.free_key(key)
            await self._workers.run(partial(self._disk.make_directory, log.path))
        except BaseException as error:
            if not self._disk.exists(log.path):
                del self._logs[key], directory.logs[key]
            if isinstance(error, OSError):
                raise log.refused(error) from error
            raise
        log.is_named = True
        return log

    async def delete(self, key: PartitionKey) -> None:
        """Forget a log and remove its files; one that is not there is no error."""
        found = self._logs.pop(key, None)
        if found is not None:
            log, directory = found
            try:
                await directory.delete(log)
            except OSError as error:
                self._logs[key] = found  # It is no log any more, but it must be possible to try again.
                raise log.storage_error(error) from error

    async def move_start(self, log: Log, offset: int) -> None:
        """Forget what lies before `offset`, which is durable when this returns; an earlier one changes nothing.

        Raises OFFSET_OUT_OF_RANGE beyond the end, UNKNOWN_TOPIC_OR_PARTITION when the log was deleted meanwhile,
        KAFKA_STORAGE_ERROR when the disk refuses: then a crash may do it.
        """
        await to_the_end(self._move_start(log, offset))

    async def _move_start(self, log: Log, offset: int) -> None:
        try:
            async with log.exchanging:
                if log.is_deleted:
                    raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{log.path} was deleted")
                if log.start_offset < offset <= log.end_offset:
                    await self._workers.run(partial(log.save_snapshot, snapshot.START, offset, b""))
        except OSError as error:
            raise log.refused(error) from error
        log.trim(max(offset, log.start_offset))

    # Durability.

    def commit(self, log: Log) -> FlushRound | None:
        """None when all that was appended to `log` counts as durable under the policy; else what tells when it is.

        It ends with KAFKA_STORAGE_ERROR when the flush failed: what was appended may or may not be there later.
        """
        if not self._always or log.durable_offset == log.end_offset:
            return None
        return log.request_commit(log)

    async def checkpoint(self) -> None:
        """Flush everything now and write the checkpoints; raises OSError."""
        for directory in self._directories:
            await directory.checkpoint(closed_only=self.policy is FlushPolicy.OS)

    # Compaction.

    async def clean(self, jobs: Sequence[CleaningJob]) -> list[Log]:
        """Compact those of the logs that need it, the dirtiest first; which of them have changed. Takes its time.

        What fails is told and left for the next call; `stop_cleaning` ends it early.
        """
        found = [(job, self._logs.get(job.log.key)) for job in jobs]
        return await self._cleaner.clean([(job, entry[1]) for job, entry in found if entry is not None])

    async def stop_cleaning(self) -> None:
        """End a cleaning that is under way soon, and begin no more."""
        await self._cleaner.stop()

    def _start(self, flush_interval_ms: int, checkpoint_interval_ms: int) -> None:
        loop = asyncio.get_running_loop()
        for directory in self._directories:
            self._tasks.append(loop.create_task(self._keep_checkpoints(directory, checkpoint_interval_ms / 1000)))
            if self.policy is FlushPolicy.INTERVAL:
                self._tasks.append(loop.create_task(self._keep_flushing(directory, flush_interval_ms / 1000)))
            if self.policy is FlushPolicy.OS:
                self._tasks.append(loop.create_task(self._keep_noting(directory)))
            else:
                self._tasks.append(loop.create_task(self._keep_tails_short(directory)))

    async def _keep_checkpoints(self, directory: DataDirectory, interval_s: float) -> None:
        while not self._closing.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(directory.wants_checkpoint.wait(), interval_s)
            if self._closing.is_set():
                return
            if not directory.needs_checkpoint():
                directory.wants_checkpoint.clear()
                continue
            try:
                await directory.checkpoint(closed_only=self.policy is FlushPolicy.OS)
            except OSError as error:
                _logger.error("a checkpoint failed", extra={"directory": directory.path, "why": str(error)})
                await self._pause(min(interval_s, 1.0))

    async def _keep_flushing(self, directory: DataDirectory, interval_s: float) -> None:
        while not self._closing.is_set():
            await self._pause(interval_s)
            await directory.flush_behind()

    async def _keep_tails_short(self, directory: DataDirectory) -> None:
        """Want a checkpoint whenever the start after a crash would have much to read and to write again."""
        tails = UncheckpointedTails(directory.logs)
        while not self._closing.is_set():
            if await tails.are_long():
                directory.wants_checkpoint.set()
            await self._pause(_TAILS_SEEN_TO_S)

    async def _keep_noting(self, directory: DataDirectory) -> None:
        """The more logs there are the longer it takes, and the more rarely it is done."""
        while not self._closing.is_set():
            await self._pause(max(_NOTED_AFTER_S, len(directory.logs) * _NOTED_AFTER_S_PER_LOG))
            try:
                await directory.note_written()
            except OSError as error:
                _logger.warning("what was written is not noted", extra={"directory": directory.path, "why": str(error)})

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not longer than until the store is closed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)

    async def close(self) -> None:
        """Flush everything, write clean checkpoints, let go of the directories. Appends must have ended."""
        if self._closing.is_set():
            return
        # The tasks end by themselves. Cancelled in the middle of a checkpoint, they would leave a worker that writes
        # the same file as the last checkpoint, at the same time.
        self._closing.set()
        await self._cleaner.stop()
        for directory in self._directories:
            directory.wants_checkpoint.set()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for directory in self._directories:
            await directory.auto_repair.stop()
            await self._close(directory)

    async def _close(self, directory: DataDirectory) -> None:
        for log in directory.logs.values():
            with suppress(MillstreamError):
                log.write_buffer.write()
            if not log.is_dirty:
                log.mark_dirty()
        try:
            await self._workers.run(partial(_save_indexes, list(directory.logs.values())))
            await directory.checkpoint(is_clean=True)
        except OSError as error:
            _logger.error("not closed cleanly", extra={"directory": directory.path, "why": str(error)})
        finally:
            for log in directory.logs.values():
                log.broken = "the broker has been stopped"
                for segment in log.segments:
                    segment.forget()
            directory.close()


def _save_indexes(logs: Sequence[Log]) -> None:
    for log in logs:
        for segment in log.segments[-1:]:
            segment.save_index()
