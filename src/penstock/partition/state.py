"""What a partition derives from its log, and how it is had again after a restart.

The log is the authority: every batch header names its producer, sequence and epoch. A snapshot beside the log makes the
replay short. One is written only of what is durable, so it never knows more than a recovered log has. What a crash
leaves: the last snapshot or the one before, and batches behind it, which are replayed.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.limits import NO_TIMESTAMP
from penstock.partition.epochs import Epochs
from penstock.partition.producers import PER_PARTITION_MAX, WINDOW_MS, Producers, StoredBatch
from penstock.partition.snapshot import SnapshotError, seal, unseal
from penstock.records.header import BatchHeader
from penstock.storage.log import Log

NAME = "partition"
_KIND = b"PART"
_VERSION = 1
_LENGTH = struct.Struct(">I")


class ProducerLimits(NamedTuple):
    """How long, and how many, producers are known in one partition."""

    window_ms: int = WINDOW_MS
    most: int = PER_PARTITION_MAX


class DerivedState(NamedTuple):
    """Producers and epochs as the log had them up to `offset`; `replayed` batches were read to get there."""

    producers: Producers
    epochs: Epochs
    offset: int
    replayed: int


def nothing(limits: ProducerLimits) -> DerivedState:
    """The state of an empty log."""
    return DerivedState(Producers(window_ms=limits.window_ms, most=limits.most), Epochs(), 0, 0)


class FrozenState(NamedTuple):
    """The state at `offset`, to be packed and written when the log is durable up to there."""

    offset: int
    pack: Callable[[], bytes]


def freeze(producers: Producers, epochs: Epochs, offset: int, now_ms: int) -> FrozenState:
    """Cheap, on the event loop; the packing can happen elsewhere."""
    pack_producers = producers.snapshot(now_ms)
    packed_epochs = epochs.snapshot()

    def pack() -> bytes:
        packed_producers = pack_producers()
        return seal(_KIND, _VERSION, _LENGTH.pack(len(packed_producers)) + packed_producers + packed_epochs)

    return FrozenState(offset, pack)


def save(log: Log, frozen: FrozenState) -> None:
    """Blocking: for workers. Raises OSError; the snapshot before is then still there."""
    log.save_snapshot(NAME, frozen.offset, frozen.pack())


def load(log: Log, now_ms: int, limits: ProducerLimits) -> DerivedState:
    """Snapshot and replay. Blocking: for workers.

    A log that is quarantined gives an empty state: nothing can be appended to it, so nothing depends on the state.
    """
    producers, epochs, _, replayed = nothing(limits)
    offset = _restore(log, producers, epochs, now_ms)
    try:
        for header in log.headers_from(offset):
            if header.next_offset > offset:
                apply(header, producers, epochs, now_ms)
                replayed += 1
    except PenstockError as error:
        if error.code is not ErrorCode.PARTITION_QUARANTINED:
            raise
        return nothing(limits)._replace(offset=log.end_offset)
    epochs.trim(log.start_offset)
    return DerivedState(producers, epochs, log.end_offset, replayed)


def apply(header: BatchHeader, producers: Producers, epochs: Epochs, now_ms: int) -> None:
    """What one stored batch changes."""
    epochs.begin(header.leader_epoch, header.base_offset)
    if header.producer_id >= 0 and header.base_sequence >= 0:
        timestamp = header.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
        batch = StoredBatch(
            header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, timestamp
        )
        producers.record(header.producer_id, header.producer_epoch, batch, now_ms)


def _restore(log: Log, producers: Producers, epochs: Epochs, now_ms: int) -> int:
    """Take over the snapshot, if there is one that fits; from where on the log must be replayed."""
    found = log.load_snapshot(NAME)
    # One that ends before the log starts would leave a hole: a producer could have written in it, and its next batch
    # would look like one too many. Knowing nothing of it is right, knowing half is not.
    if found is None or not log.start_offset <= found[0] <= log.end_offset:
        return log.start_offset
    offset, packed = found
    try:
        payload = unseal(_KIND, _VERSION, packed)
        (length,) = _LENGTH.unpack_from(payload)
        middle = _LENGTH.size + length
        producers.restore(payload[_LENGTH.size : middle], now_ms)
        epochs.restore(payload[middle:])
    except (SnapshotError, struct.error):
        producers.clear()
        return log.start_offset
    return offset
