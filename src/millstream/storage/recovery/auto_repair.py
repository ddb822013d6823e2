"""Brings logs back that the disk refused, by itself, as soon as the disk is well again.

A log is broken after a failed write and fenced after a failed flush. `AutoRepair` tries until it has been made
whole (see `repair`), waiting longer after each failure. A log that lost its unflushed end takes appends again only
after a checkpoint, since a journal might still speak of what was there before.
"""

import asyncio
import errno
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from millstream.seams.workers import Workers
from millstream.storage.flush.journal import JournalEntry, read_journal
from millstream.storage.log.log import Log
from millstream.storage.log.segment import Segment
from millstream.storage.recovery import repair
from millstream.storage.recovery.repair import DataLossError, Rebuilt

if TYPE_CHECKING:
    from millstream.storage.data_directory import DataDirectory

_logger = logging.getLogger(__name__)
FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 10.0


class AutoRepair:
    """The repairs of one data directory."""

    def __init__(self, directory: "DataDirectory", workers: Workers) -> None:
        self._directory = directory
        self._workers = workers
        self._tasks: dict[Log, asyncio.Task[None]] = {}
        self._cut: dict[Log, None] = {}
        """Logs that lost their unflushed end and wait for a checkpoint."""
        self._stopping = asyncio.Event()

    def mend(self, log: Log) -> None:
        """Begin to repair `log`, unless that is under way."""
        if log not in self._tasks and not self._stopping.is_set():
            task = asyncio.get_running_loop().create_task(self._mend(log))
            self._tasks[log] = task
            task.add_done_callback(partial(self._ended, log))

    def _ended(self, log: Log, task: asyncio.Task[None]) -> None:
        del self._tasks[log]
        if task.cancelled():
            return
        if task.exception() is not None:
            _logger.error("a repair was given up", extra={"log": log.path}, exc_info=task.exception())
        elif self._is_mendable(log):
            self.mend(log)  # It broke again between the repair's last step and this call.

    async def all_mended(self) -> None:
        """Wait until no repair is under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def stop(self) -> None:
        """Begin no more repairs, and wait for those under way: a worker must not be left to change files."""
        self._stopping.set()
        await self.all_mended()

    async def _mend(self, log: Log) -> None:
        wait_s = FIRST_WAIT_S
        while self._is_mendable(log):
            try:
                await self._directory.commits.round_over()
                async with log.exchanging:
                    await self._try(log)
            except OSError as error:
                _logger.warning("a log cannot be repaired yet", extra={"log": log.path, "why": str(error)})
                await self._pause(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _is_mendable(self, log: Log) -> bool:
        return log.broken is not None and log.quarantined is None and not log.is_deleted and not self._stopping.is_set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _try(self, log: Log) -> None:
        if any(segment.failed is not None for segment in log.segments):
            await self._rebuild(log)
        elif log.segments:
            await self._workers.run(partial(repair.cut_back, log.segments[-1]))
        if log in self._cut:
            if not await self._directory.checkpoint():
                raise OSError(errno.EAGAIN, "other logs could not be flushed", self._directory.path)
            del self._cut[log]
        if all(segment.failed is None for segment in log.segments):
            # What a refused write left behind is cut off again and again while a disk is full: that is no news.
            level = logging.WARNING if log.is_fenced else logging.DEBUG
            extra = {"log": log.path, "end_offset": log.end_offset, "after": str(log.broken)}
            log.broken, log.is_fenced = None, False
            _logger.log(level, "a log was repaired", extra=extra)

    async def _rebuild(self, log: Log) -> None:
        segments = list(log.segments)
        first = next(n for n, s in enumerate(segments) if s.failed is not None or s.flushed != s.end)
        rest = segments[first:]
        # Frames whose flush failed count too: recovery after a crash could not tell them from acknowledged ones.
        entries = await self._workers.run(partial(self._entries_of, log))
        await self._directory.retract_written()
        try:
            rebuilt = await self._workers.run(
                partial(repair.rebuild, self._directory.disk, log.path, rest, entries, log.durable_offset)
            )
        except DataLossError as error:
            log.quarantine(str(error))
            return
        if log.is_deleted:
            return
        was_cut = rebuilt.end_offset < log.end_offset
        self._exchange(log, segments[:first], rest, rebuilt)
        if was_cut:
            self._cut[log] = None
            if log.on_cut is not None:
                log.on_cut(log)

    def _entries_of(self, log: Log) -> list[JournalEntry]:
        directory = self._directory
        entries: list[JournalEntry] = []
        for number in range(directory.first_journal, directory.next_journal):
            try:
                found = read_journal(directory.disk, directory.path, directory.id, number)
                entries += [entry for entry in found if entry.key == log.key]
            except FileNotFoundError:
                continue
        return entries

    def _exchange(self, log: Log, kept: list[Segment], replaced: list[Segment], rebuilt: Rebuilt) -> None:
        """Put the rebuilt segments in the place of the old ones; readers go on either way."""
        made = [log.stored_segment(state) for state in rebuilt.segments]
        for segment in made[:-1]:
            segment.is_closed = True
        for segment in replaced:
            segment.forget()
        log.segments = kept + made
        for segment in kept:
            segment.is_named = True  # The directory has been flushed with all that is in it.
        log.unnamed, log.unflushed = [], []
        log.forget_hints()
        log.end_offset = rebuilt.end_offset
        log.pending, log.pending_bytes = [], 0
        log.durable_place = None
        log.advance(rebuilt.end_offset, None)
        log.mark_dirty()
