"""Prints the requested part of a log, counts all of its batches, and collects problems."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millstream.cli.dump.lines import DumpFormat, DumpPartition
from millstream.cli.output import counted, print_bytes, print_note, shown_size
from millstream.records.batch import decode_batch
from millstream.records.header import BatchHeader, Bytes, check
from millstream.records.record import Record


class LogProblem(NamedTuple):
    """A problem in a log, with its location."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class PrintRange(NamedTuple):
    """The offsets to print: from `start` up to, but not including, `end`."""

    start: int
    end: int


@dataclass(slots=True)
class DumpAccount:
    """Counts and problems of one partition, as far as it was read."""

    where: DumpPartition
    segments: int | None = None
    """Number of segments, or None if the log was read from a broker."""
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    first_offset: int | None = None
    next_offset: int | None = None
    problems: list[LogProblem] = field(default_factory=list)

    def saw(self, header: BatchHeader) -> None:
        self.batches += 1
        self.records += header.record_count
        self.size_bytes += header.size_bytes
        if self.first_offset is None:
            self.first_offset = header.base_offset
        self.next_offset = header.next_offset

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.where.topic,
            "partition": self.where.partition,
            **({} if self.segments is None else {"segments": self.segments}),
            "batches": self.batches,
            "messages": self.records,
            "bytes": self.size_bytes,
            "first_offset": self.first_offset,
            "next_offset": self.next_offset,
            "problems": [problem._asdict() for problem in self.problems],
        }

    def line(self) -> str:
        span = "no messages"
        if self.first_offset is not None and self.next_offset is not None:
            span = f"offsets {self.first_offset} to {self.next_offset - 1}"
        parts = [span, counted(self.batches, "batch", "batches"), counted(self.records, "record")]
        parts.append(shown_size(self.size_bytes))
        if self.segments is not None:
            parts.append(counted(self.segments, "segment"))
        verdict = counted(len(self.problems), "problem") if self.problems else "no problems"
        return f"{self.where.topic}-{self.where.partition}: {', '.join(parts)}: {verdict}"


class BatchPrinter:
    """Prints batches, or their records, until the requested number of lines is printed."""

    def __init__(self, format_: DumpFormat | None, count: int | None) -> None:
        self._format = format_
        self._left = count

    @property
    def is_done(self) -> bool:
        return self._left is not None and self._left <= 0

    @property
    def prints(self) -> bool:
        return self._format is not None

    @property
    def wants_records(self) -> bool:
        return self._format is not None and self._format.record is not None

    def take(self, where: DumpPartition, header: BatchHeader, records: Sequence[Record], wanted: PrintRange) -> None:
        if self._format is None:
            return
        if self._format.record is None:
            inside = header.next_offset > wanted.start and header.base_offset < wanted.end
            self._print([self._format.batch(where, header)] if inside else [])
            return
        chosen = [record for record in records if wanted.start <= record.offset < wanted.end]
        line = self._format.record
        self._print([line(where, header, record) for record in chosen[: self._left]])

    def _print(self, lines: list[str]) -> None:
        if self._left is not None:
            self._left -= len(lines)
        if lines:
            print_bytes("".join(lines).encode(errors="surrogateescape"))


def opened(buffer: Bytes, position: int, header: BatchHeader) -> list[Record]:
    """Returns the batch's records after verifying its checksum. Raises CorruptBatch if the batch is damaged."""
    check(buffer, position, header)
    return decode_batch(buffer, position, verify=False)


def tell(problems: Iterable[LogProblem]) -> None:
    """Prints each problem on its own line on standard error."""
    for problem in problems:
        print_note(f"millstream: {problem}")
