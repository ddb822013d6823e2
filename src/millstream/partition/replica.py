"""Holds one replica of a partition: its log and the state that is derived from the log.

Invariant: while `is_current`, leader epochs and producers reflect every batch in the log and no other. While
`is_complete`, message ids do too. A batch that is only buffered is not counted yet. The state can be rebuilt from the
log (see `derived_state`).

A replica listens to its log and forwards the events to its role. The role is a leadership if this broker leads the
partition. A replica also maintains its derived state while it has no role.

The leader adds natural message ids itself (see `put_deduplication`). A follower receives whole batches, so it reads
these ids from its log in the background (`index_ids`). A replica that has not read all of them does not lead before its
state is rebuilt.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from millstream.model.errors import MillstreamError
from millstream.model.ids import LeaderEpoch, Offset, ProducerId
from millstream.model.names import PartitionKey
from millstream.partition import derived_state
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.keys import batch_entry
from millstream.partition.message_ids.rebuild import rebuild_run
from millstream.partition.message_ids.replay import entries_from
from millstream.partition.runs.layout import Entry
from millstream.partition.runs.merging import write_merged
from millstream.records.header import MADE_IDS, OWN_IDS, BatchHeader
from millstream.seams.clock import Clock
from millstream.seams.workers import Workers
from millstream.storage.cleaning.cleaner import CleaningJob
from millstream.storage.log.log import Log

_log = logging.getLogger(__name__)

_IDS_AT_ONCE = 4_096
"""Number of message ids that one job of a worker reads from the log."""


class ReplicaRole(Protocol):
    """The role of this broker in the replica's partition. It is called after the replica has updated its own state."""

    def flushed(self) -> None:
        """Handle a flush: the log's flushed_offset may have increased."""
        ...

    def failed(self, offset: Offset, error: BaseException) -> None:
        """Handle a failed write or flush: batches from `offset` on are lost or their state is unknown."""
        ...

    def truncated(self) -> None:
        """Handle a truncation of the log. The derived state is outdated."""
        ...


class Replica:
    """A log and its derived state. `served.maintenance` saves, expires and merges the state."""

    def __init__(
        self,
        topic: str,
        log: Log,
        derived: derived_state.DerivedState,
        *,
        clock: Clock,
        workers: Workers,
        budget: derived_state.Budgets,
        save_soon: Callable[["Replica"], None],
    ) -> None:
        """`save_soon` is called when memory holds enough message ids for a save."""
        self.topic = topic
        self.key: PartitionKey = log.key
        self.log = log
        self.saving = asyncio.Lock()
        """Held while the derived state is being saved or rebuilt."""
        self._clock = clock
        self.workers = workers
        self._budget = budget
        self._save_soon = save_soon
        self._role: ReplicaRole | None = None
        self._set(derived)
        log.listen(self)

    def __repr__(self) -> str:
        return f"<Replica {self.topic}-{self.key.partition} {self.log.start_offset}..{self.log.end_offset}>"

    # Transitions

    def _set(self, derived: derived_state.DerivedState) -> None:
        self.is_current = True
        """False if the derived state must be rebuilt from the log, or was discarded."""
        self.epochs = derived.epochs
        self.producers = derived.producers
        self.producers.join(self._budget.producers, self._budget.self_named_producers)
        self.ids: IdIndex | None = derived.ids
        """The index of message ids. None while no message was stored under an id."""
        self.ids_lost = 0
        """The number of message ids that rebuilds since the start may have lost."""
        if self.ids is not None:
            self.ids.join(self._budget.ids)
        self.unsaved_batches = derived.replayed
        """Number of batches that the last snapshot does not include."""
        self._ids_end: Offset | None = None
        """The offset from which batches must be read for their message ids. None if `ids` has all of them."""
        self._last: derived_state.LastBatch | BatchHeader = derived.last

    def outdated(self) -> None:
        """Mark the derived state as outdated, because the log was truncated or could not be read."""
        self.is_current = False

    def rebuilt(self, derived: derived_state.DerivedState) -> None:
        """Replace the derived state after it was rebuilt from the log."""
        assert derived.offset == self.log.end_offset, "nothing is appended while the state is rebuilt"
        self.forget()
        self._set(derived)

    def forget(self) -> None:
        """Discard the derived state: it is outdated, the topic was deleted, or the broker stops."""
        self.is_current = False
        self.producers.clear()
        if self.ids is not None:
            self.ids.leave()
            self.ids = None

    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Begin a leader epoch at the log end."""
        assert self.epochs.latest <= leader_epoch, "a leader epoch only increases"
        self.epochs.begin(leader_epoch, start_offset=self.log.end_offset)

    def assume(self, role: ReplicaRole) -> None:
        """Set the role of this broker in the partition."""
        assert self._role is None, "a replica has one role"
        self._role = role

    def release(self, role: ReplicaRole) -> None:
        """End the role. The derived state stays current, so the replica can assume another role."""
        assert self._role is role, "only the current role can end"
        self._role = None

    # Events of the log

    def written(self, headers: Sequence[BatchHeader]) -> None:
        """Apply batches that were written to the log."""
        if not self.is_current:
            return
        self.unsaved_batches += len(headers)
        self._last = headers[-1]
        for header in headers:
            if header.producer_id >= 0 or header.leader_epoch != self.epochs.latest:
                derived_state.apply(header, self.producers, self.epochs, self._now_ms())
                if header.attributes & MADE_IDS and self._ids_end is None:
                    self.know((batch_entry(header),), header.base_offset)
            if header.attributes & OWN_IDS and self._role is None and self._ids_end is None:
                self._ids_end = header.base_offset
                self._index(header.base_offset)

    def flushed(self) -> None:
        if self._role is not None:
            self._role.flushed()

    def failed(self, offset: Offset, error: BaseException) -> None:
        if self._role is not None:
            self._role.failed(offset, error)

    def truncated(self) -> None:
        self.outdated()
        if self._role is not None:
            self._role.truncated()

    # Derived state

    def know(self, ids: Iterable[Entry], base_offset: Offset) -> None:
        """Add the message ids of a batch that was written at `base_offset`."""
        index = self._index(base_offset)
        index.add(ids, self._now_ms())
        if index.is_full:
            self._save_soon(self)

    def _index(self, base_offset: Offset) -> IdIndex:
        """Return the index of message ids. Create it if the first batch with ids is at `base_offset`."""
        if self.ids is None:
            self.ids = IdIndex(self.log, self._budget.id_limits, base_offset)
            self.ids.join(self._budget.ids)
        return self.ids

    def trimmed(self) -> None:
        """Drop leader epochs before the log start, which has moved."""
        self.epochs.trim(self.log.start_offset)

    # Queries

    def knows_producer(self, producer_id: ProducerId) -> bool:
        return self.log.has_buffered(producer_id) or self.producers.epoch_of(producer_id) is not None

    @property
    def is_complete(self) -> bool:
        """True if the derived state is current and `ids` has the message ids of every written batch."""
        return self.is_current and self._ids_end is None

    @property
    def wants_saving(self) -> bool:
        """True if a save of the message ids would free memory or disk, or if some of them must be rebuilt."""
        return self.ids is not None and (self.lacks_ids or self.ids.wants_saving(self._now_ms()))

    @property
    def lacks_ids(self) -> bool:
        """True while a part of the message ids is lost or damaged. Batches with ids that it may have are refused."""
        return self.ids is not None and self.ids.unreadable is not None

    # Maintenance

    def expire(self) -> None:
        """Forget silent producers and expired message ids. This is cheap and runs on the event loop."""
        now_ms = self._now_ms()
        self.producers.expire(now_ms)
        if self.ids is not None:
            self.ids.expire(now_ms)

    def cleaning_job(self, end_offset: int) -> CleaningJob:
        """Return the compaction that is allowed below `end_offset` without a change of the derived state."""
        end = end_offset if self.ids is None else min(end_offset, self.ids.needed_from)
        return CleaningJob(self.log, end, self.producers.reading_needs())

    async def cleaned(self) -> None:
        """Write a new snapshot after a compaction, which may have replaced the batch that the last snapshot names."""
        log = self.log
        with suppress(MillstreamError):
            log.write_buffered()
        last = self._last
        if not log.end_offset:
            return
        last_offset = Offset(log.end_offset - 1)
        found = await self.workers.run(lambda: next(log.scan.headers_from(last_offset), None))
        if found is not None and self._last is last:
            self._last = found
        self.unsaved_batches += 1
        await self.save_state()

    async def save_state(self) -> None:
        """Write a snapshot, so that the next start does not replay earlier batches.

        Message ids are written first (see `derived_state.freeze`). A failure is harmless: the next round tries again,
        and a start replays more batches.
        """
        async with self.saving:
            unsaved = self.unsaved_batches
            if not unsaved or not self.is_current:
                return
            with suppress(MillstreamError):
                self.log.write_buffered()  # A failed write discards the batches, and the state does not include them.
            last, now_ms, has_ids = derived_state.LastBatch.of(self._last), self._now_ms(), self.ids is not None
            frozen = derived_state.freeze(
                self.producers, self.epochs, self.log.end_offset, last, now_ms, has_ids=has_ids
            )
            if await self._save(partial(derived_state.save, self.log, frozen)):
                self.unsaved_batches = max(0, self.unsaved_batches - unsaved)

    async def index_ids(self) -> None:
        """Read the message ids of written batches that `ids` lacks.

        Batches that are written meanwhile may be left for the next call. Raises OSError and the errors of a log read.
        """
        async with self.saving:
            target, ids = self.log.written_offset, self.ids
            while (begin := self._ids_end) is not None and begin < target and ids is not None:
                read = partial(entries_from, self.log, begin, entries_max=_IDS_AT_ONCE)
                entries, end = await self.workers.run(read)
                if not self.is_current:
                    return
                ids.add(entries, self._now_ms())
                self._ids_end = end if end < self.log.written_offset else None
                if ids.is_full and not await self._save(lambda: None):
                    return

    async def save_ids(self) -> None:
        """Write the message ids. A failure is harmless, as in `save_state`."""
        async with self.saving:
            if self.ids is not None and self.is_current:
                with suppress(MillstreamError):
                    self.log.write_buffered()
                await self._save(lambda: None)

    async def _save(self, save_more: Callable[[], None]) -> bool:
        """Write the message ids, then call `save_more`. True if both succeeded."""
        ids = self.ids
        saving = ids.freeze(self._now_ms(), end_offset=self._ids_end) if ids is not None else None

        def write() -> None:
            if saving is not None:
                saving.write()
            save_more()

        try:
            await self.workers.run(write)
        except OSError as error:
            if ids is not None and saving is not None:
                ids.failed(saving)
            if not self.log.is_deleted:
                fields = {"topic": self.topic, "partition": self.key.partition, "error": str(error)}
                _log.warning("snapshot not written", extra=fields)
            return False
        if ids is not None and saving is not None:
            ids.saved(saving)
        return True

    async def merge_ids(self, is_over: Callable[[], bool]) -> None:
        """Merge runs of message ids, until none is left to merge or `is_over` returns True. This may take long.

        Raises OSError and KAFKA_STORAGE_ERROR. The runs are then unchanged.
        """
        async with self.saving:
            while (ids := self.ids) is not None and self.is_current and (work := ids.begin_merge()) is not None:
                if not await write_merged(self.log.files.disk, self.workers, *work, is_over):
                    return
                ids.merged(*work)
                await self._name_runs(ids)

    async def rebuild_ids(self, is_over: Callable[[], bool]) -> None:
        """Rebuild unreadable runs of message ids from the log. This may take long.

        Raises OSError and the errors of a log read. The runs are then unchanged, and the next round tries again.
        """
        async with self.saving:
            while (ids := self.ids) is not None and self.is_current and (run := ids.unreadable) is not None:
                where = {"topic": self.topic, "partition": self.key.partition, "error": run.unreadable}
                _log.error("message ids unreadable, will be rebuilt from the log", extra=where)
                start_offset = ids.start_of(run)
                rebuilding = rebuild_run(ids, self.log, run, self.workers, start_offset=start_offset, is_over=is_over)
                lost = await rebuilding
                if lost is None:
                    return
                self.ids_lost += lost
                await self._name_runs(ids)

    async def _name_runs(self, ids: IdIndex) -> None:
        naming = ids.name_runs(self._now_ms())
        await self.workers.run(naming.write)
        ids.saved(naming)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)
