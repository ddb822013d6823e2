"""What a writer is told of a batch, and what the partition remembers of it until it is in the log's files."""

from collections.abc import Callable

from msgspec import Struct

from millstream.model.limits import NO_TIMESTAMP
from millstream.records.header import BatchHeader
from millstream.storage.flush.flush_round import FlushRound

ACKS_ALL = -1
ACKS_NONE = 0


class AppendResult(Struct, frozen=True):
    """Where a batch is. `committed` is None when it is durable (or need not be) already; otherwise it is over when it
    is, or with KAFKA_STORAGE_ERROR. `duplicate`: it was there before."""

    base_offset: int
    log_start_offset: int
    committed: FlushRound | None
    duplicate: bool
    log_append_time_ms: int = NO_TIMESTAMP


class UnwrittenBatches:
    """Batches that the log has gathered (see `millstream.storage.log.write_buffer`) and the state does not know yet.

    Invariant: of one producer there is at most one, so that its next is checked against a state that knows the last.
    """

    __slots__ = ("_batches", "_note", "producer_ids")

    def __init__(self, note: Callable[[BatchHeader, int], None]) -> None:
        self.producer_ids: set[int] = set()
        self._batches: list[tuple[BatchHeader, int]] = []
        self._note = note

    def add(self, header: BatchHeader, timestamp: int) -> None:
        self._batches.append((header, timestamp))
        self.producer_ids.add(header.producer_id)

    def written(self) -> None:
        batches = self._batches
        self.lost()
        for header, timestamp in batches:
            self._note(header, timestamp)

    def lost(self) -> None:
        self._batches = []
        self.producer_ids.clear()
