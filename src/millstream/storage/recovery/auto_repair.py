"""Repairs logs automatically after disk errors, as soon as the disk works again.

A log is broken after a failed write and fenced after a failed flush. `AutoRepair` repeats the repair (see `repair`)
with exponential backoff until it succeeds. A log that was truncated accepts appends again only after a checkpoint,
because a journal might still contain the removed batches.
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
from millstream.storage.recovery import repair
from millstream.storage.recovery.repair import DataLossError

if TYPE_CHECKING:
    from millstream.storage.data_directory import DataDirectory

_logger = logging.getLogger(__name__)
FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 10.0


class AutoRepair:
    """Repairs the logs of one data directory."""

    def __init__(self, directory: "DataDirectory", workers: Workers) -> None:
        self._directory = directory
        self._workers = workers
        self._tasks: dict[Log, asyncio.Task[None]] = {}
        self._truncated: dict[Log, None] = {}
        """Logs that were truncated and wait for a checkpoint."""
        self._stopping = asyncio.Event()

    def repair(self, log: Log) -> None:
        """Begin to repair `log`, unless a repair is in progress."""
        if log not in self._tasks and not self._stopping.is_set():
            task = asyncio.get_running_loop().create_task(self._repair(log))
            self._tasks[log] = task
            task.add_done_callback(partial(self._ended, log))

    def _ended(self, log: Log, task: asyncio.Task[None]) -> None:
        del self._tasks[log]
        if task.cancelled():
            return
        if task.exception() is not None:
            _logger.error("log repair aborted", extra=log.label.fields, exc_info=task.exception())
        elif self._is_repairable(log):
            self.repair(log)  # It broke again after the last step of the repair.

    async def all_repaired(self) -> None:
        """Wait until all running repairs have ended."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def stop(self) -> None:
        """Begin no more repairs, and wait for the running ones, because their workers change files."""
        self._stopping.set()
        await self.all_repaired()

    async def _repair(self, log: Log) -> None:
        wait_s = FIRST_WAIT_S
        while self._is_repairable(log):
            try:
                await self._directory.commits.round_over()
                async with log.cleaning.lock:
                    await self._try(log)
            except OSError as error:
                _logger.warning("log repair failed", extra={**log.label.fields, "error": str(error)})
                await self._pause(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _is_repairable(self, log: Log) -> bool:
        health = log.health
        is_broken = health.broken is not None and health.quarantined is None
        return is_broken and not log.is_deleted and not self._stopping.is_set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _try(self, log: Log) -> None:
        if any(segment.failed is not None for segment in log.segments):
            await self._rebuild(log)
        elif log.segments:
            await self._workers.run(partial(repair.cut_back, log.segments[-1]))
        if log in self._truncated:
            if not await self._directory.checkpoint():
                raise OSError(errno.EAGAIN, "other logs could not be flushed", self._directory.path)
            del self._truncated[log]
        if all(segment.failed is None for segment in log.segments):
            # A full disk makes this happen again and again after each failed write, so it is logged at debug level.
            level = logging.WARNING if log.health.is_fenced else logging.DEBUG
            extra = {**log.label.fields, "end_offset": log.end_offset, "error": str(log.health.broken)}
            log.repaired()
            _logger.log(level, "log repaired", extra=extra)

    async def _rebuild(self, log: Log) -> None:
        segments = list(log.segments)
        first = next(n for n, s in enumerate(segments) if s.failed is not None or s.flushed != s.end)
        rest = segments[first:]
        # Frames whose flush failed count too: recovery after a crash could not distinguish them from acknowledged ones.
        entries = await self._workers.run(partial(self._entries_of, log))
        await self._directory.retract_written()
        try:
            rebuilt = await self._workers.run(
                partial(repair.rebuild, self._directory.disk, log.path, rest, entries, log.flushed_offset)
            )
        except DataLossError as error:
            log.quarantine(str(error))
            return
        if log.is_deleted:
            return
        if log.rebuilt(segments[:first], rest, rebuilt.segments):
            self._truncated[log] = None

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
