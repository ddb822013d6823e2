"""The cleaner: one at a time for a broker, it compacts logs, the dirtiest first, and leaves the disk to others.

A pass over a log notes the keys of its dirty part, as many as fit into the memory there is, and then rewrites the
log's closed segments, front to back: small neighbours become one. What is unchanged is not written.
Work runs in workers, in slices, and no more bytes are moved in a second than is allowed.

Before anything is rewritten, a checkpoint has made sure that no journal speaks of the segments: replayed into the new
files it would destroy them. Old segments stay in place, whatever fails, until the new one has been flushed and
exchanged for them (see `segment_exchange`); what failed is told, and tried again in a later round.
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
from millstream.storage.cleaning import segment_exchange
from millstream.storage.cleaning.cleanable_range import SNAPSHOT_NAME, CleanableRange, CleanedRange, cleanable_range_of
from millstream.storage.cleaning.compaction import Compaction
from millstream.storage.cleaning.rewriting import KeepPredicate, NeedsHeader, Rewriting
from millstream.storage.cleaning.segment_exchange import Exchange, SwapStage
from millstream.storage.data_directory import DataDirectory
from millstream.storage.log.log import Log
from millstream.storage.log.segment import Segment

MAP_BYTES_MAX = 64 * 1024 * 1024
"""Memory for the keys of a pass, taken while one runs and only as much as it needs."""

BYTES_PER_S_MAX = 32 * 1024 * 1024
_SLICE_BYTES = 1024 * 1024
_GROUP_SEGMENTS_MAX = 64
"""So many become one at most: their files are open at the same time, for a moment."""

_LOOKED_AT_ONCE = 100
_logger = logging.getLogger(__name__)
T = TypeVar("T")


class CleanerLimits(Struct, frozen=True):
    map_bytes: int = MAP_BYTES_MAX
    bytes_per_s: int = BYTES_PER_S_MAX


class CleaningJob(Struct, frozen=True):
    """A log to be cleaned as far as `limit`; the headers that `needs_header` names outlive their records."""

    log: Log
    limit: int
    needs_header: NeedsHeader


class _StoppedError(Exception):
    """The broker stops, or the log is not what it was: give up what is begun."""


class Cleaner:
    """Compacts logs. Ended by `stop`, after which nothing more is begun."""

    def __init__(self, *, disk: Disk, workers: Workers, clock: Clock, limits: CleanerLimits) -> None:
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._limits = limits
        self._stopping = asyncio.Event()
        self._cleaning = asyncio.Lock()

    async def stop(self) -> None:
        """Give up what is under way, and wait until that has ended."""
        self._stopping.set()
        async with self._cleaning:
            pass

    async def _look(self, job: CleaningJob) -> CleanableRange | None:
        """What there is to be cleaned; None when the log cannot be, now or at all."""
        log = job.log
        if not _can_be_cleaned(log) or self._stopping.is_set():
            return None
        try:
            if log.cleaned is None:
                log.cleaned = CleanedRange.of(await self._workers.run(partial(log.load_snapshot, SNAPSHOT_NAME)))
        except OSError as error:
            log.unclean(error)
            return None
        return cleanable_range_of(
            log.segments, log.settings, log.cleaned, log.start_offset, job.limit, self._clock.wall_ms()
        )

    async def clean(self, jobs: Sequence[tuple[CleaningJob, DataDirectory]]) -> list[Log]:
        """One pass over each of those logs that needs one, the dirtiest first; which of them were changed."""
        async with self._cleaning:
            due = []
            for number, (job, directory) in enumerate(jobs):
                if number % _LOOKED_AT_ONCE == 0:
                    await asyncio.sleep(0)
                dirt = await self._look(job)
                if dirt is not None and dirt.is_due:
                    due.append((dirt, job, directory))
            due.sort(key=lambda one: -one[0].ratio)
            quiet = {directory: await self._make_quiet(directory) for directory in dict.fromkeys(one[2] for one in due)}
            return [
                job.log for dirt, job, directory in due if quiet[directory] and await self._try(job, directory, dirt)
            ]

    async def _make_quiet(self, directory: DataDirectory) -> bool:
        """Whether no journal speaks any more of what had been flushed before this was called."""
        try:
            return await directory.checkpoint() and not directory.keeps_journals
        except OSError as error:
            _logger.warning("a checkpoint failed", extra={"directory": directory.path, "why": str(error)})
            return False

    async def _try(self, job: CleaningJob, directory: DataDirectory, dirt: CleanableRange) -> bool:
        """A pass over one log; whether something has changed. Failures are told."""
        log = job.log
        if not _can_be_cleaned(log) or self._stopping.is_set():
            return False
        passing = _Pass(self, job, directory, dirt)
        try:
            await passing.run()
        except OSError as error:
            log.unclean(error)
        except MillstreamError as error:
            log.read_failed(error)  # Told there, and the log quarantined where that is the matter.
        except _StoppedError:
            pass
        return passing.has_changed

    async def in_slices(self, steps: Iterator[int]) -> None:
        """Let workers go through all steps, a few at a time and no faster than allowed; _StoppedError at a stop."""
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

    async def compaction(self, log: Log, dirt: CleanableRange) -> Compaction:
        """Made by a worker: the kernel may take its time to clear so much memory."""
        make = partial(
            Compaction,
            dirt,
            map_bytes=self._limits.map_bytes,
            delete_retention_ms=log.settings.delete_retention_ms,
            now_ms=self._clock.wall_ms(),
        )
        return await self._workers.run(make)

    def rewriting(self, log: Log, segments: list[Segment], keep: KeepPredicate, needs_header: NeedsHeader) -> Rewriting:
        return Rewriting(self._disk, log.path, segments, log.settings.segment_bytes, keep, needs_header)

    async def run(self, work: Callable[[Disk], T]) -> T:
        """Let a worker do something on the disk."""
        return await self._workers.run(partial(work, self._disk))


class _Pass:
    """One pass over one log."""

    def __init__(self, cleaner: Cleaner, job: CleaningJob, directory: DataDirectory, dirt: CleanableRange) -> None:
        self.has_changed = False
        self._cleaner = cleaner
        self._log = job.log
        self._needs_header = job.needs_header
        self._directory = directory
        self._dirt = dirt

    async def run(self) -> None:
        log, dirt = self._log, self._dirt
        compaction = await self._cleaner.compaction(log, dirt)
        await self._cleaner.in_slices(compaction.note(dirt.segments))
        left = [segment for segment in dirt.segments if segment.base_offset < compaction.end_offset]
        while left:
            left = left[await self._rewrite(left, compaction) :]
        cleaned = CleanedRange(max(compaction.end_offset, dirt.first_dirty), compaction.horizon_ms)
        if cleaned != log.cleaned:
            await self._run(lambda _: log.save_snapshot(SNAPSHOT_NAME, cleaned.offset, cleaned.pack()))
            log.cleaned = cleaned
        if self.has_changed:
            extra = {"log": log.path, "clean_to": cleaned.offset, "size_bytes": log.size_bytes}
            _logger.info("a log was cleaned", extra=extra)

    async def _rewrite(self, left: list[Segment], compaction: Compaction) -> int:
        """Put one segment in the place of the first few, if that would change anything; of how many."""
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
        """See to it that no exchange is under way, and that none can be taken for valid; raises OSError."""
        log = self._log
        async with log.exchanging:
            if log.exchange_stage is SwapStage.DECIDED:
                await self._finish()
        if log.exchange_stage is SwapStage.DONE:
            await self._directory.checkpoint()
        async with log.exchanging:
            if log.is_deleted or log.exchange_stage in (SwapStage.DECIDED, SwapStage.DONE):
                raise _StoppedError
            if log.exchange_stage is SwapStage.UNKNOWN:
                await self._run(lambda disk: segment_exchange.settle(disk, log.path))
                log.exchange_stage = SwapStage.NONE

    async def _exchange(self, rewriting: Rewriting) -> None:
        log = self._log
        state, file, index = rewriting.result()
        async with log.exchanging:
            if not self._may_exchange(rewriting.old):
                raise _StoppedError
            log.exchange_stage = SwapStage.UNKNOWN
            await self._run(lambda disk: segment_exchange.decide(disk, Exchange(log.path, rewriting.old, state)))
            new = log.stored_segment(state)
            new.is_closed, new.pinned, new.index = True, file, index
            log.exchange(rewriting.old, new)
            log.exchange_stage = SwapStage.DECIDED
            self.has_changed = True
            await self._finish()

    def _may_exchange(self, old: list[Segment]) -> bool:
        segments = self._log.segments
        is_whole = old[0] in segments and segments[segments.index(old[0]) :][: len(old)] == old
        return is_whole and self._log.exchange_stage is SwapStage.NONE and not self._log.is_deleted

    async def _finish(self) -> None:
        """The exchange is decided: bring the files into place."""
        log = self._log
        new = [segment for segment in log.segments if segment.pinned is not None]
        await self._run(lambda disk: segment_exchange.finish(disk, log.path))
        log.exchange_stage = SwapStage.DONE
        for segment in new:
            segment.pinned = None
        await self._run(lambda _: _save_indexes(new))

    async def _forget(self, path: str) -> None:
        """Remove a file that was begun in vain."""
        if self._log.exchange_stage is SwapStage.NONE:
            with suppress(OSError):
                await self._run(lambda disk: disk.remove(path))

    async def _run(self, work: Callable[[Disk], T]) -> T:
        return await self._cleaner.run(work)


def _can_be_cleaned(log: Log) -> bool:
    return not log.is_deleted and log.quarantined is None and log.settings.compact and len(log.segments) > 1


def _save_indexes(segments: Sequence[Segment]) -> None:
    for segment in segments:
        segment.save_index()


def _go_on(steps: Iterator[int], bytes_max: int) -> tuple[int, bool]:
    """Take steps until so many bytes have been moved; how many were, and whether that was all (blocking)."""
    moved = 0
    for step in steps:
        moved += step
        if moved >= bytes_max:
            return moved, False
    return moved, True
