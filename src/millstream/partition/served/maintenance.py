"""What has to be done from time to time: retention, forgetting silent producers, snapshots, and trying again.

Rounds go over the partitions in slices and let the event loop run in between, so many partitions hold nobody up.
Compaction, which takes longer, has rounds of its own (see `compaction_schedule`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from millstream.model.errors import MillstreamError
from millstream.partition.partition import Partition
from millstream.partition.served.compaction_schedule import INTERVAL_S as CLEANING_INTERVAL_S
from millstream.partition.served.compaction_schedule import CompactionSchedule
from millstream.seams.clock import Clock
from millstream.storage.store import LogStore

INTERVAL_S = 10.0
"""How late retention looks at the latest."""

SNAPSHOT_AFTER_BATCHES = 10_000
"""So many batches may have to be replayed after a crash, and those of one round."""

_SAVE_MORE_EVERY = 60
_SAVE_MORE_FROM = 100
"""Every so many rounds partitions with this few new batches are saved too, so that many of them start fast as well.
Fewer are not worth the flushes: they are replayed sooner than their snapshots are read."""

_SLICE = 100
_SAVED_AT_ONCE = 8
_LAST_SAVE_S = 0.3
"""A stop may spend so long on snapshots; a partition left out is replayed at the next start."""

_log = logging.getLogger(__name__)


class MaintainedPartitions(Protocol):
    """What upkeep knows of the registry."""

    def all(self) -> list[Partition]: ...

    async def heal(self, partition: Partition) -> None: ...

    async def finish_changes(self) -> None: ...


class Maintenance:
    def __init__(
        self,
        kept: MaintainedPartitions,
        store: LogStore,
        clock: Clock,
        interval_s: float = INTERVAL_S,
        cleaning_s: float = CLEANING_INTERVAL_S,
    ) -> None:
        self._kept = kept
        self._clock = clock
        self._interval_s = interval_s
        self.cleaning = CompactionSchedule(kept, store, cleaning_s)
        self._stopping = asyncio.Event()
        self._rounds: asyncio.Task[None] | None = None
        self._healing: set[asyncio.Task[None]] = set()
        self._saving: dict[Partition, asyncio.Task[None]] = {}

    def start(self) -> None:
        self._rounds = asyncio.create_task(self._run())
        self.cleaning.start()

    async def stop(self) -> None:
        """No more rounds; save what fits into a short time."""
        # The round ends by itself, at the next partition: cancelled, it could leave a worker that writes the same
        # snapshot as the last save, at the same time.
        self._stopping.set()
        await self.cleaning.stop()
        if self._rounds is not None:
            await asyncio.wait([self._rounds])
        if under_way := self._healing.union(self._saving.values()):
            await asyncio.wait(under_way)
        deadline_s = self._clock.monotonic_s() + _LAST_SAVE_S
        partitions = sorted(self._kept.all(), key=lambda partition: -partition.unsaved_batches)
        while partitions and partitions[0].unsaved_batches and self._clock.monotonic_s() < deadline_s:
            now, partitions = partitions[:_SAVED_AT_ONCE], partitions[_SAVED_AT_ONCE:]
            await asyncio.gather(*(partition.save_state() for partition in now))

    def heal_soon(self, partition: Partition) -> None:
        """A partition's log was cut back: bring it into service again; a round tries later if that fails now."""
        task = asyncio.create_task(self._try("healing a partition", partial(self._kept.heal, partition)))
        self._healing.add(task)
        task.add_done_callback(self._healing.discard)

    def save_soon(self, partition: Partition) -> None:
        """A partition knows many new message ids: write them down."""
        if partition not in self._saving and not self._stopping.is_set():
            task = asyncio.create_task(self._try("saving message ids", partial(self._save_ids, partition)))
            self._saving[partition] = task
            task.add_done_callback(lambda _: self._saving.pop(partition))

    async def _save_ids(self, partition: Partition) -> None:
        await partition.save_ids()
        await partition.merge_ids(self._stopping.is_set)

    async def round(self, number: int = 0) -> None:
        """Look at every partition once."""
        save_from = SNAPSHOT_AFTER_BATCHES if number % _SAVE_MORE_EVERY else _SAVE_MORE_FROM
        for count, partition in enumerate(self._kept.all()):
            if count % _SLICE == 0:
                await asyncio.sleep(0)
            if self._stopping.is_set():
                return
            if partition.is_closed:
                continue
            if partition.is_suspended:
                await self._try("healing a partition", partial(self._kept.heal, partition))
                continue
            if partition.wants_saving:
                self.save_soon(partition)
            try:
                partition.upkeep()
            except MillstreamError as error:
                _log.warning("retention failed", extra={"partition": str(partition), "why": str(error)})
            if partition.unsaved_batches >= save_from:
                await partition.save_state()
        await self._try("finishing what was begun", self._kept.finish_changes)

    async def _run(self) -> None:
        number = 1
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._interval_s)
            await self._try("upkeep", partial(self.round, number))
            number += 1

    async def _try(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """A failure here is reported and tried again in the next round; it must not end the rounds."""
        try:
            await work()
        except Exception as error:
            _log.warning("%s failed, will be tried again", what, extra={"why": str(error)})
