"""One partition as its leader serves it.

Invariants: log start <= high watermark <= log end. The high watermark
moves up when a flush has made more durable, or at once where the flush policy acknowledges without one. Producer state
and epochs reflect every batch in the log and no other; a batch is counted there only after the log has taken it.

`append`, `read` and `wait` run on the event loop and never wait. What may have to wait for the disk is a coroutine.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from millstream.catalog.catalog import Placement
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import NO_TIMESTAMP
from millstream.model.names import PartitionKey
from millstream.partition import derived_state
from millstream.partition.append_result import ACKS_ALL, ACKS_NONE, AppendResult, UnwrittenBatches
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.keys import Entry, batch_entry
from millstream.partition.message_ids.saving import write_merged
from millstream.partition.offset_lookup import LATEST
from millstream.partition.produce_rules import check_produced, mark_ids, stamp_append_time
from millstream.partition.producers import ActiveProducer, StoredBatch
from millstream.partition.readable import Readable
from millstream.records.header import MADE_IDS, BatchHeader, read_header
from millstream.records.produced_batch import placed
from millstream.seams.clock import Clock
from millstream.seams.workers import Workers
from millstream.storage.cleaning.cleaner import CleaningJob
from millstream.storage.data_directory import to_the_end
from millstream.storage.flush.flush_round import FlushRound
from millstream.storage.log.log import Log
from millstream.storage.store import FlushPolicy, LogStore
from millstream.topics.settings import TopicSettings

_log = logging.getLogger(__name__)
T = TypeVar("T")


class PartitionMaintenance(Protocol):
    """Who does for partitions what they cannot wait for."""

    def heal_soon(self, partition: "Partition") -> None:
        """The log was cut back: the state must be read from it again."""
        ...

    def save_soon(self, partition: "Partition") -> None:
        """Memory holds so much that it should be saved."""
        ...


class Partition(Readable):
    """Append, read, wait. Made by `Partitions`, which also keeps it in order (`served.maintenance`) and closes it."""

    def __init__(
        self,
        topic: str,
        log: Log,
        derived: derived_state.DerivedState | None,
        *,
        settings: TopicSettings,
        placement: Placement,
        store: LogStore,
        clock: Clock,
        workers: Workers,
        budget: derived_state.Budgets,
        caretaker: PartitionMaintenance,
    ) -> None:
        super().__init__(topic, log, placement.leader_epoch, workers)
        self.key: PartitionKey = log.key
        self.settings = settings
        self.placement = placement
        self.is_suspended = False
        self.cuts = 0  # How often the log has lost its end.
        self._store = store
        self._clock = clock
        self._budget = budget
        self._caretaker = caretaker
        self._refusal = None
        self.ids: IdIndex | None = None
        """The message ids that are known; None as long as nothing was stored under any."""
        self.unsaved_batches = 0  # Those that came after the last snapshot was taken.
        self.saving = asyncio.Lock()
        """Held by whoever writes what is derived from the log, or reads it anew."""
        self._last: derived_state.LastBatch | BatchHeader = derived_state.NO_BATCH
        self._unwritten = UnwrittenBatches(self._note)
        self._take_over(derived or derived_state.nothing(derived_state.ProducerLimits()))
        log.on_durable = self._on_durable
        log.on_cut = self._on_cut
        log.write_buffer.on_written = self._unwritten.written
        log.write_buffer.on_lost = self._unwritten.lost
        self._advance(self._acknowledged_end())
        if derived is None:
            self._suspend("could not be read at the start")

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.number} {self.log.start_offset}..{self.high_watermark}>"

    @property
    def producers_known(self) -> int:
        return len(self._producers)

    # Writing.

    def append(self, records: memoryview, acks: int = ACKS_ALL, ids: int = 0) -> AppendResult:
        """Take one batch from a client; offset and epoch are stamped into `records` in place. `ids` is the attribute
        that tells which message ids it has, if it was sent with such (see `put_deduplication`).

        Raises what Kafka answers: INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, INVALID_TXN_STATE, INVALID_PRODUCER_EPOCH,
        OUT_OF_ORDER_SEQUENCE_NUMBER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, PARTITION_QUARANTINED, and
        UNKNOWN_TOPIC_OR_PARTITION or NOT_LEADER_OR_FOLLOWER after `close`. The log and the state are then as before.
        """
        settings = self.settings
        if self._refusal is not None or settings.min_insync_replicas > 1:
            self.check_writable(acks)
        now_ms = self._clock.wall_ms()
        header = check_produced(records, settings, now_ms, ids)
        log, producer_id = self.log, header.producer_id
        if producer_id >= 0:
            if producer_id in self._unwritten.producer_ids:
                log.write_buffer.write()
            first = self._producers.check(
                producer_id, header.producer_epoch, header.base_sequence, header.last_sequence
            )
            if first is not None:
                return self.duplicate(first.base_offset, first.last_offset, acks, first.timestamp)
        if ids:
            header = mark_ids(records, header, ids)
        base_offset = log.end_offset
        timestamp = NO_TIMESTAMP
        if settings.log_append_time:
            timestamp = now_ms
            stamp_append_time(records, header, now_ms)
            header = read_header(records)
        header = placed(records, header, base_offset, self.leader_epoch)
        if log.write_buffer.add(records, header):
            self._note(header, timestamp)
        else:
            self._unwritten.add(header, timestamp)
        return AppendResult(base_offset, log.start_offset, self._commit(acks), False, timestamp)

    def _note(self, header: BatchHeader, timestamp: int) -> None:
        """A batch has been written."""
        self.unsaved_batches += 1
        self._last = header
        if header.producer_id >= 0:
            first, last = header.base_sequence, header.last_sequence
            batch = StoredBatch(first, last, header.base_offset, header.last_offset, timestamp)
            self._producers.record(header.producer_id, header.producer_epoch, batch, self._now_ms())
            if header.attributes & MADE_IDS:
                self.know((batch_entry(header),), header.base_offset)

    def know(self, ids: Iterable[Entry], base_offset: int) -> None:
        """Message ids of a batch that was written at this offset."""
        if self.ids is None:
            self.ids = IdIndex(self.log, self._budget.id_limits, base_offset)
            self.ids.join(self._budget.ids)
        self.ids.add(ids, self._now_ms())
        if self.ids.is_full:
            self._caretaker.save_soon(self)

    def _commit(self, acks: int) -> FlushRound | None:
        committed = self._store.commit(self.log)
        if committed is None:
            self._advance(self.log.end_offset)
        elif acks == ACKS_NONE:
            return None
        return committed

    def duplicate(self, offset: int, last_offset: int, acks: int, timestamp: int = NO_TIMESTAMP) -> AppendResult:
        """The first copy may still be on its way to the disk: the second is not acknowledged before it either."""
        committed = None if last_offset < self.high_watermark else self._commit(acks)
        return AppendResult(offset, self.log.start_offset, committed, True, timestamp)

    def check_writable(self, acks: int) -> None:
        """Raise what stands against every append, if something does."""
        if self._refusal is not None:
            raise self._refused()
        if acks == ACKS_ALL and self.settings.min_insync_replicas > len(self.placement.in_sync):
            raise MillstreamError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.placement.in_sync)} in sync, min.insync.replicas is {self.settings.min_insync_replicas}",
            )

    def producer_epoch(self, producer_id: int) -> int | None:
        """The newest epoch of a producer whose batches were written; None when it is not known."""
        return self._producers.epoch_of(producer_id)

    def knows_producer(self, producer_id: int) -> bool:
        return producer_id in self._unwritten.producer_ids or self.producer_epoch(producer_id) is not None

    def run(self, work: Callable[[memoryview, TopicSettings, int], T], records: memoryview) -> asyncio.Future[T]:
        """Let a worker look at a batch that is to be appended here."""
        return self.workers.run(partial(work, records, self.settings, self._clock.wall_ms()))

    async def active_producers(self) -> list[ActiveProducer]:
        """The idempotent producers that are known here, once all that they are said to have stored is acknowledged:
        whoever leaves out what is there already must not lose it with the broker's next breath.

        Raises KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT when the broker stops, and what stands against every append.
        """
        if self._refusal is not None:
            raise self._refused()
        self._check_readable()
        self.log.write_buffer.write()
        active = self._producers.active(self._now_ms())
        if self.high_watermark < self.log.end_offset and (committed := self._commit(ACKS_ALL)) is not None:
            await committed
        return active

    # Keeping in order.

    def resume(self, derived: derived_state.DerivedState) -> None:
        """Go on after the log was cut back, under the placement's leader epoch, with the state the log really has."""
        if self.is_closed:
            return
        assert derived.offset == self.log.end_offset, "nothing is appended while the state is read"
        self._forget()
        self.leader_epoch = self.placement.leader_epoch
        self.is_suspended = False
        self._refusal = None
        self._take_over(derived)
        self._advance(self._acknowledged_end())

    async def delete_records(self, before: int) -> int:
        """Forget all messages before an offset (-1: all there are); the new start of the log, which is durable then.

        Raises OFFSET_OUT_OF_RANGE beyond the high watermark, POLICY_VIOLATION where only compaction removes messages,
        KAFKA_STORAGE_ERROR, and what reading raises.
        """
        self._check_readable()
        if not self.settings.delete:
            raise MillstreamError(
                ErrorCode.POLICY_VIOLATION,
                f"cleanup.policy of {self.topic} is compact; only with delete can records be removed by offset",
            )
        wanted = self.high_watermark if before == LATEST else before
        if not 0 <= wanted <= self.high_watermark:
            raise MillstreamError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {before} is beyond the high watermark, {self.high_watermark}"
            )
        if self.ids is not None and self.ids.covered < wanted:
            # What is deleted can no longer tell of its ids after a crash.
            await to_the_end(self.save_ids())
            if self.ids is None or self.ids.covered < wanted:
                raise MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, f"the message ids of {self.topic} cannot be saved")
        await self._store.move_start(self.log, wanted)
        self._epochs.trim(self.log.start_offset)
        self._advance(self.log.start_offset)
        return self.log.start_offset

    def cleaning_job(self) -> CleaningJob:
        """What compaction may do here; the state that the log gives stays the same."""
        end = self.high_watermark if self.ids is None else min(self.high_watermark, self.ids.covered)
        return CleaningJob(self.log, end, self._producers.reading_needs())

    async def cleaned(self) -> None:
        """The log was compacted: the batch that the snapshot names may be another by now, so write a new one."""
        log = self.log
        with suppress(MillstreamError):
            log.write_buffer.write()
        last = self._last
        if not log.end_offset:
            return
        found = await self.workers.run(lambda: next(log.headers_from(log.end_offset - 1), None))
        if found is not None and self._last is last:
            self._last = found
        self.unsaved_batches += 1
        await self.save_state()

    async def save_state(self) -> None:
        """Write a snapshot, so that a start need not replay what came before; message ids first, see
        `derived_state.freeze`.

        A failure is no harm: the next start takes longer, and the next round tries again.
        """
        async with self.saving:
            unsaved = self.unsaved_batches
            if not unsaved or self._refusal is not None:
                return
            with suppress(MillstreamError):
                self.log.write_buffer.write()  # Refused, none of it counts, and the state is whole without it.
            last, now_ms, has_ids = derived_state.LastBatch.of(self._last), self._now_ms(), self.ids is not None
            frozen = derived_state.freeze(
                self._producers, self._epochs, self.log.end_offset, last, now_ms, has_ids=has_ids
            )
            if await self._save(partial(derived_state.save, self.log, frozen)):
                self.unsaved_batches = max(0, self.unsaved_batches - unsaved)

    async def save_ids(self) -> None:
        """Write which message ids are known; a failure is no harm here either."""
        async with self.saving:
            if self.ids is not None and self._refusal is None:
                with suppress(MillstreamError):
                    self.log.write_buffer.write()
                await self._save(lambda: None)

    async def _save(self, save_more: Callable[[], None]) -> bool:
        """Write the message ids, then more; whether that went well."""
        ids = self.ids
        saving = ids.freeze(self._now_ms()) if ids is not None else None

        def write() -> None:
            if saving is not None:
                saving.write()
            save_more()

        try:
            await self.workers.run(write)
        except OSError as error:
            if ids is not None and saving is not None:
                ids.failed(saving)
            if not self.is_closed:
                _log.warning("a snapshot could not be written", extra={"partition": str(self), "why": str(error)})
            return False
        if ids is not None and saving is not None:
            ids.saved(saving)
        return True

    async def merge_ids(self, is_over: Callable[[], bool]) -> None:
        """Make fewer runs of the message ids' many, until `is_over` says that there is no time for it. Takes its time.

        Raises OSError, KAFKA_STORAGE_ERROR; the runs are then as before.
        """
        async with self.saving:
            while (ids := self.ids) is not None and self._refusal is None and (work := ids.begin_merge()) is not None:
                if not await write_merged(self.log.files.disk, self.workers, *work, is_over):
                    return
                ids.merged(*work)
                naming = ids.name_runs(self._now_ms())
                await self.workers.run(naming.write)
                ids.saved(naming)

    @property
    def wants_saving(self) -> bool:
        """Whether more than a shorter replay is gained by saving now."""
        return self.ids is not None and self.ids.wants_saving(self._now_ms())

    def upkeep(self) -> None:
        """Retention, and forgetting silent producers. Cheap, on the event loop; raises KAFKA_STORAGE_ERROR."""
        now_ms, ids = self._now_ms(), self.ids
        self._producers.expire(now_ms)
        if ids is not None:
            ids.expire(now_ms)
        if self.log.apply_retention(self._clock.wall_ms(), None if ids is None else ids.covered):
            self._epochs.trim(self.log.start_offset)
            self._advance(self.log.start_offset)

    def close(self, code: ErrorCode) -> None:
        """Refuse everything from now on with `code`, and wake whoever waits."""
        self.is_closed = True
        self.is_suspended = False
        self._refusal = MillstreamError(code, f"partition {self.topic}-{self.number} is no longer served here")
        self.log.on_durable = self.log.on_cut = None
        self.log.write_buffer.on_written = self.log.write_buffer.on_lost = None
        self._forget()
        self._waiters.wake_all()

    def _forget(self) -> None:
        """Whatever is derived from the log."""
        self._producers.clear()
        if self.ids is not None:
            self.ids.leave()
            self.ids = None

    def _take_over(self, derived: derived_state.DerivedState) -> None:
        self._producers = derived.producers
        self._producers.join(self._budget.producers, self._budget.self_named_producers)
        self.ids = derived.ids
        if self.ids is not None:
            self.ids.join(self._budget.ids)
        self._epochs = derived.epochs
        self.unsaved_batches = derived.replayed
        self._last = derived.last
        assert self._epochs.latest <= self.leader_epoch, "leadership never goes back"
        self._epochs.begin(self.leader_epoch, self.log.end_offset)

    def _acknowledged_end(self) -> int:
        log = self.log
        return log.durable_offset if self._store.policy is FlushPolicy.ALWAYS else log.end_offset

    def _on_cut(self, log: Log) -> None:
        """A failed flush took back the end of the log: refuse writes until the state was read from it again."""
        self.cuts += 1
        self.high_watermark = min(self.high_watermark, log.end_offset)
        self._suspend("is being read back after a disk error")

    def _suspend(self, reason: str) -> None:
        self.is_suspended = True
        self._refusal = MillstreamError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"partition {self.topic}-{self.number} {reason}; it takes no writes until then",
        )
        self._caretaker.heal_soon(self)

    def _on_durable(self, log: Log) -> None:
        self._advance(log.durable_offset)

    def _advance(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self._waiters:
                self._waiters.wake_below(offset)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)
