"""Saves and restores the state that a partition derives from its log: producers, leader epochs and message ids.

The log is the authority: every batch header names its producer, sequence and epoch. A snapshot beside the log shortens
the replay. It names the last batch that it reflects, by offset, epoch and checksum. If the log has exactly this batch
there, it also has everything before it, and the snapshot is valid. After a power loss the batch may be missing or
replaced by another; the snapshot is then not used. So a snapshot may be written at any time, even before the log is
flushed. A crash leaves the last snapshot or the previous one, and later batches, which are replayed.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import LeaderEpoch, Offset
from millstream.model.limits import NO_LEADER_EPOCH, NO_TIMESTAMP
from millstream.partition.epochs import Epochs
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.limits import IdLimits
from millstream.partition.message_ids.replay import replay
from millstream.partition.producers import PER_PARTITION_MAX, WINDOW_MS, ProducerBudget, Producers, StoredBatch
from millstream.partition.runs.budget import RunBudget
from millstream.partition.snapshot_encoding import SnapshotError, seal, unseal
from millstream.records.header import ANY_IDS, BatchHeader
from millstream.storage import snapshot
from millstream.storage.log.log import Log

NAME = "partition"
_KIND = b"PART"
_KIND_WITH_IDS = b"PRID"
_VERSION = 1
_HEAD = struct.Struct(">qiII")
"""Base offset, epoch and checksum of the last batch, then the length of the producers' part. The epochs follow it."""


class ProducerLimits(Struct, frozen=True):
    """The limits on the producers and message ids of one partition. `most` is the number of producers of a kind."""

    window_ms: int = WINDOW_MS
    most: int = PER_PARTITION_MAX
    ids: IdLimits = IdLimits()


class Budgets:
    """The shared limits on the producers and message ids of all partitions of a broker."""

    def __init__(self, limits: ProducerLimits) -> None:
        self.producers = ProducerBudget()
        self.self_named_producers = ProducerBudget()
        self.ids = RunBudget(limits.ids)
        self.id_limits = limits.ids


class LastBatch(NamedTuple):
    """The fields that distinguish a batch from any other batch at the same offset."""

    base_offset: Offset
    leader_epoch: LeaderEpoch
    crc: int

    @classmethod
    def of(cls, batch: "BatchHeader | LastBatch") -> "LastBatch":
        return cls(batch.base_offset, batch.leader_epoch, batch.crc)


NO_BATCH = LastBatch(Offset(-1), NO_LEADER_EPOCH, 0)


class DerivedState(NamedTuple):
    """The state derived from the log up to `offset`. `replayed` is the number of batches that were read for it."""

    producers: Producers
    epochs: Epochs
    offset: Offset
    last: LastBatch
    replayed: int
    ids: IdIndex | None = None
    """The index of message ids. None while no message was stored under an id."""


def nothing(limits: ProducerLimits) -> DerivedState:
    """Return the state of an empty log."""
    return DerivedState(Producers(window_ms=limits.window_ms, most=limits.most), Epochs(), Offset(0), NO_BATCH, 0)


class FrozenState(Struct, frozen=True):
    """A copy of the state at `offset`, to be packed and written."""

    offset: Offset
    pack: Callable[[], bytes]


def freeze(
    producers: Producers, epochs: Epochs, offset: Offset, last: LastBatch, now_ms: int, *, has_ids: bool = False
) -> FrozenState:
    """Copy the state. This is cheap and runs on the event loop; a worker may pack the copy.

    With `has_ids`, the index of message ids must be saved before this snapshot is written. A start reads the ids of the
    batches from the end of that index on, also below `offset`. Without `has_ids`, it reads no ids below `offset`.
    """
    pack_producers = producers.snapshot(now_ms)
    packed_epochs = epochs.snapshot()

    def pack() -> bytes:
        packed = pack_producers()
        return seal(
            _KIND_WITH_IDS if has_ids else _KIND, _VERSION, _HEAD.pack(*last, len(packed)) + packed + packed_epochs
        )

    return FrozenState(offset, pack)


def save(log: Log, frozen: FrozenState) -> None:
    """Write a snapshot. Blocking: for workers. After an OSError the previous snapshot still exists."""
    snapshot.save_state(log, NAME, frozen.offset, frozen.pack())


def load(log: Log, now_ms: int, limits: ProducerLimits) -> DerivedState:
    """Load the snapshot and replay the batches after it. Blocking: for workers.

    A quarantined log returns an empty state. Nothing can be appended to it, so nothing depends on the state.
    """
    try:
        ids = IdIndex.load(log, limits.ids, now_ms)
        restored = _restore(log, now_ms, limits, has_ids=ids is not None)
        if restored is not None and ids is not None and ids.covered < restored.offset:
            # An earlier start was interrupted while it rebuilt the index, so ids before the snapshot may be missing.
            restored = None
        producers, epochs, offset, last, replayed, _ = restored or nothing(limits)._replace(offset=log.start_offset)
        begin = offset if ids is None else max(log.start_offset, Offset(min(offset, ids.covered)))
        for header in log.scan.headers_from(begin):
            if header.attributes & ANY_IDS and header.next_offset > begin:
                ids = IdIndex(log, limits.ids, offset) if ids is None else ids
                replay(ids, log, header, now_ms)
            if header.next_offset > offset:
                apply(header, producers, epochs, now_ms)
                last = LastBatch.of(header)
                replayed += 1
    except MillstreamError as error:
        if error.code is not ErrorCode.PARTITION_QUARANTINED:
            raise
        return nothing(limits)._replace(offset=log.end_offset)
    epochs.trim(log.start_offset)
    return DerivedState(producers, epochs, log.end_offset, last, replayed, ids)


def apply(header: BatchHeader, producers: Producers, epochs: Epochs, now_ms: int) -> None:
    """Apply one stored batch to the producers and epochs."""
    epochs.begin(header.leader_epoch, start_offset=header.base_offset)
    if header.producer_id >= 0 and header.base_sequence >= 0:
        timestamp = header.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
        batch = StoredBatch(
            header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, timestamp
        )
        producers.record(header.producer_id, batch, epoch=header.producer_epoch, now_ms=now_ms)


def _restore(log: Log, now_ms: int, limits: ProducerLimits, *, has_ids: bool) -> DerivedState | None:
    """Return the state of the snapshot, or None if there is no valid snapshot of this log."""
    found = snapshot.load_state(log, NAME)
    # A snapshot that ends before the log start leaves a gap. If a producer has written in the gap, its next batch would
    # look out of order. An unknown producer is accepted; a half-known one is not.
    if found is None or not log.start_offset <= found[0] <= log.end_offset:
        return None
    offset, packed = Offset(found[0]), found[1]
    state = nothing(limits)
    try:
        # If the snapshot expects an index of ids that is missing, it is not used: all ids are read from the log.
        kind = _KIND_WITH_IDS if has_ids and packed.startswith(_KIND_WITH_IDS) else _KIND
        payload = unseal(kind, _VERSION, packed)
        *fields, length = _HEAD.unpack_from(payload)
        last = LastBatch(*fields)
        if not _is_valid(log, offset, last):
            return None
        middle = _HEAD.size + length
        state.producers.restore(payload[_HEAD.size : middle], now_ms)
        state.epochs.restore(payload[middle:])
    except (SnapshotError, struct.error):
        return None
    return state._replace(offset=offset, last=last)


def _is_valid(log: Log, offset: Offset, last: LastBatch) -> bool:
    """True if the log still has the batch that ended at `offset` when the snapshot was taken."""
    if offset == log.start_offset:
        return True  # Retention has removed the batch. It removes only durable batches, so the log had this one.
    header = next(log.scan.headers_from(Offset(offset - 1)), None)
    return header is not None and header.next_offset == offset and LastBatch.of(header) == last
