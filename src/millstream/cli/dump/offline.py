"""Reads and checks a broker's files without the broker. No other command depends on the storage layout.

It writes nothing and takes no lock, so it may run beside a broker. Damaged data is reported and skipped: reading
continues at the next whole batch. A log that a broker appends to, compacts or deletes meanwhile may look torn for a
moment, so it is examined again before a problem is reported.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from millstream.cli.dump.account import BatchPrinter, DumpAccount, LogProblem, PrintRange, opened
from millstream.cli.dump.lines import DumpPartition
from millstream.cli.dump.names import topic_names
from millstream.cli.dump.read_only_disk import ReadOnlyDisk, ReadOnlyFile
from millstream.cli.failures import HintedError, usage_error
from millstream.cli.suggestions import did_you_mean
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import REQUEST_BYTES_MAX
from millstream.model.names import PartitionKey
from millstream.records.header import HEADER_BYTES, MAGIC, BatchHeader, CorruptBatch, read_header
from millstream.records.record import Record
from millstream.storage import sealed_file
from millstream.storage.cleaning import segment_exchange
from millstream.storage.data_directory import key_of, log_directory_name
from millstream.storage.flush import checkpoint
from millstream.storage.log import sparse_index as index_files
from millstream.storage.log.segment import INDEX_SUFFIX, NO_TIME, SEGMENT_SUFFIX, segment_name
from millstream.storage.log.segment_scan import find_later
from millstream.storage.recovery import directory_identity

LOOKS = 3
SETTLE_S = 0.2
"""A changing log is examined up to LOOKS times, with a pause of SETTLE_S, before its problems are reported."""

_CHUNK_BYTES = 1024 * 1024


class LogFiles(NamedTuple):
    """The segment files of one partition."""

    where: DumpPartition
    segments: tuple[Path, ...]
    is_whole: bool
    """True if these are all segments of the log, so that the log ends with the last one."""

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.segments if path.exists())


class FoundBatch(NamedTuple):
    position: int
    header: BatchHeader
    records: list[Record]


def find_logs(path: Path, topic: str | None, partitions: list[int]) -> list[LogFiles]:
    """Finds the logs at `path`, which is a segment file, a partition's directory or a data directory.

    Returns the logs of `topic` and `partitions`, or all logs if these are not given. Raises UNKNOWN_TOPIC_OR_PARTITION
    if the requested topic or partition is neither in the files nor in the catalog and checkpoint beside them.
    """
    if path.is_file():
        if path.suffix != SEGMENT_SUFFIX or not path.stem.isdecimal():
            raise usage_error(f"{path} is not a segment file: expected an offset and {SEGMENT_SUFFIX} as its name")
        directory = path.absolute().parent
        logs = [LogFiles(_partition_of(directory.name, topic_names(directory.parent)), (path,), is_whole=False)]
        names: dict[str, str] = {}
    elif not path.is_dir():
        raise usage_error(f"{path} is neither a segment file nor a directory")
    elif _segments(path):
        whole = path.absolute()
        logs = [LogFiles(_partition_of(whole.name, topic_names(whole.parent)), _segments(path), is_whole=True)]
        names = {}
    else:
        names = topic_names(path)
        logs = _logs_in(path, names)
    flushed = [_partition_of(log_directory_name(key), names) for key in _flushed(path) or ()]
    _check_exists(path, topic, partitions, [*(log.where for log in logs), *flushed], names.values())
    return sorted(log for log in logs if _is_requested(log.where, topic, partitions))


def _logs_in(path: Path, names: dict[str, str]) -> list[LogFiles]:
    logs = [
        LogFiles(_partition_of(each.name, names), _segments(each), is_whole=True)
        for each in path.iterdir()
        if key_of(each.name) is not None
    ]
    if not logs and key_of(path.name) is None and _flushed(path) == {}:
        raise usage_error(f"{path} is not a data directory: it contains no partitions")
    return logs


def _is_requested(where: DumpPartition, topic: str | None, partitions: Collection[int]) -> bool:
    return topic in (None, where.topic) and (not partitions or where.partition in partitions)


def _check_exists(
    path: Path, topic: str | None, partitions: list[int], there: Sequence[DumpPartition], names: Iterable[str]
) -> None:
    topics = sorted({where.topic for where in there} | set(names))
    if topic is not None and topic not in topics:
        raise _unknown(path, f"topic {topic!r} does not exist in {path}{did_you_mean(topic, topics)}")
    numbers = sorted({where.partition for where in there if topic in (None, where.topic)})
    for number in partitions:
        if number not in numbers:
            of_topic = "" if topic is None else f" of topic {topic!r}"
            known = f"the last is {numbers[-1]}" if numbers else "there is none"
            raise _unknown(path, f"partition {number}{of_topic} does not exist in {path}; {known}")


def _unknown(path: Path, text: str) -> MillstreamError:
    hint = f"`millstream dump --offline {path} --verify` lists its topics and partitions."
    return HintedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text, hint)


def _partition_of(name: str, names: dict[str, str]) -> DumpPartition:
    key: PartitionKey | None = key_of(name)
    if key is None:
        topic, _, number = name.rpartition("-")  # The directory name that other brokers use.
        return DumpPartition(topic, int(number)) if topic and number.isdecimal() else DumpPartition(name, 0)
    return DumpPartition(names.get(str(key.topic_id), str(key.topic_id)), key.partition)


def _segments(directory: Path) -> tuple[Path, ...]:
    return tuple(path for _, path in sorted(_by_offset(directory).items()))


def _by_offset(directory: Path) -> dict[int, Path]:
    """Returns a log's segments by base offset. If a segment exchange is decided, it counts as complete."""
    found = {int(path.stem): path for path in directory.glob(f"*{SEGMENT_SUFFIX}") if path.stem.isdecimal()}
    new = segment_exchange.decided(ReadOnlyDisk(), str(directory))
    if new is not None:
        found = {base: path for base, path in found.items() if not new.base_offset < base < new.next_offset}
        cleaned = Path(segment_exchange.cleaned_path(str(directory), new.base_offset))
        if cleaned.exists():
            found[new.base_offset] = cleaned
    return found


def _base(segment: Path) -> int:
    return int(segment.name.partition(".")[0])


def _ignore_progress(size_bytes: int) -> None:
    """Ignores progress."""


@dataclass(slots=True)
class Examination:
    """One pass over a log's files. It counts every batch of format 2 and passes batches to the printer."""

    log: LogFiles
    printer: BatchPrinter
    wanted: PrintRange
    checks: bool
    """True to check all batches and indexes. If False, batches are decoded only to print their records."""
    advance: Callable[[int], None] = _ignore_progress
    """Called with the size of each file after it is examined."""

    def run(self) -> DumpAccount:
        account = DumpAccount(self.log.where, segments=0)
        due: int | None = None
        for path in self.log.segments:
            base = _base(path)
            if due is not None and base != due:
                kind = "are missing" if base > due else "exist twice"
                span = f"{min(due, base)} to {max(due, base) - 1}"
                account.problems.append(
                    LogProblem(str(path), f"segment begins at offset {base}, expected {due}: offsets {span} {kind}")
                )
            try:
                file = ReadOnlyFile(str(path))
            except FileNotFoundError:
                account.problems.append(LogProblem(str(path), "segment was removed while the log was examined"))
                due = None
                continue
            account.segments = (account.segments or 0) + 1
            due = self._segment(file, path, base, account)
            self.advance(file.size())
            if self.printer.is_done:
                break
        return account

    def _segment(self, file: ReadOnlyFile, path: Path, base: int, account: DumpAccount) -> int | None:
        """Examines one file. Returns the offset that must follow, or None if it is unknown."""
        index = _Index(path, account.problems) if self.checks else None
        due: int | None = base
        for found in _walk(file, base, opens=self.checks or self.printer.wants_records):
            if isinstance(found, LogProblem):
                account.problems.append(found)
                due = None  # The gap is already reported.
                continue
            header = found.header
            if due is not None and header.base_offset != due:
                text = f"offset {header.base_offset}, expected {due}: {_gap(due, found=header.base_offset)}"
                account.problems.append(LogProblem(f"{path}, byte {found.position}", text))
            due = header.next_offset
            account.saw(header)
            if index is not None:
                index.passed(found.position, header)
            self.printer.take(self.log.where, header, found.records, self.wanted)
            if self.printer.is_done:
                return due
        if index is not None:
            index.end(file.size())
        return due


def _gap(due: int, *, found: int) -> str:
    return f"{found - due} offsets are missing" if found > due else "offsets go back"


def examine(
    log: LogFiles,
    printer: BatchPrinter,
    wanted: PrintRange,
    *,
    checks: bool,
    advance: Callable[[int], None] = _ignore_progress,
) -> DumpAccount:
    """Examines a log, and repeats this if problems are found while its files change. Only the first pass prints."""
    before = _state(log)
    account = Examination(log, printer, wanted, checks, advance).run()
    for _ in range(LOOKS - 1):
        if not account.problems:
            break
        time.sleep(SETTLE_S)
        after = _state(log)
        if after == before:
            break
        again = log._replace(segments=_segments(log.segments[0].parent)) if log.is_whole else log
        before = after
        account = Examination(again, BatchPrinter(None, None), wanted, checks).run()
    return account


def _state(log: LogFiles) -> list[tuple[str, int, int, int]]:
    """Returns name, inode, size and modification time of the log's files, so that changes can be detected."""
    directory = log.segments[0].parent if log.segments else None
    if directory is None:
        return []
    rows = []
    for name in sorted(os.listdir(directory)):
        try:
            stat = os.stat(directory / name)
        except FileNotFoundError:
            continue
        rows.append((name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return rows


def _walk(file: ReadOnlyFile, base: int, *, opens: bool) -> Iterator[FoundBatch | LogProblem]:
    """Yields each batch, and a problem for each position where a batch is expected and none is found."""
    position, end, due = 0, file.size(), base
    chunk, chunk_at = b"", 0
    while position < end:
        place = f"{file.path}, byte {position}"
        if end - position < HEADER_BYTES:
            yield LogProblem(place, f"incomplete batch: {end - position} bytes are left{_TORN}")
            return
        if len(chunk) - (position - chunk_at) < HEADER_BYTES:
            chunk, chunk_at = file.read(min(_CHUNK_BYTES, end - position), position=position), position
        header = read_header(chunk, position - chunk_at)
        if not _is_possible(header) or header.size_bytes > end - position:
            later = find_later(file, position=position + 1, end=end, offset=due - 1)
            yield LogProblem(place, _invalid_batch_text(header, position=position, due=due, later=later, end=end))
            position = end if later is None else later
            continue
        if opens and len(chunk) - (position - chunk_at) < header.size_bytes:
            chunk = file.read(max(header.size_bytes, min(_CHUNK_BYTES, end - position)), position=position)
            chunk_at = position
        following: int | None = position + header.size_bytes
        try:
            yield FoundBatch(position, header, opened(chunk, position - chunk_at, header) if opens else [])
        except CorruptBatch as error:
            yield LogProblem(
                place, f"the batch of offsets {header.base_offset} to {header.last_offset}: {error.detail}"
            )
            if not _is_followed(
                file, position=position, end=end, header=header
            ):  # The length in its header may be damaged, too.
                following = find_later(file, position=position + 1, end=end, offset=due - 1)
        due = header.next_offset
        position = end if following is None else following


def _is_possible(header: BatchHeader) -> bool:
    is_sized = HEADER_BYTES <= header.size_bytes <= REQUEST_BYTES_MAX
    return header.magic == MAGIC and is_sized and header.base_offset >= 0 and header.last_offset_delta >= 0


def _is_followed(file: ReadOnlyFile, *, position: int, end: int, header: BatchHeader) -> bool:
    """True if the next batch, or the end of the file, is where this batch's header says that the batch ends."""
    behind = position + header.size_bytes
    data = file.read(HEADER_BYTES, position=behind)
    return behind == end or (len(data) == HEADER_BYTES and read_header(data).base_offset == header.next_offset)


def _invalid_batch_text(header: BatchHeader, *, position: int, due: int, later: int | None, end: int) -> str:
    if later is None and _is_possible(header) and header.base_offset == due:
        return f"incomplete batch: {header.size_bytes} bytes expected, {end - position} are left{_TORN}"
    where = "no valid batch follows" if later is None else f"the next valid batch begins at byte {later}"
    passed = (end if later is None else later) - position
    return f"no valid batch, expected offset {due}; {where}, {passed} bytes skipped"


_TORN = "; the next start of a broker truncates this torn tail, or completes it from the journal"


class _Index:
    """Compares a segment's index file with the segment's batches."""

    def __init__(self, segment: Path, problems: list[LogProblem]) -> None:
        self._path = str(segment.with_suffix(INDEX_SUFFIX))
        self._problems = problems
        self._due: dict[int, tuple[int, int]] = {}
        self._covered = 0
        self._time = NO_TIME
        if not os.path.exists(self._path):
            return
        file = ReadOnlyFile(self._path)
        found = index_files.decode(file.read(file.size(), position=0), _base(segment))
        if found is None:
            self._complain("index is damaged or belongs to another segment")
            return
        entries, self._covered = found
        self._due = {
            position: (offset, before)
            for offset, position, before in zip(entries.offsets, entries.positions, entries.times, strict=True)
        }

    def passed(self, position: int, header: BatchHeader) -> None:
        entry = self._due.pop(position, None)
        if entry is not None:
            if entry[0] != header.base_offset:
                self._complain(
                    f"index has offset {entry[0]} at byte {position}, but the batch has {header.base_offset}"
                )
            if entry[1] != self._time:
                self._complain(f"index has time {entry[1]} before byte {position}, but the batches have {self._time}")
        self._time = max(self._time, header.max_timestamp)

    def end(self, size_bytes: int) -> None:
        for position, (offset, _) in sorted(self._due.items()):
            self._complain(f"index has offset {offset} at byte {position}, but no batch begins there")
        if self._covered > size_bytes:
            self._complain(f"index covers {self._covered} bytes, but the segment has {size_bytes}")

    def _complain(self, text: str) -> None:
        self._problems.append(LogProblem(self._path, text))


def lost_bytes(directory: Path, topic: str | None, partitions: list[int]) -> list[LogProblem]:
    """Finds segments that are missing, or shorter than the flushed size in the data directory's checkpoint."""
    found: list[LogProblem] = []
    for _ in range(LOOKS):
        before, found = found, _shorter_than_flushed(directory, topic, partitions)
        if not found or found == before:
            break
        time.sleep(SETTLE_S)
    return found


def _flushed(directory: Path) -> Mapping[PartitionKey, checkpoint.LogState] | None:
    """Returns the logs in the data directory's checkpoint. Returns None for a damaged checkpoint.

    The result is empty if there is no checkpoint.
    """
    disk, path = ReadOnlyDisk(), str(directory)
    if not disk.exists(f"{path}/{checkpoint.FILE_NAME}"):
        return {}
    own = sealed_file.read(disk, f"{path}/{directory_identity.FILE_NAME}", directory_identity.KIND)
    known = checkpoint.read(disk, path, UUID(bytes=own[:16])) if own else None
    return None if known is None else known.logs


def _shorter_than_flushed(directory: Path, topic: str | None, partitions: list[int]) -> list[LogProblem]:
    disk = ReadOnlyDisk()
    logs = _flushed(directory)
    if logs is None:
        return [
            LogProblem(
                f"{directory}/{checkpoint.FILE_NAME}", "checkpoint is damaged or belongs to another data directory"
            )
        ]
    names = topic_names(directory)
    found = []
    for key, state in logs.items():
        if not _is_requested(_partition_of(log_directory_name(key), names), topic, partitions):
            continue
        log_path = directory / log_directory_name(key)
        new = segment_exchange.decided(disk, str(log_path))
        files = _by_offset(log_path)
        for segment in state.segments if new is None else segment_exchange.merged(state, new):
            file = files.get(segment.base_offset, log_path / segment_name(segment.base_offset))
            size = file.stat().st_size if file.exists() else 0
            if size < segment.size_bytes:
                found.append(LogProblem(str(file), f"{segment.size_bytes} bytes were flushed, but only {size} exist"))
    return found
