"""Runs periodic maintenance: retention, expiry of producers and message ids, snapshots, retries, load samples.

Rounds process the partitions in slices and let the event loop run between slices, so many partitions do not block it.
Compaction takes longer and has rounds of its own (see `compaction_schedule`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from millstream.model.errors import MillstreamError
from millstream.model.ids import TopicId
from millstream.partition.leadership import Leadership
from millstream.partition.replica import Replica
from millstream.partition.served.busy_partitions import BusyPartitions
from millstream.partition.served.compaction_schedule import INTERVAL_S as CLEANING_INTERVAL_S
from millstream.partition.served.compaction_schedule import CompactionSchedule
from millstream.seams.clock import Clock
from millstream.storage.store import LogStore

INTERVAL_S = 10.0
"""Time between two rounds, and so the delay of retention."""

SNAPSHOT_AFTER_BATCHES = 10_000
"""A round writes the snapshot of a partition with this many new batches, which bounds the replay after a crash."""

_SAVE_MORE_EVERY = 60
_SAVE_MORE_FROM = 100
"""Every `_SAVE_MORE_EVERY` rounds, partitions with at least `_SAVE_MORE_FROM` new batches are saved too, so that a
broker with many partitions starts fast. Fewer batches are replayed faster than a snapshot is read."""

_SLICE = 100
_SAVED_AT_ONCE = 8
_LAST_SAVE_S = 0.3
"""Maximum time for snapshots at shutdown. A partition without one is replayed at the next start."""

_log = logging.getLogger(__name__)


class MaintainedPartitions(Protocol):
    """The part of the registry that maintenance uses."""

    def all(self) -> list[Leadership]: ...

    def replicas(self) -> list[Replica]: ...

    def get_by_id(self, topic_id: TopicId, number: int) -> Leadership | None: ...

    async def heal(self, partition: Leadership) -> None: ...

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
        self.busy = BusyPartitions(clock)
        self.cleaning = CompactionSchedule(kept, store, cleaning_s)
        self._stopping = asyncio.Event()
        self._rounds: asyncio.Task[None] | None = None
        self._healing: set[asyncio.Task[None]] = set()
        self._saving: dict[Replica, asyncio.Task[None]] = {}

    def start(self) -> None:
        self._rounds = asyncio.create_task(self._run())
        self.cleaning.start()

    async def stop(self) -> None:
        """Stop the rounds and save snapshots for a short time."""
        # The running round ends by itself at the next partition. If it were cancelled, a worker could still be writing
        # a snapshot while the last save writes the same one.
        self._stopping.set()
        await self.cleaning.stop()
        if self._rounds is not None:
            await asyncio.wait([self._rounds])
        if under_way := self._healing.union(self._saving.values()):
            await asyncio.wait(under_way)
        deadline_s = self._clock.monotonic_s() + _LAST_SAVE_S
        replicas = self._kept.replicas()
        replicas.sort(key=lambda replica: -replica.unsaved_batches)
        while replicas and replicas[0].unsaved_batches and self._clock.monotonic_s() < deadline_s:
            now, replicas = replicas[:_SAVED_AT_ONCE], replicas[_SAVED_AT_ONCE:]
            await asyncio.gather(*(replica.save_state() for replica in now))

    def heal_soon(self, partition: Leadership) -> None:
        """Start to bring a suspended partition back into service. If that fails, a later round tries again."""
        task = asyncio.create_task(self._try("healing a partition", partial(self._kept.heal, partition)))
        self._healing.add(task)
        task.add_done_callback(self._healing.discard)

    def save_soon(self, replica: Replica) -> None:
        """Start to save the message ids of a replica, unless a save is running."""
        if replica not in self._saving and not self._stopping.is_set():
            task = asyncio.create_task(self._try("saving message ids", partial(self._save_ids, replica)))
            self._saving[replica] = task
            task.add_done_callback(lambda _: self._saving.pop(replica))

    async def _save_ids(self, replica: Replica) -> None:
        await replica.rebuild_ids(self._stopping.is_set)
        await replica.save_ids()
        await replica.merge_ids(self._stopping.is_set)

    async def round(self, number: int = 0) -> None:
        """Maintain every replica once, and its leadership if this broker leads the partition."""
        save_from = SNAPSHOT_AFTER_BATCHES if number % _SAVE_MORE_EVERY else _SAVE_MORE_FROM
        for count, replica in enumerate(self._kept.replicas()):
            if count % _SLICE == 0:
                await asyncio.sleep(0)
            if self._stopping.is_set():
                return
            partition = self._kept.get_by_id(*replica.key)
            if partition is not None and partition.is_suspended:
                await self._try("healing a partition", partial(self._kept.heal, partition))
            elif replica.is_current:
                await self._maintain(replica, partition, save_from)
        await self.busy.sample(self._kept.all())
        await self._try("finishing interrupted changes", self._kept.finish_changes)

    async def _maintain(self, replica: Replica, partition: Leadership | None, save_from: int) -> None:
        if not replica.is_complete:
            await self._try("indexing message ids", replica.index_ids)
        if replica.wants_saving:
            self.save_soon(replica)
        replica.expire()
        if partition is not None:
            try:
                partition.apply_retention()
            except MillstreamError as error:
                fields = {"topic": partition.topic, "partition": partition.number, "error": str(error)}
                _log.warning("retention failed", extra=fields)
        if replica.unsaved_batches >= save_from:
            await replica.save_state()

    async def _run(self) -> None:
        number = 1
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._interval_s)
            await self._try("maintenance", partial(self.round, number))
            number += 1

    async def _try(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` and log a failure. The next round tries again."""
        try:
            await work()
        except Exception as error:
            _log.warning("%s failed, will be retried", name, extra={"error": str(error)})
