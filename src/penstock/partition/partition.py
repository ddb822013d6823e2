"""One partition as its leader serves it.

Invariants: log start <= high watermark <= log end. Nothing at or above the high watermark is handed to a reader; it
moves up when a flush has made more durable, or at once where the flush policy acknowledges without one. Producer state
and epochs reflect every batch in the log and no other; a batch is counted there only after the log has taken it.

`append`, `read` and `wait` run on the event loop and never wait. What may have to wait for the disk is a coroutine.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from penstock.catalog.catalog import Placement
from penstock.model.clock import Clock
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.file_part import FilePart
from penstock.model.limits import NO_LEADER_EPOCH, NO_TIMESTAMP
from penstock.model.names import PartitionKey
from penstock.model.workers import Workers
from penstock.partition import state
from penstock.partition.appended import ACKS_ALL, ACKS_NONE, Appended, Unwritten
from penstock.partition.epochs import EpochEnd
from penstock.partition.produced import check_produced, stamp_append_time
from penstock.partition.producers import ActiveProducer, ProducerBudget, StoredBatch
from penstock.partition.settings import TopicSettings
from penstock.partition.times import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NOT_FOUND,
    FoundOffset,
)
from penstock.partition.waiters import Cancel, Waiters
from penstock.records.header import BatchHeader, read_header
from penstock.records.produced import placed
from penstock.storage.cleaner import CleaningJob
from penstock.storage.commit import Commit
from penstock.storage.log import Log
from penstock.storage.store import FlushPolicy, Store

_log = logging.getLogger(__name__)
T = TypeVar("T")


def _nothing() -> None:
    pass


class Partition:
    """Append, read, wait. Made by `Partitions`, which also keeps it in order (`upkeep`) and closes it."""

    def __init__(
        self,
        topic: str,
        log: Log,
        derived: state.DerivedState | None,
        *,
        settings: TopicSettings,
        placement: Placement,
        store: Store,
        clock: Clock,
        workers: Workers,
        budget: ProducerBudget,
        on_suspended: Callable[["Partition"], None],
    ) -> None:
        self.key: PartitionKey = log.key
        self.topic = topic
        self.number = self.key.partition
        self.log = log
        self.settings = settings
        self.placement = placement
        self.leader_epoch = placement.leader_epoch
        self.high_watermark = log.start_offset
        self.is_suspended = False
        self.cuts = 0  # How often the log has lost its end.
        self._store = store
        self._clock = clock
        self.workers = workers
        self._budget = budget
        self._tell_suspended = on_suspended
        self._waiters = Waiters()
        self._refusal: PenstockError | None = None
        self.is_closed = False
        self.unsaved_batches = 0  # Those that came after the last snapshot was taken.
        self._saving = asyncio.Lock()  # Retention and compaction both save, into the same file.
        self._last: state.LastBatch | BatchHeader = state.NO_BATCH
        self._unwritten = Unwritten(self._note)
        self._take_over(derived or state.nothing(state.ProducerLimits()))
        log.on_durable = self._on_durable
        log.on_cut = self._on_cut
        log.gathering.on_written = self._unwritten.written
        log.gathering.on_lost = self._unwritten.lost
        self._advance(self._acknowledged_end())
        if derived is None:
            self._suspend("could not be read at the start")

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.number} {self.log.start_offset}..{self.high_watermark}>"

    @property
    def waiting(self) -> int:
        """How many readers wait here."""
        return len(self._waiters)

    @property
    def producers_known(self) -> int:
        return len(self._producers)

    # Writing.

    def append(self, records: memoryview, acks: int = ACKS_ALL) -> Appended:
        """Take one batch from a client; offset and epoch are stamped into `records` in place.

        Raises what Kafka answers: INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, INVALID_TXN_STATE, INVALID_PRODUCER_EPOCH,
        OUT_OF_ORDER_SEQUENCE_NUMBER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, PARTITION_QUARANTINED, and
        UNKNOWN_TOPIC_OR_PARTITION or NOT_LEADER_OR_FOLLOWER after `close`. The log and the state are then as before.
        """
        if self._refusal is not None:
            raise self._refused()
        settings = self.settings
        if acks == ACKS_ALL and settings.min_insync_replicas > len(self.placement.in_sync):
            raise self._too_few_replicas()
        now_ms = self._clock.wall_ms()
        header = check_produced(records, settings, now_ms)
        log, producer_id = self.log, header.producer_id
        if producer_id >= 0:
            if producer_id in self._unwritten.producer_ids:
                log.gathering.write()
            first = self._producers.check(
                producer_id, header.producer_epoch, header.base_sequence, header.last_sequence
            )
            if first is not None:
                return self._duplicate(first, acks)
        base_offset = log.end_offset
        timestamp = NO_TIMESTAMP
        if settings.log_append_time:
            timestamp = now_ms
            stamp_append_time(records, header, now_ms)
            header = read_header(records)
        header = placed(records, header, base_offset, self.leader_epoch)
        if log.gathering.add(records, header):
            self._note(header, timestamp)
        else:
            self._unwritten.add(header, timestamp)
        return Appended(base_offset, log.start_offset, self._commit(acks), False, timestamp)

    def _note(self, header: BatchHeader, timestamp: int) -> None:
        """A batch has been written."""
        self.unsaved_batches += 1
        self._last = header
        if header.producer_id >= 0:
            first, last = header.base_sequence, header.last_sequence
            batch = StoredBatch(first, last, header.base_offset, header.last_offset, timestamp)
            self._producers.record(header.producer_id, header.producer_epoch, batch, self._now_ms())

    def _commit(self, acks: int) -> Commit | None:
        committed = self._store.commit(self.log)
        if committed is None:
            self._advance(self.log.end_offset)
        elif acks == ACKS_NONE:
            return None
        return committed

    def _duplicate(self, first: StoredBatch, acks: int) -> Appended:
        """The first copy may still be on its way to the disk: the second is not acknowledged before it either."""
        committed = None if first.last_offset < self.high_watermark else self._commit(acks)
        return Appended(first.base_offset, self.log.start_offset, committed, True, first.timestamp)

    def _too_few_replicas(self) -> PenstockError:
        return PenstockError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{len(self.placement.in_sync)} in sync, min.insync.replicas is {self.settings.min_insync_replicas}",
        )

    def run(self, work: Callable[[memoryview, TopicSettings, int], T], records: memoryview) -> asyncio.Future[T]:
        """Let a worker look at a batch that is to be appended here."""
        return self.workers.run(partial(work, records, self.settings, self._clock.wall_ms()))

    # Reading.

    def read(self, offset: int, max_bytes: int) -> bytes | FilePart | None:
        """Whole batches from the one that contains `offset`, many of them unread; b"" when there is nothing yet; None:
        use `read_cold`. At most `max_bytes`, but always the first batch. Raises what `check_offset` raises."""
        self.check_offset(offset)
        if offset >= self.high_watermark:
            return b""
        found = self.log.lend(offset, max_bytes, self.high_watermark)
        return None if found is None else found[0]

    async def read_cold(self, offset: int, max_bytes: int) -> bytes:
        """As `read`, waiting for the disk where it must."""
        self.check_offset(offset)
        log, high_watermark = self.log, self.high_watermark
        if offset >= high_watermark:
            return b""
        return await self.workers.run(lambda: log.read_cold(offset, max_bytes, high_watermark))

    def wait(self, offset: int, callback: Callable[[], None]) -> Cancel:
        """Call `callback` once, as soon as `offset` can be read or the partition is closed: perhaps at once, before
        this returns. The offset may lie anywhere beyond the end. The result stops the waiting."""
        if self.is_closed or offset < self.high_watermark:
            callback()
            return _nothing
        return self._waiters.add(offset, callback)

    def check_leader_epoch(self, epoch: int) -> None:
        """Whether a client that believes in leader epoch `epoch` (-1: in none) may be served: FENCED_LEADER_EPOCH when
        it is behind, UNKNOWN_LEADER_EPOCH when it is ahead."""
        if epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise PenstockError(code, f"the partition is at leader epoch {self.leader_epoch}, not {epoch}")

    async def offset_for_time(self, timestamp_ms: int) -> FoundOffset:
        """The first message at or after a time, or what one of the special times stands for."""
        self._check_readable()
        if timestamp_ms == LATEST:
            return FoundOffset(self.high_watermark, NO_TIMESTAMP, self.leader_epoch)
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            start = self.log.start_offset
            return FoundOffset(start, NO_TIMESTAMP, self._epochs.at(start))
        if timestamp_ms == LATEST_TIERED:
            return NOT_FOUND
        log = self.log
        if timestamp_ms == MAX_TIMESTAMP:
            timestamp, offset = await self.workers.run(log.max_timestamp)
            found: tuple[int, int] | None = (offset, timestamp)
        else:
            found = await self.workers.run(lambda: log.offset_for_time(timestamp_ms))
        if found is None or not 0 <= found[0] < self.high_watermark:
            return NOT_FOUND
        return FoundOffset(*found, self._epochs.at(found[0]))

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Where leader epoch `epoch` ended; (-1, -1) when it is not known."""
        return self._epochs.end_of(epoch, self.log.end_offset)

    def active_producers(self) -> list[ActiveProducer]:
        """The idempotent producers that are known here."""
        return self._producers.active(self._now_ms())

    # Keeping in order.

    def resume(self, derived: state.DerivedState) -> None:
        """Go on after the log was cut back, under the placement's leader epoch, with the state the log really has."""
        if self.is_closed:
            return
        assert derived.offset == self.log.end_offset, "nothing is appended while the state is read"
        self._producers.clear()
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
            raise PenstockError(
                ErrorCode.POLICY_VIOLATION,
                f"cleanup.policy of {self.topic} is compact; only with delete can records be removed by offset",
            )
        wanted = self.high_watermark if before == LATEST else before
        if not 0 <= wanted <= self.high_watermark:
            raise PenstockError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {before} is beyond the high watermark, {self.high_watermark}"
            )
        await self._store.move_start(self.log, wanted)
        self._epochs.trim(self.log.start_offset)
        self._advance(self.log.start_offset)
        return self.log.start_offset

    def cleaning_job(self) -> CleaningJob:
        """What compaction may do here; the state that the log gives stays the same."""
        return CleaningJob(self.log, self.high_watermark, self._producers.reading_needs())

    async def cleaned(self) -> None:
        """The log was compacted: the batch that the snapshot names may be another by now, so write a new one."""
        log = self.log
        with suppress(PenstockError):
            log.gathering.write()
        last = self._last
        if not log.end_offset:
            return
        found = await self.workers.run(lambda: next(log.headers_from(log.end_offset - 1), None))
        if found is not None and self._last is last:
            self._last = found
        self.unsaved_batches += 1
        await self.save_state()

    async def save_state(self) -> None:
        """Write a snapshot, so that a start need not replay what came before.

        A failure is no harm: the next start takes longer, and the next round tries again.
        """
        async with self._saving:
            unsaved, log = self.unsaved_batches, self.log
            if not unsaved or self._refusal is not None:
                return
            with suppress(PenstockError):
                log.gathering.write()  # Refused, none of it counts, and the state is whole without it.
            last = state.LastBatch.of(self._last)
            frozen = state.freeze(self._producers, self._epochs, log.end_offset, last, self._now_ms())
            try:
                await self.workers.run(lambda: state.save(log, frozen))
            except OSError as error:
                if not self.is_closed:
                    _log.warning("a snapshot could not be written", extra={"partition": str(self), "why": str(error)})
            else:
                self.unsaved_batches = max(0, self.unsaved_batches - unsaved)

    def upkeep(self) -> None:
        """Retention, and forgetting silent producers. Cheap, on the event loop; raises KAFKA_STORAGE_ERROR."""
        self._producers.expire(self._now_ms())
        if self.log.apply_retention(self._clock.wall_ms()):
            self._epochs.trim(self.log.start_offset)
            self._advance(self.log.start_offset)

    def close(self, code: ErrorCode) -> None:
        """Refuse everything from now on with `code`, and wake whoever waits."""
        self.is_closed = True
        self.is_suspended = False
        self._refusal = PenstockError(code, f"partition {self.topic}-{self.number} is no longer served here")
        self.log.on_durable = self.log.on_cut = None
        self.log.gathering.on_written = self.log.gathering.on_lost = None
        self._producers.clear()
        self._waiters.wake_all()

    def _take_over(self, derived: state.DerivedState) -> None:
        self._producers = derived.producers
        self._producers.join(self._budget)
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
        self._refusal = PenstockError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"partition {self.topic}-{self.number} {reason}; it takes no writes until then",
        )
        self._tell_suspended(self)

    def _on_durable(self, log: Log) -> None:
        self._advance(log.durable_offset)

    def _advance(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self._waiters:
                self._waiters.wake_below(offset)

    def check_offset(self, offset: int) -> None:
        """OFFSET_OUT_OF_RANGE before the start or beyond the end; whatever reading refuses."""
        self._check_readable()
        log = self.log
        if not log.start_offset <= offset <= log.end_offset:
            raise PenstockError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {log.start_offset} to {log.end_offset} of {self.topic}-{self.number}",
            )

    def _check_readable(self) -> None:
        """A quarantined log knows neither of its ends: whatever were said about them would be believed."""
        if self.is_closed:
            raise self._refused()
        if self.log.quarantined is not None:
            raise PenstockError(ErrorCode.PARTITION_QUARANTINED, self.log.quarantined)

    def _refused(self) -> PenstockError:
        assert self._refusal is not None
        return PenstockError(self._refusal.code, self._refusal.detail)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)
