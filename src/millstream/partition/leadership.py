"""Leads one partition: appends batches, acknowledges them and limits what readers see.

Invariants: log start <= high watermark <= log end. Within one leader epoch the high watermark never moves back (see
`watermark`). A batch is acknowledged once the high watermark has passed it under the leader epoch that appended it.

acks=all waits for the high watermark, and acks=1 for the leader's flushed offset. On a single broker these are the
same. acks=0 does not wait.

`append`, `read` and `wait` run on the event loop and never block. Methods that may wait for the disk are coroutines.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from millstream.catalog.catalog import Placement
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.model.limits import NO_TIMESTAMP
from millstream.model.names import INTERNAL_PREFIX
from millstream.partition.append_result import AppendResult
from millstream.partition.derived_state import DerivedState
from millstream.partition.offset_lookup import LATEST
from millstream.partition.produce_rules import (
    InvalidRecords,
    check_produced,
    check_records,
    mark_ids,
    stamp_append_time,
)
from millstream.partition.producers import ActiveProducer
from millstream.partition.readable import Readable
from millstream.partition.replica import Replica
from millstream.partition.stamped_run import stamped_run
from millstream.partition.watermark import ACKS_ALL, Acknowledgement
from millstream.records.header import COMPRESSION_MASK, LENGTH_END, read_header
from millstream.records.produced_batch import placed
from millstream.seams.clock import Clock
from millstream.seams.workers import Workers
from millstream.storage.cleaning.cleaner import CleaningJob
from millstream.storage.cleaning.retention import apply_retention
from millstream.storage.data_directory import to_the_end
from millstream.storage.store import LogStore
from millstream.topics.settings import TopicSettings

T = TypeVar("T")


class TopicTraffic:
    """Counts what clients and the broker itself write to a topic, and what clients read from it, since the start.

    All leaderships of a topic share one object.
    """

    __slots__ = ("fetched_bytes", "fetched_messages", "produced_bytes", "produced_messages")

    def __init__(self) -> None:
        self.produced_bytes = self.produced_messages = 0
        self.fetched_bytes = self.fetched_messages = 0

    def fetched(self, size_bytes: int, *, messages: int) -> None:
        """Count a response with records, or with their position in a file."""
        self.fetched_bytes += size_bytes
        self.fetched_messages += messages

    def add(self, other: "TopicTraffic") -> None:
        """Add the figures of another topic."""
        self.produced_bytes += other.produced_bytes
        self.produced_messages += other.produced_messages
        self.fetched_bytes += other.fetched_bytes
        self.fetched_messages += other.fetched_messages


class Leadership(Readable):
    """The role of a replica whose partition this broker leads.

    `LeadershipFactory` creates it and `Partitions` closes it.
    """

    def __init__(
        self,
        replica: Replica,
        *,
        settings: TopicSettings,
        placement: Placement,
        store: LogStore,
        clock: Clock,
        workers: Workers,
        traffic: TopicTraffic,
        heal_soon: Callable[["Leadership"], None],
        validate_records: bool = True,
    ) -> None:
        """`heal_soon` is called when the replica's derived state must be rebuilt from its log.

        With `validate_records`, the records of uncompressed batches from clients are walked before an append.
        """
        super().__init__(replica, placement.leader_epoch, workers)
        self.settings = settings
        self.placement = placement
        self.is_internal = replica.topic.startswith(INTERNAL_PREFIX)
        """True for topics that only the broker writes to."""
        self.walks_records = validate_records and not self.is_internal
        self.is_suspended = False
        self.traffic = traffic
        self.produced_bytes = 0
        """Bytes appended under this leadership."""
        self._store = store
        self._clock = clock
        self._heal_soon = heal_soon
        self._refusal = None
        replica.begin_epoch(placement.leader_epoch)
        replica.assume(self)
        self._advance()
        self._check()

    def __repr__(self) -> str:
        return f"<Leadership {self.topic}-{self.number} {self.log.start_offset}..{self.high_watermark}>"

    # Writing

    def append(self, records: memoryview, acks: int = ACKS_ALL, *, ids: int = 0, walked: bool = False) -> AppendResult:
        """Append one batch of a client. Writes offset and epoch into `records` in place.

        `ids` is the header attribute for the kind of message ids that the batch was sent with, or 0 (see
        `put_deduplication`). `walked` is True if a worker has walked the records.

        Raises the errors that Kafka returns: INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, INVALID_TXN_STATE, INVALID_PRODUCER_EPOCH,
        OUT_OF_ORDER_SEQUENCE_NUMBER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, PARTITION_QUARANTINED, and
        UNKNOWN_TOPIC_OR_PARTITION or NOT_LEADER_OR_FOLLOWER after the leadership has ended. After an error the log and
        the derived state are unchanged.
        """
        settings = self.settings
        if self._refusal is not None or settings.min_insync_replicas > 1:
            self.check_writable(acks)
        now_ms = self._clock.wall_ms()
        header = check_produced(records, settings, now_ms, ids=ids)
        if self.walks_records and not walked and not header.attributes & COMPRESSION_MASK:
            try:
                header = check_records(records, header, settings, now_ms)
            except InvalidRecords as error:
                raise error.of(self.topic, self.number) from None
        log, producer_id = self.log, header.producer_id
        if producer_id >= 0:
            if log.has_buffered(producer_id):
                log.write_buffered()
            old = self.replica.producers.check(
                producer_id,
                epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                last_sequence=header.last_sequence,
            )
            if old is not None:
                return self.duplicate(old.base_offset, last_offset=old.last_offset, acks=acks, timestamp=old.timestamp)
        if ids:
            header = mark_ids(records, header, ids)
        watermark, base_offset = self._watermark, log.end_offset
        timestamp = NO_TIMESTAMP
        if settings.log_append_time:
            timestamp = now_ms
            stamp_append_time(records, header, now_ms)
            header = read_header(records)
        end_offset = log.append(records, placed(records, header, base_offset, watermark.leader_epoch))
        size_bytes, traffic = header.batch_length + LENGTH_END, self.traffic
        traffic.produced_bytes += size_bytes
        traffic.produced_messages += end_offset - base_offset
        self.produced_bytes += size_bytes
        if not log.waits_for_flush:
            watermark.advance(own_flushed=end_offset, high_watermark=end_offset)
        acknowledgement = watermark.acknowledge(end_offset - 1, acks=acks)
        return AppendResult(base_offset, log.start_offset, acknowledgement, False, timestamp)

    def append_run(self, batches: Sequence[memoryview]) -> AppendResult:
        """Append several batches of the broker's own, in one write and with acks=all. They have no producer id.

        Raises as `append` does; then none of the batches is in the log. A crash before the acknowledgement may leave
        the first of them. `base_offset` is that of the first batch.
        """
        self.check_writable(ACKS_ALL)
        log, epoch = self.log, self._watermark.leader_epoch
        log.write_buffered()  # If that fails, the log ends earlier and the batches get other offsets.
        now_ms, base_offset = self._clock.wall_ms(), log.end_offset
        run = stamped_run(batches, self.settings, now_ms=now_ms, base_offset=base_offset, leader_epoch=epoch)
        log.append_run(run.data, run.headers)
        self.traffic.produced_bytes += len(run.data)
        self.traffic.produced_messages += log.end_offset - base_offset
        self.produced_bytes += len(run.data)
        if not log.request_flush():
            self._advance()
        acknowledgement = self._watermark.acknowledge(log.end_offset - 1, acks=ACKS_ALL)
        return AppendResult(base_offset, log.start_offset, acknowledgement, False, run.log_append_time_ms)

    def duplicate(self, offset: int, *, last_offset: int, acks: int, timestamp: int = NO_TIMESTAMP) -> AppendResult:
        """Return the result for a batch that was stored before at `offset`.

        If the first copy is not acknowledged yet, the duplicate is acknowledged together with it.
        """
        acknowledgement = self._acknowledge(last_offset, acks=acks)
        return AppendResult(offset, self.log.start_offset, acknowledgement, True, timestamp)

    def _acknowledge(self, last_offset: int, *, acks: int) -> Acknowledgement | None:
        acknowledgement = self._watermark.acknowledge(last_offset, acks=acks)
        if acknowledgement is not None:
            self.log.request_flush()
        return acknowledgement

    def check_writable(self, acks: int) -> None:
        """Raise the error that prevents every append, if there is one."""
        if self._refusal is not None:
            raise self._refused()
        if acks == ACKS_ALL and self.settings.min_insync_replicas > len(self.placement.in_sync):
            raise MillstreamError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"min.insync.replicas is {self.settings.min_insync_replicas}, "
                f"but only {len(self.placement.in_sync)} replicas are in sync",
            )

    def run(self, work: Callable[[memoryview, TopicSettings, int], T], records: memoryview) -> asyncio.Future[T]:
        """Run `work` on a batch in a worker, before the batch is appended."""
        return self.workers.run(partial(self._named, work, records, self.settings, self._clock.wall_ms()))

    def _named(self, check: Callable[..., T], *arguments: object) -> T:
        """Check a batch. An error about its records names the partition."""
        try:
            return check(*arguments)
        except InvalidRecords as error:
            raise error.of(self.topic, self.number) from None

    async def active_producers(self) -> list[ActiveProducer]:
        """Return the known idempotent producers, once all their stored batches are acknowledged.

        A writer uses the result to skip batches that are already stored, so those must survive a crash.

        Raises KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT when the broker stops, and the errors that prevent every append.
        """
        if self._refusal is not None:
            raise self._refused()
        self.check_readable()
        self.log.write_buffered()
        active = self.replica.producers.active(int(self._clock.monotonic_s() * 1000))
        acknowledgement = self._acknowledge(self.log.end_offset - 1, acks=ACKS_ALL)
        if acknowledgement is not None:
            await acknowledgement
        return active

    async def delete_records(self, before: int) -> Offset:
        """Delete all messages before an offset (-1: all messages) and return the new log start, which is durable.

        Raises OFFSET_OUT_OF_RANGE for an offset after the high watermark, POLICY_VIOLATION if only compaction removes
        messages, KAFKA_STORAGE_ERROR, and the errors of a read.
        """
        self.check_readable()
        wanted = self.high_watermark if before == LATEST else Offset(before)
        _check_deletable(self, wanted)
        replica = self.replica
        if replica.ids is not None and replica.ids.needed_from < wanted:
            # After a crash the ids of deleted messages could not be rebuilt from the log.
            await to_the_end(replica.save_ids())
            if replica.ids is None or replica.ids.needed_from < wanted:
                raise MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot save the message ids of {self.topic}")
        await self.trim(wanted)
        return self.log.start_offset

    async def trim(self, below: Offset) -> None:
        """Move the log start to an offset, durably, whatever the cleanup policy. `delete_records` checks the policy.

        Raises OFFSET_OUT_OF_RANGE for an offset after the log end, KAFKA_STORAGE_ERROR, and the errors of a read.
        """
        self.check_readable()
        await self._store.move_start(self.log, below)
        self.replica.trimmed()

    def cleaning_job(self) -> CleaningJob:
        """Return the part of the log that compaction may clean."""
        return self.replica.cleaning_job(self.high_watermark)

    # Transitions

    def settings_changed(self, settings: TopicSettings) -> None:
        """Apply changed topic settings. The settings of the log belong to the replica (see `Partitions`)."""
        self.settings = settings

    def continues_under(self, placement: Placement) -> bool:
        """True if this leadership can continue under a changed placement that names this broker as the leader.

        A new leader epoch needs a new leadership, unless this one is suspended and waits for one.
        """
        return self.is_suspended or placement.leader_epoch == self.leader_epoch

    def placement_changed(self, placement: Placement) -> None:
        """Store the placement that the catalog has for this partition. `resume` begins a new leader epoch."""
        before = self.placement
        assert placement.partition_epoch > before.partition_epoch, f"{placement} is not newer than {before}"
        assert placement.leader_epoch >= before.leader_epoch, "a leader epoch only increases"
        assert self.continues_under(placement), "a new epoch begins with `resume` or with a new leadership"
        self.placement = placement

    def suspend(self, reason: str) -> None:
        """Refuse writes until the derived state has been rebuilt from the log. `reason` completes "partition x ..."."""
        self.replica.outdated()
        self.is_suspended = True
        self._refusal = MillstreamError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"partition {self.topic}-{self.number} {reason}; it accepts no writes until the log has been read; retry",
        )
        self._heal_soon(self)

    def resume(self, derived: DerivedState) -> None:
        """Accept writes again, under the placement's leader epoch and with the rebuilt state."""
        if self.is_closed:
            return
        self.replica.rebuilt(derived)
        epoch = self.placement.leader_epoch
        self.replica.begin_epoch(epoch)
        acknowledged = self.log.acknowledged_offset
        self._watermark.begin_epoch(epoch, own_flushed=acknowledged, high_watermark=acknowledged)
        self._check()
        self.is_suspended = False
        self._refusal = None

    def resigned(self) -> None:
        """End the leadership: refuse requests, wake the readers and fail the waiting writers.

        The replica has already been released, and may be led again under a newer leader epoch.
        The batches of these writers are in the log, but the next leader may lack them. A later flush of this log would
        not prove that they are stored.
        """
        self._close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        detail = f"partition {self.topic}-{self.number} got another leader or leader epoch after the batch was appended"
        doubt = f"{detail}; the outcome is unknown, the batch may be stored"
        self._watermark.fail(Offset(0), MillstreamError(ErrorCode.NOT_LEADER_OR_FOLLOWER, doubt))

    def stopped(self) -> None:
        """Refuse requests and wake the readers, because the broker stops. Writers wait for the last flush."""
        self._close(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def deleted(self) -> None:
        """Refuse requests and wake the readers, because the topic is deleted. The log fails the waiting writers."""
        self._close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _close(self, code: ErrorCode) -> None:
        self.is_closed = True
        self.is_suspended = False
        self._refusal = MillstreamError(code, f"this broker no longer serves partition {self.topic}-{self.number}")
        self._watermark.wake_readers()

    def apply_retention(self) -> None:
        """Remove expired messages below the high watermark. Raises KAFKA_STORAGE_ERROR.

        This is cheap and runs on the event loop. Messages whose ids are not saved yet stay.
        """
        ids = self.replica.ids
        limit = self.high_watermark if ids is None else min(self.high_watermark, ids.needed_from)
        if apply_retention(self.log, self._clock.wall_ms(), limit=limit):
            self.replica.trimmed()

    def _advance(self) -> None:
        """Advance the watermark. This broker is the only in-sync replica, so both offsets are those of its log."""
        acknowledged = self.log.acknowledged_offset
        self._watermark.advance(own_flushed=acknowledged, high_watermark=acknowledged)
        assert self.log.start_offset <= self._watermark.offset, "readers see the log start"

    # ReplicaRole

    def flushed(self) -> None:
        self._advance()

    def failed(self, offset: Offset, error: BaseException) -> None:
        self._watermark.fail(offset, error)

    def truncated(self) -> None:
        self._watermark.truncated(self.log.end_offset, self.log.health.storage_error("the log was truncated"))
        self._check()
        if not self.is_closed:
            self.suspend("is being read back after a disk error")

    def _check(self) -> None:
        log, high_watermark = self.log, self._watermark.offset
        assert log.start_offset <= high_watermark <= log.end_offset, f"the high watermark is outside of the log: {self}"


def _check_deletable(partition: Leadership, before: int) -> None:
    """Raise POLICY_VIOLATION or OFFSET_OUT_OF_RANGE if the messages before an offset must not be deleted."""
    if partition.settings.compact and not partition.settings.delete:
        raise MillstreamError(
            ErrorCode.POLICY_VIOLATION,
            f"cleanup.policy of {partition.topic} is compact; deleting records by offset requires delete",
        )
    if not 0 <= before <= partition.high_watermark:
        raise MillstreamError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {before} is not between 0 and the high watermark, {partition.high_watermark}",
        )
