"""Records the requests of clients and their responses, in order, for the checker.

Every request has two moments, `asked_at` and `told_at`: sequence numbers of the request and of its response. A request
is UNKNOWN if it has no response, or if the response leaves the outcome open. For such a request the checker accepts
success and failure, but not a partial result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from millstream.model.names import TopicPartition


class WriteOutcome(StrEnum):
    UNKNOWN = "unknown"
    STORED = "stored"
    REFUSED = "refused"


@dataclass(slots=True, eq=False)
class RecordedWrite:
    """One produced batch. Values are unique in the whole run, so that each copy can be traced to its write."""

    producer: str
    partition: TopicPartition
    values: tuple[bytes, ...]
    asked_at: int
    told_at: int | None = None
    outcome: WriteOutcome = WriteOutcome.UNKNOWN
    base_offset: int = -1
    durable: bool | None = None
    """True if its bytes were on stable storage at the time of the response; None if that was not checked."""
    abandoned: bool = False
    """The producer gave up and continued under a new identity, so this write may still be stored after later ones."""
    detail: str = ""


@dataclass(slots=True, eq=False)
class RecordedRead:
    """One answered fetch: the records from `offset` on, and the start and end of the log in the same response."""

    reader: str
    partition: TopicPartition
    offset: int
    asked_at: int
    told_at: int | None = None
    records: tuple[tuple[int, bytes], ...] = ()
    log_start: int = -1
    log_end: int = -1


@dataclass(frozen=True, slots=True)
class RecordedCrash:
    """The broker's process ended, with a power loss, or alone so that the page cache survived."""

    at: int
    power_loss: bool


@dataclass(frozen=True, slots=True)
class FinalLog:
    """The content of a partition after all faults have ended."""

    start: int
    end: int
    records: tuple[tuple[int, bytes], ...]


@dataclass(slots=True)
class History:
    """Everything that happened in one run."""

    writes: list[RecordedWrite] = field(default_factory=list)
    reads: list[RecordedRead] = field(default_factory=list)
    crashes: list[RecordedCrash] = field(default_factory=list)
    _now: int = 0

    def tick(self) -> int:
        """Advance the logical clock by one, and return it."""
        self._now += 1
        return self._now

    def ask_write(self, producer: str, partition: TopicPartition, values: Sequence[bytes]) -> RecordedWrite:
        write = RecordedWrite(producer, partition, tuple(values), self.tick())
        self.writes.append(write)
        return write

    def stored(self, write: RecordedWrite, base_offset: int, *, durable: bool | None = None) -> None:
        """The write was acknowledged. `base_offset` is -1 if the broker no longer knew the offset."""
        write.outcome, write.base_offset, write.durable, write.told_at = (
            WriteOutcome.STORED,
            base_offset,
            durable,
            self.tick(),
        )

    def refused(self, write: RecordedWrite, detail: str) -> None:
        """The write was refused with an error that means that it is not stored and never will be."""
        write.outcome, write.detail, write.told_at = WriteOutcome.REFUSED, detail, self.tick()

    def abandoned(self, write: RecordedWrite, detail: str) -> None:
        """The producer gave up with an unknown outcome."""
        write.abandoned, write.detail, write.told_at = True, detail, self.tick()

    def ask_read(self, reader: str, partition: TopicPartition, offset: int) -> RecordedRead:
        read = RecordedRead(reader, partition, offset, self.tick())
        self.reads.append(read)
        return read

    def answered(
        self, read: RecordedRead, records: Sequence[tuple[int, bytes]], log_start: int, *, log_end: int
    ) -> None:
        read.records, read.log_start, read.log_end = tuple(records), log_start, log_end
        read.told_at = self.tick()

    def crashed(self, *, power_loss: bool) -> None:
        self.crashes.append(RecordedCrash(self.tick(), power_loss))
