"""Compacts the logs of a broker in the background, one at a time, the dirtiest first.

A pass notes the keys of the log's dirty part, as many as fit into the memory limit. Then it rewrites the closed
segments from first to last, and merges small neighbours. Segments that would not change are not written. Workers do
this in slices, and a rate limit leaves disk throughput to other work.

Before a pass, a checkpoint ensures that no journal refers to the segments: a replay would destroy the new files. Old
segments stay in place until the new one is flushed and has replaced them (see `segment_exchange`). Failures are logged,
and a later round tries again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from msgspec import Struct

from millstream.model.errors import MillstreamError
from millstream.seams.clock import Clock
from millstream.seams.disk import Disk
from millstream.seams.workers import Workers
from millstream.storage import snapshot
from millstream.storage.cleaning import segment_exchange
from millstream.storage.cleaning.cleanable_range import SNAPSHOT_NAME, CleanableRange, CleanedRange, cleanable_range_of
from millstream.storage.cleaning.compaction import Compaction
from millstream.storage.cleaning.rewriting import KeepPredicate, NeedsHeader, Rewriting
from millstream.storage.cleaning.segment_exchange import Exchange, SwapStage
from millstream.storage.data_directory import DataDirectory
from millstream.storage.log.failed_reads import read_failed
from millstream.storage.log.log import Log
from millstream.storage.log.segment import Segment

MAP_BYTES_MAX = 64 * 1024 * 1024
"""Memory limit for the keys of a pass. It is allocated during a pass only, and only as far as needed."""

BYTES_PER_S_MAX = 32 * 1024 * 1024
_SLICE_BYTES = 1024 * 1024
_GROUP_SEGMENTS_MAX = 64
"""The maximum number of segments that become one, because all their files are open for a moment."""

_LOOKED_AT_ONCE = 100
_logger = logging.getLogger(__name__)
T = TypeVar("T")


class CleanerLimits(Struct, frozen=True):
    map_bytes: int = MAP_BYTES_MAX
    bytes_per_s: int = BYTES_PER_S_MAX


class CleaningJob(Struct, frozen=True):
    """A log to clean up to `limit`.

    If a batch loses all its records and `needs_header` is true for it, its header stays.
    """

    log: Log
    limit: int
    needs_header: NeedsHeader


class _StoppedError(Exception):
    """Ends a pass, because the broker stops or the log has changed."""


class Cleaner:
    """Compacts logs until `stop`."""

    def __init__(self, *, disk: Disk, workers: Workers, clock: Clock, limits: CleanerLimits) -> None:
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._limits = limits
        self._stopping = asyncio.Event()
        self._cleaning = asyncio.Lock()

    async def stop(self) -> None:
        """Stop the current pass, and wait until it has ended."""
        self._stopping.set()
        async with self._cleaning:
            pass

    async def _select(self, job: CleaningJob) -> CleanableRange | None:
        """The cleanable range of the log, or None if the log cannot be cleaned now."""
        log = job.log
        if not _can_be_cleaned(log) or self._stopping.is_set():
            return None
        try:
            if log.cleaning.cleaned is None:
                found = await self._workers.run(partial(snapshot.load_state, log, SNAPSHOT_NAME))
                log.cleaning.cleaned_to(CleanedRange.of(found))
        except OSError as error:
            _failed(log, error)
            return None
        assert log.cleaning.cleaned is not None
        return cleanable_range_of(
            log.segments,
            log.settings,
            log.cleaning.cleaned,
            start_offset=log.start_offset,
            limit=job.limit,
            now_ms=self._clock.wall_ms(),
        )

    async def clean(self, jobs: Sequence[tuple[CleaningJob, DataDirectory]]) -> list[Log]:
        """Clean each of these logs that needs it, the dirtiest first, and return the changed ones."""
        async with self._cleaning:
            due = []
            for number, (job, directory) in enumerate(jobs):
                if number % _LOOKED_AT_ONCE == 0:
                    await asyncio.sleep(0)
                cleanable = await self._select(job)
                if cleanable is not None and cleanable.is_due:
                    due.append((cleanable, job, directory))
            due.sort(key=lambda one: -one[0].ratio)
            retired = {
                directory: await self._retire_journals(directory) for directory in dict.fromkeys(one[2] for one in due)
            }
            return [
                job.log
                for cleanable, job, directory in due
                if retired[directory] and await self._try(job, directory, cleanable)
            ]

    async def _retire_journals(self, directory: DataDirectory) -> bool:
        """Write a checkpoint. Return True if no journal refers to earlier flushed data any more."""
        try:
            return await directory.checkpoint() and not directory.keeps_journals
        except OSError as error:
            _logger.warning("checkpoint failed", extra={"path": directory.path, "error": str(error)})
            return False

    async def _try(self, job: CleaningJob, directory: DataDirectory, cleanable: CleanableRange) -> bool:
        """Clean one log, and return True if it has changed. Failures are logged."""
        log = job.log
        if not _can_be_cleaned(log) or self._stopping.is_set():
            return False
        passing = _Pass(self, job, directory, cleanable)
        try:
            await passing.run()
        except OSError as error:
            _failed(log, error)
        except MillstreamError as error:
            read_failed(log, error)  # It logs the error, and quarantines the log if data is lost.
        except _StoppedError:
            pass
        return passing.has_changed

    async def in_slices(self, steps: Iterator[int]) -> None:
        """Run all steps in workers, in slices and within the rate limit. Raise _StoppedError after `stop`."""
        while True:
            began_s = self._clock.monotonic_s()
            moved, is_over = await self._workers.run(partial(_go_on, steps, _SLICE_BYTES))
            pause_s = moved / self._limits.bytes_per_s - (self._clock.monotonic_s() - began_s)
            if pause_s > 0 and not self._stopping.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause_s)
            if self._stopping.is_set():
                raise _StoppedError
            if is_over:
                return

    async def compaction(self, log: Log, cleanable: CleanableRange) -> Compaction:
        """Create the compaction in a worker, because the kernel may take long to clear its memory."""
        make = partial(
            Compaction,
            cleanable,
            map_bytes=self._limits.map_bytes,
            delete_retention_ms=log.settings.delete_retention_ms,
            now_ms=self._clock.wall_ms(),
        )
        return await self._workers.run(make)

    def rewriting(self, log: Log, segments: list[Segment], keep: KeepPredicate, needs_header: NeedsHeader) -> Rewriting:
        return Rewriting(self._disk, log.path, segments, log.settings.segment_bytes, keep, needs_header)

    async def run(self, work: Callable[[Disk], T]) -> T:
        """Run `work` on the disk in a worker."""
        return await self._workers.run(partial(work, self._disk))


class _Pass:
    """One pass over one log."""

    def __init__(self, cleaner: Cleaner, job: CleaningJob, directory: DataDirectory, cleanable: CleanableRange) -> None:
        self.has_changed = False
        self._cleaner = cleaner
        self._log = job.log
        self._needs_header = job.needs_header
        self._directory = directory
        self._cleanable = cleanable

    async def run(self) -> None:
        log, cleanable = self._log, self._cleanable
        compaction = await self._cleaner.compaction(log, cleanable)
        await self._cleaner.in_slices(compaction.note(cleanable.segments))
        left = [segment for segment in cleanable.segments if segment.base_offset < compaction.end_offset]
        while left:
            left = left[await self._rewrite(left, compaction) :]
        cleaned = CleanedRange(max(compaction.end_offset, cleanable.first_dirty), compaction.horizon_ms)
        if cleaned != log.cleaning.cleaned:
            await self._run(lambda _: snapshot.save_state(log, SNAPSHOT_NAME, cleaned.offset, cleaned.pack()))
            log.cleaning.cleaned_to(cleaned)
        if self.has_changed:
            extra = {**log.label.fields, "clean_to": cleaned.offset, "size_bytes": log.size_bytes}
            _logger.info("log compacted", extra=extra)

    async def _rewrite(self, left: list[Segment], compaction: Compaction) -> int:
        """Replace the first of these segments by a new one, unless the new one would be the same. Small neighbours are
        merged into the new segment.

        Return the number of segments that are done.
        """
        rewriting = self._cleaner.rewriting(self._log, left[:_GROUP_SEGMENTS_MAX], compaction, self._needs_header)
        if not rewriting.is_needed:
            await self._cleaner.in_slices(rewriting.look())
        if not rewriting.is_needed:
            return 1
        await self._settle()
        try:
            await self._cleaner.in_slices(rewriting.write())
            await self._exchange(rewriting)
        finally:
            await self._forget(segment_exchange.cleaned_path(self._log.path, left[0].base_offset))
        return len(rewriting.old)

    async def _settle(self) -> None:
        """Complete an earlier exchange, and ensure that no valid `exchange` file is left. Raise OSError."""
        log = self._log
        async with log.cleaning.lock:
            if log.cleaning.stage is SwapStage.DECIDED:
                await self._finish()
        if log.cleaning.stage is SwapStage.DONE:
            await self._directory.checkpoint()
        async with log.cleaning.lock:
            if log.is_deleted or log.cleaning.stage in (SwapStage.DECIDED, SwapStage.DONE):
                raise _StoppedError
            if log.cleaning.stage is SwapStage.UNKNOWN:
                await self._run(lambda disk: segment_exchange.settle(disk, log.path))
                log.cleaning.settled()

    async def _exchange(self, rewriting: Rewriting) -> None:
        log = self._log
        state, file, index = rewriting.result()
        async with log.cleaning.lock:
            if not self._may_exchange(rewriting.old):
                raise _StoppedError
            log.cleaning.deciding()
            await self._run(lambda disk: segment_exchange.decide(disk, Exchange(log.path, rewriting.old, state)))
            log.exchanged(rewriting.old, state, file, index)
            self.has_changed = True
            await self._finish()

    def _may_exchange(self, old: list[Segment]) -> bool:
        segments = self._log.segments
        is_whole = old[0] in segments and segments[segments.index(old[0]) :][: len(old)] == old
        return is_whole and self._log.cleaning.stage is SwapStage.NONE and not self._log.is_deleted

    async def _finish(self) -> None:
        """Move the files into place, because the exchange is decided."""
        log = self._log
        new = [segment for segment in log.segments if segment.pinned is not None]
        await self._run(lambda disk: segment_exchange.finish(disk, log.path))
        log.cleaning.done()
        for segment in new:
            segment.pinned = None
        await self._run(lambda _: _save_indexes(new))

    async def _forget(self, path: str) -> None:
        """Remove a new file that was not exchanged."""
        if self._log.cleaning.stage is SwapStage.NONE:
            with suppress(OSError):
                await self._run(lambda disk: disk.remove(path))

    async def _run(self, work: Callable[[Disk], T]) -> T:
        return await self._cleaner.run(work)


def _can_be_cleaned(log: Log) -> bool:
    return not log.is_deleted and log.health.quarantined is None and log.settings.compact and len(log.segments) > 1


def _failed(log: Log, error: OSError) -> None:
    """Log a failed compaction. A later round tries again."""
    if not log.is_deleted:
        log.health.compaction_failed(error)


def _save_indexes(segments: Sequence[Segment]) -> None:
    for segment in segments:
        segment.save_index()


def _go_on(steps: Iterator[int], bytes_max: int) -> tuple[int, bool]:
    """Run steps until `bytes_max` bytes are moved. Return the bytes and whether all steps are done (blocking)."""
    moved = 0
    for step in steps:
        moved += step
        if moved >= bytes_max:
            return moved, False
    return moved, True
