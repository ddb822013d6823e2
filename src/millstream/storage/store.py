"""Manages all logs of a broker, in one or several data directories.

A log requests the flushes that its acknowledgements wait for. The flush policy decides what a power loss can lose:
  always    no acknowledged data (group commit: see `group_commit`);
  interval  data that was acknowledged in the last `flush_interval_ms`;
  os        data that the kernel has not written yet, from some tens of seconds; closed segments are flushed.
No policy loses data when only the process ends.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.model.names import PartitionKey
from millstream.process.metrics import Histogram
from millstream.seams.clock import Clock
from millstream.seams.disk import Closeable, Disk, Space
from millstream.seams.entropy import Entropy
from millstream.seams.workers import Workers
from millstream.storage import snapshot
from millstream.storage.cleaning.cleaner import Cleaner, CleanerLimits, CleaningJob
from millstream.storage.data_directory import DataDirectory, log_directory_name, to_the_end
from millstream.storage.disk_reserve import NO_DISK_LIMITS, DiskLimits, DiskReserve, with_room
from millstream.storage.flush.end_marks import EndMarks
from millstream.storage.flush.flush_figures import FlushFigures
from millstream.storage.flush.uncheckpointed_tails import UncheckpointedTails
from millstream.storage.flush.written_marks import WrittenMarks
from millstream.storage.log.log import Log
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.log.open_files import OpenFiles
from millstream.storage.recovery.directory_identity import identify
from millstream.storage.recovery.directory_startup import recover
from millstream.storage.recovery.disk_errors import DiskErrorLog
from millstream.storage.recovery.log_recovery import LogPlan
from millstream.storage.recovery.recovery_report import RecoveredLog, recovered_log, report_recovered

LOCK_NAME = ".lock"
OPEN_FILES_MAX = 512
"""The default limit for the open files of all logs."""

_TAIL_CHECK_S = 1.0
_MARKS_AFTER_S = 1.0
_MARKS_AFTER_S_PER_LOG = 0.002
"""The interval between written marks limits how much the process after a crash has to read; see `written_marks`."""

_logger = logging.getLogger(__name__)


class FlushPolicy(StrEnum):
    ALWAYS = "always"
    INTERVAL = "interval"
    OS = "os"


class LogStore:
    """Opens, creates, flushes and deletes logs. `open` creates a store and `close` ends it."""

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
        self.cold_reads = Histogram()
        """The durations of reads that waited for a disk."""
        self._disk = disk
        self._clock = clock
        self._workers = workers
        self._flush_workers = flush_workers
        self._always = policy is FlushPolicy.ALWAYS
        self._files = OpenFiles(disk, files_max, is_careful=policy is not FlushPolicy.OS)
        self._cleaner = Cleaner(disk=disk, workers=workers, clock=clock, limits=cleaner_limits)
        self._directories: list[DataDirectory] = []
        self._logs: dict[PartitionKey, tuple[Log, DataDirectory]] = {}
        self._recovered: dict[PartitionKey, RecoveredLog] = {}
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
        disk_limits: DiskLimits = NO_DISK_LIMITS,
    ) -> "LogStore":
        """Lock the directories, recover their logs, and start the background tasks.

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
                reserve = DiskReserve(disk, path, disk_limits)
                trouble = DiskErrorLog(clock, on_full=reserve.measure_full_disk)
                directory = DataDirectory(
                    path,
                    directory_id,
                    lock,
                    disk=disk,
                    workers=workers,
                    flush_workers=flush_workers,
                    journaled=store._always,
                    written=WrittenMarks(disk, path, directory_id, workers, is_kept=policy is FlushPolicy.OS),
                    end_marks=EndMarks(disk, path, directory_id, trouble, flushed=store._always),
                    figures=FlushFigures(clock.monotonic_s, store.cold_reads),
                    reserve=reserve,
                    trouble=trouble,
                )
                await workers.run(directory.reserve.open)
                store._directories.append(directory)
                for key, plan in (await recover(directory, workers, clock)).items():
                    store._adopt(directory, key, plan)
            for directory in store._directories:
                await store._first_checkpoint(directory)
            for log, _ in store._logs.values():
                log.flush.request_in_background()
        except BaseException:
            for lock in locks:
                lock.close()
            raise
        store._start(flush_interval_ms=flush_interval_ms, checkpoint_interval_ms=checkpoint_interval_ms)
        return store

    async def _first_checkpoint(self, directory: DataDirectory) -> None:
        """Write a checkpoint. A failure, such as a full disk, is only logged: reads must work, and a retry follows."""
        try:
            await directory.checkpoint()
        except OSError as error:
            _logger.error("checkpoint failed", extra={"path": directory.path, "error": str(error)})

    def _lock(self, directories: Sequence[str], locks: list[Closeable]) -> None:
        for path in directories:
            self._disk.make_directory(path)
            locks.append(self._disk.lock(f"{path}/{LOCK_NAME}"))

    def _adopt(self, directory: DataDirectory, key: PartitionKey, plan: LogPlan) -> None:
        """Create a log from what recovery found."""
        if key in self._logs:
            raise MillstreamError(
                ErrorCode.DATA_DIRECTORY_MISSING,
                f"{self._logs[key][0].path} and {directory.path} both hold partition {log_directory_name(key)}",
            )
        log = self._new_log(directory, key, LogSettings())
        log.recovered(plan)
        found = recovered_log(directory.path, key, plan)
        if found is not None:
            self._recovered[key] = found
        self._logs[key] = (log, directory)
        directory.logs[key] = log

    def take_recovered(self) -> Mapping[PartitionKey, RecoveredLog]:
        """Return the logs that the start had to read or change, and forget them. The caller reports them."""
        recovered, self._recovered = self._recovered, {}
        return recovered

    def _new_log(self, directory: DataDirectory, key: PartitionKey, settings: LogSettings) -> Log:
        return Log(
            key,
            f"{directory.path}/{log_directory_name(key)}",
            settings,
            files=self._files,
            clock=self._clock,
            journaled=self._always,
            dirtied=directory.dirtied,
            request_flush=directory.commits.request,
            marks=directory.end_marks,
            figures=directory.figures,
            reserve=directory.reserve,
            trouble=directory.trouble,
        )

    # Logs.

    def get(self, key: PartitionKey) -> Log | None:
        found = self._logs.get(key)
        return found[0] if found is not None else None

    def keys(self) -> list[PartitionKey]:
        return list(self._logs)

    def logs(self) -> list[tuple[PartitionKey, Log]]:
        return [(key, log) for key, (log, _) in self._logs.items()]

    @property
    def directories(self) -> list[str]:
        """The paths of the data directories."""
        return [directory.path for directory in self._directories]

    @property
    def data_directories(self) -> Sequence[DataDirectory]:
        """The data directories, for reading their figures."""
        return self._directories

    def directory_of(self, key: PartitionKey) -> str | None:
        """The path of the data directory that contains the log, or None if there is no such log."""
        found = self._logs.get(key)
        return found[1].path if found is not None else None

    async def space(self, directory: str) -> Space:
        """The size and the free space of a data directory's volume. Raise OSError."""
        return await self._workers.run(partial(self._disk.space, directory))

    async def create(self, key: PartitionKey, settings: LogSettings, topic: str = "") -> Log:
        """Create an empty log in the directory with the fewest logs. Raise KAFKA_STORAGE_ERROR if the disk fails.

        `topic` names the log in log lines.
        """
        if key in self._logs:
            raise MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS, f"partition {log_directory_name(key)} already exists")
        directory = min(self._directories, key=lambda candidate: len(candidate.logs))
        log = self._new_log(directory, key, settings)
        log.label.named(topic)
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
        log.created()
        return log

    async def delete(self, key: PartitionKey) -> None:
        """Delete a log and its files. Do nothing if there is no such log."""
        found = self._logs.pop(key, None)
        if found is not None:
            log, directory = found
            try:
                await directory.delete(log)
            except OSError as error:
                self._logs[key] = found  # The log is no longer usable, but its deletion must be repeatable.
                raise log.health.storage_error(error) from error

    async def move_start(self, log: Log, offset: Offset) -> None:
        """Move the log start to `offset`, durably when this returns. Do nothing if the start is already beyond it.

        Raises OFFSET_OUT_OF_RANGE beyond the end, UNKNOWN_TOPIC_OR_PARTITION if the log was deleted meanwhile, and
        KAFKA_STORAGE_ERROR if the disk fails; then the start may still move at the next recovery.
        """
        await to_the_end(self._move_start(log, offset))

    async def _move_start(self, log: Log, offset: Offset) -> None:
        try:
            async with log.cleaning.lock:
                if log.is_deleted:
                    raise MillstreamError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{log.path.rpartition('/')[2]} was deleted"
                    )
                if log.start_offset < offset <= log.end_offset:
                    await self._with_room(log, partial(snapshot.save_state, log, snapshot.START, offset, b""))
        except OSError as error:
            raise log.refused(error) from error
        log.trim(max(offset, log.start_offset))
        found = self._logs.get(log.key)
        if found is not None:
            found[1].end_marks.save()

    async def _with_room(self, log: Log, work: Callable[[], None]) -> None:
        """Run blocking work of a log that frees space."""
        found = self._logs.get(log.key)
        if found is None:
            await self._workers.run(work)
        else:
            await with_room(partial(self._workers.run, work), found[1].reserve, self._workers)

    # Space.

    @property
    def reserves(self) -> list[DiskReserve]:
        """The reserve of each data directory, with its free space."""
        return [directory.reserve for directory in self._directories]

    async def make_room(self) -> bool:
        """Release the reserve of the first directory, which has the catalog. Return False if that frees no space."""
        return await self._directories[0].reserve.make_room(self._workers)

    # Durability.

    async def checkpoint(self) -> None:
        """Flush all logs now and write the checkpoints. Raise OSError."""
        for directory in self._directories:
            await directory.checkpoint(closed_only=self.policy is FlushPolicy.OS)

    # Compaction.

    async def clean(self, jobs: Sequence[CleaningJob]) -> list[Log]:
        """Compact the logs that need it, the dirtiest first, and return those that changed. This may take long.

        Failures are logged and retried in the next call. `stop_cleaning` ends a pass early.
        """
        found = [(job, self._logs.get(job.log.key)) for job in jobs]
        return await self._cleaner.clean(
            [(job, entry[1]) for job, entry in found if entry is not None and not entry[1].reserve.is_released]
        )

    async def stop_cleaning(self) -> None:
        """Stop a running compaction soon, and start no more."""
        await self._cleaner.stop()

    def _start(self, *, flush_interval_ms: int, checkpoint_interval_ms: int) -> None:
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
                _logger.error("checkpoint failed", extra={"path": directory.path, "error": str(error)})
                await self._pause(min(interval_s, 1.0))

    async def _keep_flushing(self, directory: DataDirectory, interval_s: float) -> None:
        while not self._closing.is_set():
            await self._pause(interval_s)
            await directory.flush_behind()

    async def _keep_tails_short(self, directory: DataDirectory) -> None:
        """Request a checkpoint when recovery after a crash would have to read and rewrite much."""
        tails = UncheckpointedTails(directory.logs)
        while not self._closing.is_set():
            if await tails.are_long():
                directory.wants_checkpoint.set()
            directory.figures.sample()
            await self._save_end_marks(directory)
            await self._measure_space(directory)
            await self._pause(_TAIL_CHECK_S)

    async def _keep_noting(self, directory: DataDirectory) -> None:
        """Write the marks periodically. With more logs a round takes longer and is done less often."""
        while not self._closing.is_set():
            await self._pause(max(_MARKS_AFTER_S, len(directory.logs) * _MARKS_AFTER_S_PER_LOG))
            try:
                await directory.note_written()
            except OSError as error:
                _logger.warning("written marks not saved", extra={"path": directory.path, "error": str(error)})
            await self._save_end_marks(directory)
            await self._measure_space(directory)

    async def _measure_space(self, directory: DataDirectory) -> None:
        """Measure the free space from time to time, and always while appends wait for the reserve."""
        reserve = directory.reserve
        if reserve.is_released or reserve.is_due(self._clock.monotonic_s()):
            try:
                await self._workers.run(reserve.measure)
            except OSError as error:
                _logger.warning("free space not measured", extra={"path": directory.path, "error": str(error)})

    async def _save_end_marks(self, directory: DataDirectory) -> None:
        try:
            await directory.save_end_marks()
        except OSError as error:
            _logger.warning("end marks not flushed", extra={"path": directory.path, "error": str(error)})

    async def _pause(self, seconds: float) -> None:
        """Sleep until the time has passed or the store is closed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)

    async def close(self) -> None:
        """Flush all logs, write clean checkpoints, and release the directories. All appends must have ended."""
        if self._closing.is_set():
            return
        # The tasks end on their own. A task that is cancelled within a checkpoint would leave a worker that writes the
        # same file as the final checkpoint at the same time.
        self._closing.set()
        report_recovered(self.take_recovered(), {})  # A start that failed before the names of the topics were known.
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
            log.flush.request_last()
        try:
            await self._workers.run(partial(_save_indexes, list(directory.logs.values())))
            await directory.checkpoint(is_clean=True)
        except OSError as error:
            _logger.error("clean shutdown failed", extra={"path": directory.path, "error": str(error)})
        finally:
            for log in directory.logs.values():
                log.closed()
            directory.close()


def _save_indexes(logs: Sequence[Log]) -> None:
    for log in logs:
        for segment in log.segments[-1:]:
            segment.save_index()
