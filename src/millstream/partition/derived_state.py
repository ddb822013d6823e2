"""What a partition derives from its log, and how it is had again after a restart.

The log is the authority: every batch header names its producer, sequence and epoch. A snapshot beside the log makes the
replay short. It names the last batch it reflects, by place, epoch and checksum: if the log has just that batch there,
it has everything before it too, and the snapshot is true; if power was lost and other batches took its place, or none
did, the snapshot is not used. So it may be written at any time, whatever of the log is durable by then. What a crash
leaves: the last snapshot or the one before, and batches behind it, which are replayed.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import NO_LEADER_EPOCH, NO_TIMESTAMP
from millstream.partition.epochs import Epochs
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.limits import IdBudget, IdLimits
from millstream.partition.message_ids.replay import replay
from millstream.partition.producers import PER_PARTITION_MAX, WINDOW_MS, ProducerBudget, Producers, StoredBatch
from millstream.partition.snapshot_encoding import SnapshotError, seal, unseal
from millstream.records.header import ANY_IDS, BatchHeader
from millstream.storage.log.log import Log

NAME = "partition"
_KIND = b"PART"
_KIND_WITH_IDS = b"PRID"
_VERSION = 1
_HEAD = struct.Struct(">qiII")
"""Base offset, epoch and checksum of the last batch, then the length of the producers' part; the epochs' follows."""


class ProducerLimits(NamedTuple):
    """How long, and how many, producers are known in one partition; and what is known of message ids."""

    window_ms: int = WINDOW_MS
    most: int = PER_PARTITION_MAX
    ids: IdLimits = IdLimits()


class Budgets:
    """What all partitions of a broker may know together."""

    def __init__(self, limits: ProducerLimits) -> None:
        self.producers = ProducerBudget()
        self.self_named_producers = ProducerBudget()
        self.ids = IdBudget(limits.ids)
        self.id_limits = limits.ids


class LastBatch(NamedTuple):
    """What tells a batch from any other that could be in its place."""

    base_offset: int
    leader_epoch: int
    crc: int

    @classmethod
    def of(cls, batch: "BatchHeader | LastBatch") -> "LastBatch":
        return cls(batch.base_offset, batch.leader_epoch, batch.crc)


NO_BATCH = LastBatch(-1, NO_LEADER_EPOCH, 0)


class DerivedState(NamedTuple):
    """Producers and epochs as the log had them up to `offset`; `replayed` batches were read to get there."""

    producers: Producers
    epochs: Epochs
    offset: int
    last: LastBatch
    replayed: int
    ids: IdIndex | None = None
    """None as long as no message was stored under an id."""


def nothing(limits: ProducerLimits) -> DerivedState:
    """The state of an empty log."""
    return DerivedState(Producers(window_ms=limits.window_ms, most=limits.most), Epochs(), 0, NO_BATCH, 0)


class FrozenState(NamedTuple):
    """The state at `offset`, to be packed and written."""

    offset: int
    pack: Callable[[], bytes]


def freeze(
    producers: Producers, epochs: Epochs, offset: int, last: LastBatch, now_ms: int, *, has_ids: bool = False
) -> FrozenState:
    """Cheap, on the event loop; the packing can happen elsewhere.

    With `has_ids`, the index of message ids must have been saved up to `offset` before this is: a start does not look
    for ids in what lies before it, unless that index is not there any more.
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
    """Blocking: for workers. Raises OSError; the snapshot before is then still there."""
    log.save_snapshot(NAME, frozen.offset, frozen.pack())


def load(log: Log, now_ms: int, limits: ProducerLimits) -> DerivedState:
    """Snapshot and replay. Blocking: for workers.

    A log that is quarantined gives an empty state: nothing can be appended to it, so nothing depends on the state.
    """
    try:
        ids = IdIndex.load(log, limits.ids, now_ms)
        restored = _restore(log, now_ms, limits, has_ids=ids is not None)
        producers, epochs, offset, last, replayed, _ = restored or nothing(limits)._replace(offset=log.start_offset)
        for header in log.headers_from(offset):
            if header.next_offset > offset:
                apply(header, producers, epochs, now_ms)
                if header.attributes & ANY_IDS:
                    ids = IdIndex(log, limits.ids, offset) if ids is None else ids
                    replay(ids, log, header, now_ms)
                last = LastBatch.of(header)
                replayed += 1
    except MillstreamError as error:
        if error.code is not ErrorCode.PARTITION_QUARANTINED:
            raise
        return nothing(limits)._replace(offset=log.end_offset)
    epochs.trim(log.start_offset)
    return DerivedState(producers, epochs, log.end_offset, last, replayed, ids)


def apply(header: BatchHeader, producers: Producers, epochs: Epochs, now_ms: int) -> None:
    """What one stored batch changes."""
    epochs.begin(header.leader_epoch, header.base_offset)
    if header.producer_id >= 0 and header.base_sequence >= 0:
        timestamp = header.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
        batch = StoredBatch(
            header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, timestamp
        )
        producers.record(header.producer_id, header.producer_epoch, batch, now_ms)


def _restore(log: Log, now_ms: int, limits: ProducerLimits, *, has_ids: bool) -> DerivedState | None:
    """What the snapshot says, if there is one that is whole and true of this log."""
    found = log.load_snapshot(NAME)
    # One that ends before the log starts would leave a hole: a producer could have written in it, and its next batch
    # would look like one too many. Knowing nothing of it is right, knowing half is not.
    if found is None or not log.start_offset <= found[0] <= log.end_offset:
        return None
    offset, packed = found
    state = nothing(limits)
    try:
        # Without the index that it speaks of, all ids that the log still has are read from it.
        kind = _KIND_WITH_IDS if has_ids and packed.startswith(_KIND_WITH_IDS) else _KIND
        payload = unseal(kind, _VERSION, packed)
        *fields, length = _HEAD.unpack_from(payload)
        last = LastBatch(*fields)
        if not _is_true(log, offset, last):
            return None
        middle = _HEAD.size + length
        state.producers.restore(payload[_HEAD.size : middle], now_ms)
        state.epochs.restore(payload[middle:])
    except (SnapshotError, struct.error):
        return None
    return state._replace(offset=offset, last=last)


def _is_true(log: Log, offset: int, last: LastBatch) -> bool:
    """Whether the log still has the batch that ended at `offset` when the snapshot was taken."""
    if offset == log.start_offset:
        return True  # Retention took all that it speaks of, which it does only with what was really there.
    header = next(log.headers_from(offset - 1), None)
    return header is not None and header.next_offset == offset and LastBatch.of(header) == last
