"""What clients asked for and what they were told, in the order it happened; the checker judges it.

Every request is two moments, `asked_at` and `told_at`, numbers of one sequence. A request that was never answered, or
whose answer leaves open what happened, is UNKNOWN: the checker then accepts both outcomes, but not half of one.
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
    """Whether its bytes were on stable storage when the answer came; None where nobody looked."""
    abandoned: bool = False
    """The producer gave up and went on under a new identity, so this one may still land behind later writes."""
    detail: str = ""


@dataclass(slots=True, eq=False)
class RecordedRead:
    """One answered fetch: the records from `offset` on, and the partition's ends as told beside them."""

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
    """The broker went away; with the power, or alone so that the page cache stayed."""

    at: int
    power_loss: bool


@dataclass(frozen=True, slots=True)
class FinalLog:
    """What a partition holds when everything is healed and over."""

    start: int
    end: int
    records: tuple[tuple[int, bytes], ...]


@dataclass(slots=True)
class History:
    """All that happened in one run."""

    writes: list[RecordedWrite] = field(default_factory=list)
    reads: list[RecordedRead] = field(default_factory=list)
    crashes: list[RecordedCrash] = field(default_factory=list)
    _now: int = 0

    def tick(self) -> int:
        """The next moment."""
        self._now += 1
        return self._now

    def ask_write(self, producer: str, partition: TopicPartition, values: Sequence[bytes]) -> RecordedWrite:
        write = RecordedWrite(producer, partition, tuple(values), self.tick())
        self.writes.append(write)
        return write

    def stored(self, write: RecordedWrite, base_offset: int, *, durable: bool | None = None) -> None:
        """The write was acknowledged; `base_offset` is -1 where the broker could no longer say where it lies."""
        write.outcome, write.base_offset, write.durable, write.told_at = (
            WriteOutcome.STORED,
            base_offset,
            durable,
            self.tick(),
        )

    def refused(self, write: RecordedWrite, detail: str) -> None:
        """The write was refused in a way that says it is not stored and will not be."""
        write.outcome, write.detail, write.told_at = WriteOutcome.REFUSED, detail, self.tick()

    def abandoned(self, write: RecordedWrite, detail: str) -> None:
        """The producer gave up without knowing."""
        write.abandoned, write.detail, write.told_at = True, detail, self.tick()

    def ask_read(self, reader: str, partition: TopicPartition, offset: int) -> RecordedRead:
        read = RecordedRead(reader, partition, offset, self.tick())
        self.reads.append(read)
        return read

    def answered(self, read: RecordedRead, records: Sequence[tuple[int, bytes]], log_start: int, log_end: int) -> None:
        read.records, read.log_start, read.log_end = tuple(records), log_start, log_end
        read.told_at = self.tick()

    def crashed(self, *, power_loss: bool) -> None:
        self.crashes.append(RecordedCrash(self.tick(), power_loss))
