"""Checks a history for violations of the log's guarantees.

The guarantees: an acknowledged message is stored once, unaltered, at the reported offset, in the order of its producer.
Messages that a reader saw stay. An offset is used once. There are no gaps. Neither the start nor the end of a log ever
decreases. Under a weak flush policy, a power loss or a failed flush may remove the tail of a log, even if it was
acknowledged or read. Messages that retention has just removed may reappear after a crash. Nothing else is permitted.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from millstream.model.names import TopicPartition
from millstream.testing.simulation.history import (
    FinalLog,
    History,
    RecordedCrash,
    RecordedRead,
    RecordedWrite,
    WriteOutcome,
)

_SHOWN_BYTES = 48


class ViolationKind(StrEnum):
    """The kinds of violations, with their descriptions."""

    LOST = "acknowledged but not there"
    DOUBLED = "stored more than once"
    REORDERED = "stored in another order than sent"
    ALTERED = "stored or read with content that was never sent there"
    MISPLACED = "stored at another offset than acknowledged"
    VANISHED = "returned to a reader and gone later"
    OFFSET_REUSED = "two messages at one offset at different times"
    GAP = "offsets are missing"
    START_WENT_BACK = "the log's start went back"
    END_WENT_BACK = "the log's end went back"
    NOT_DURABLE = "acknowledged before it was on stable storage"
    REFUSED_BUT_STORED = "refused permanently but stored"


@dataclass(frozen=True, slots=True)
class Violation:
    kind: ViolationKind
    partition: TopicPartition
    detail: str

    def __str__(self) -> str:
        return f"{self.kind.name} in {self.partition}: {self.detail} ({self.kind.value})"


@dataclass(frozen=True, slots=True)
class Promises:
    """The guarantees of the broker's configuration."""

    survives_power_loss: bool = True
    """True for flush policy `always`. Under a weaker one, a power loss may remove a tail."""
    survives_flush_errors: bool = True
    """True for flush policy `always`, or without failed flushes. Otherwise a tail may be lost at any time."""
    keeps_everything: bool = True
    """True without retention: the log start never moves."""


def check(
    history: History, final: Mapping[TopicPartition, FinalLog], promises: Promises | None = None
) -> list[Violation]:
    """Return all violations of a finished run, in an order that depends only on the history."""
    promises = promises or Promises()
    found: list[Violation] = []
    for partition, log in final.items():
        writes = [write for write in history.writes if write.partition == partition]
        reads = [read for read in history.reads if read.partition == partition and read.told_at is not None]
        found.extend(_PartitionCheck(partition, log, writes, reads, history, promises).run())
    return found


@dataclass(slots=True)
class _PartitionCheck:
    partition: TopicPartition
    log: FinalLog
    writes: list[RecordedWrite]
    reads: list[RecordedRead]
    history: History
    promises: Promises
    by_offset: dict[int, bytes] = field(init=False)
    by_value: dict[bytes, list[int]] = field(init=False)
    sent: dict[bytes, RecordedWrite] = field(init=False)

    def __post_init__(self) -> None:
        self.by_offset = dict(self.log.records)
        self.by_value = defaultdict(list)
        for offset, value in self.log.records:
            self.by_value[value].append(offset)
        self.sent = {value: write for write in self.writes for value in write.values}

    def run(self) -> Iterator[Violation]:
        yield from self._check_final_log()
        yield from self._check_acknowledged()
        yield from self._check_refused()
        yield from self._check_order()
        yield from self._check_seen()
        yield from self._check_offsets_given_once()
        yield from self._check_ends()

    def _violation(self, kind: ViolationKind, detail: str) -> Violation:
        return Violation(kind, self.partition, detail)

    def _forgives_losses_since(self, moment: int) -> bool:
        """Return True if the broker may have lost a message without a violation.

        The message was written or read by a request that was sent at `moment`. The flush policy decides which power
        losses and failed flushes may lose messages.
        """
        if not self.promises.survives_flush_errors:
            return True
        if self.promises.survives_power_loss:
            return False
        return any(crash.power_loss and crash.at > moment for crash in self.history.crashes)

    def _was_trimmed(self, offset: int) -> bool:
        return offset < self.log.start and not self.promises.keeps_everything

    # The final log

    def _check_final_log(self) -> Iterator[Violation]:
        expected = self.log.start
        for offset, value in self.log.records:
            if offset != expected:
                yield self._violation(ViolationKind.GAP, f"after offset {expected - 1} comes {offset}")
            expected = offset + 1
            if value not in self.sent:
                yield self._violation(ViolationKind.ALTERED, f"offset {offset} holds {_shown(value)}")
        if expected != self.log.end:
            yield self._violation(
                ViolationKind.GAP, f"the last offset is {expected - 1} but the log ends at {self.log.end}"
            )
        for value, offsets in self.by_value.items():
            if len(offsets) > 1:
                yield self._violation(ViolationKind.DOUBLED, f"{_shown(value)} is at offsets {offsets}")

    # Responses to writers

    def _check_acknowledged(self) -> Iterator[Violation]:
        for write in self.writes:
            if write.outcome is not WriteOutcome.STORED or write.told_at is None:
                continue
            if write.durable is False and self.promises.survives_power_loss:
                yield self._violation(
                    ViolationKind.NOT_DURABLE, f"offset {write.base_offset}, {_shown(write.values[0])}"
                )
            if self._forgives_losses_since(write.asked_at):
                continue
            for offset, value in enumerate(write.values, write.base_offset):
                where = self.by_value.get(value)
                if write.base_offset < 0 and where:
                    continue  # The broker knew that it was stored before, but not the offset.
                if self.by_offset.get(offset) == value or self._was_trimmed(offset):
                    continue
                kind = ViolationKind.MISPLACED if where else ViolationKind.LOST
                yield self._violation(kind, f"{_shown(value)} of offset {offset} is at {where or 'no offset'}")

    def _check_refused(self) -> Iterator[Violation]:
        for write in self.writes:
            if write.outcome is WriteOutcome.REFUSED:
                for value in write.values:
                    if value in self.by_value:
                        where = self.by_value[value]
                        yield self._violation(
                            ViolationKind.REFUSED_BUT_STORED, f"{_shown(value)} ({write.detail}) is at {where}"
                        )

    def _check_order(self) -> Iterator[Violation]:
        last: dict[str, tuple[int, bytes]] = {}
        for write in self.writes:
            if write.abandoned:
                continue
            for value in write.values:
                offset = self.by_value.get(value, [-1])[0]
                if offset < 0:
                    continue
                before = last.get(write.producer)
                if before is not None and offset < before[0]:
                    yield self._violation(
                        ViolationKind.REORDERED,
                        f"{write.producer} sent {_shown(value)} after {_shown(before[1])}, "
                        f"which is at {before[0]}, but it is at {offset}",
                    )
                last[write.producer] = (offset, value)

    # Responses to readers

    def _check_seen(self) -> Iterator[Violation]:
        for read in self.reads:
            assert read.told_at is not None
            expected = read.offset
            if read.records and read.records[0][0] == read.log_start > expected:
                expected = read.log_start  # Retention had removed the requested offset.
            for offset, value in read.records:
                if offset != expected:
                    yield self._violation(
                        ViolationKind.GAP, f"{read.reader} requested {expected} and received {offset}"
                    )
                expected = offset + 1
                if value not in self.sent:
                    yield self._violation(ViolationKind.ALTERED, f"{read.reader} read {_shown(value)} at {offset}")
                elif self.by_offset.get(offset) != value and offset >= self.log.start:
                    if not self._forgives_losses_since(read.asked_at):
                        yield self._violation(ViolationKind.VANISHED, f"{read.reader} read {_shown(value)} at {offset}")
                elif offset < self.log.start and self.promises.keeps_everything:
                    yield self._violation(ViolationKind.VANISHED, f"{read.reader} read {_shown(value)} at {offset}")

    def _check_offsets_given_once(self) -> Iterator[Violation]:
        first: dict[int, tuple[int, bytes]] = {}
        for told_at, asked_at, offset, value in sorted(self._reported()):
            known_at, known = first.setdefault(offset, (asked_at, value))
            if known != value and not self._power_was_lost_between(known_at, later=told_at):
                yield self._violation(
                    ViolationKind.OFFSET_REUSED, f"offset {offset}: {_shown(known)}, later {_shown(value)}"
                )
            first[offset] = (asked_at, value)

    def _reported(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield (told at, asked at, offset, value) of every message in a response."""
        for write in self.writes:
            if write.base_offset >= 0 and write.told_at is not None:
                for offset, value in enumerate(write.values, write.base_offset):
                    yield write.told_at, write.asked_at, offset, value
        for read in self.reads:
            assert read.told_at is not None
            for offset, value in read.records:
                yield read.told_at, read.asked_at, offset, value

    def _power_was_lost_between(self, earlier: int, *, later: int) -> bool:
        if not self.promises.survives_flush_errors:
            return True
        if self.promises.survives_power_loss:
            return False
        return any(crash.power_loss and earlier < crash.at < later for crash in self.history.crashes)

    def _check_ends(self) -> Iterator[Violation]:
        """Compare each response with those received before its request; concurrent ones have no order."""
        start = end = lost_at = crashed_at = 0
        at_asking: dict[RecordedRead, tuple[int, int]] = {}
        for moment, event in sorted(self._moments(), key=lambda item: item[0]):
            if isinstance(event, RecordedCrash):
                # Responses in transit still have the start and end before the crash.
                start, crashed_at = 0, moment
                if event.power_loss and not self.promises.survives_power_loss:
                    end, lost_at = 0, moment
            elif isinstance(event, RecordedWrite):
                end = max(end, event.base_offset + len(event.values) if event.asked_at > lost_at else 0)
            elif event not in at_asking:
                at_asking[event] = (start, end)
            else:
                known_start, known_end = at_asking[event]
                if event.asked_at > crashed_at:
                    if event.log_start < known_start:
                        yield self._violation(ViolationKind.START_WENT_BACK, f"from {known_start} to {event.log_start}")
                    start = max(start, event.log_start)
                if event.asked_at < lost_at:
                    continue
                if event.log_end < known_end and self.promises.survives_flush_errors:
                    yield self._violation(ViolationKind.END_WENT_BACK, f"from {known_end} to {event.log_end}")
                end = max(end, event.log_end)

    def _moments(self) -> Iterator[tuple[int, RecordedWrite | RecordedRead | RecordedCrash]]:
        for write in self.writes:
            if write.base_offset >= 0 and write.told_at is not None:
                yield write.told_at, write
        for read in self.reads:
            assert read.told_at is not None
            yield read.asked_at, read
            yield read.told_at, read
        for crash in self.history.crashes:
            yield crash.at, crash


def _shown(value: bytes) -> str:
    shown = value[:_SHOWN_BYTES].decode(errors="backslashreplace")
    return repr(shown if len(value) <= _SHOWN_BYTES else shown + "…")
