"""Recovers one log after a crash: `plan_log` only reads, and `apply` then performs the planned repairs.

From the end of the checkpoint on, recovery keeps whole batches with a valid checksum and the next offset. Where the
journal has bytes for a position, they replace those of the file: they were acknowledged, while an unflushed part of the
file may contain anything, even older batches. A segment ends where the next one begins. Everything after the last whole
batch is truncated and kept in a `.cut` file.

A log is quarantined, and its files stay untouched, if flushed data is missing or too short, or if the journal has
acknowledged batches after a gap.

Without a readable checkpoint it is unknown what was flushed, and thus what was acknowledged. Then damage is treated as
a torn tail only if there is no evidence of later data: no segment, no whole batch after it, and no snapshot. With such
evidence the log is quarantined. With a checkpoint, the same damage is truncated, because only unacknowledged writes
can be there after a power loss.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct, field

from millstream.model.ids import Offset
from millstream.model.names import NO_TOPIC_ID, PartitionKey
from millstream.records.header import BatchHeader, CorruptBatch, each_batch
from millstream.seams.disk import Disk, DiskFile
from millstream.storage import snapshot
from millstream.storage.cleaning.segment_exchange import CLEANED_SUFFIX, bases_of
from millstream.storage.disk_reserve import is_full
from millstream.storage.flush.checkpoint import UNKNOWN, LogState
from millstream.storage.flush.journal import JournalEntry
from millstream.storage.log.segment import SegmentState, segment_name
from millstream.storage.log.segment_scan import batches_behind, find_later, walk
from millstream.storage.sealed_file import UNFINISHED

CUT_SUFFIX = ".cut"
_COPY_BYTES = 1024 * 1024
_NO_KEY = PartitionKey(NO_TOPIC_ID, 0)


class RecoveredBatch(NamedTuple):
    """A batch that belongs to the log. `patch` has its bytes if they come from the journal."""

    position: int
    header: BatchHeader
    patch: bytes | None


class LogPlan(Struct, kw_only=True):
    """The recovered state of a log, and the changes to its files that produce it."""

    start_offset: Offset = Offset(0)
    end_offset: Offset = Offset(0)
    segments: list[SegmentState] = field(default_factory=list)
    writes: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(segment's base offset, position, bytes) that are in the journal but not in the file."""
    cut: tuple[int, int] | None = None
    """(segment's base offset, position) after which the file contains garbage."""
    set_aside: list[str] = field(default_factory=list)
    """Names of segments after the end of the log."""
    unneeded: list[str] = field(default_factory=list)
    """Names of files that are no longer needed."""
    to_flush: list[tuple[int, int, int]] = field(default_factory=list)
    """(segment's base offset, first position, last position) of recovered bytes that may not be flushed."""
    unflushed: dict[int, SegmentState] = field(default_factory=dict)
    """Flushed states by base offset, of segments that the kernel flushes. Their names may be unflushed too."""
    whole_batches_set_aside: int = 0
    """The number of whole batches behind the end of the log, which are truncated with it."""
    may_lose_acknowledged: bool = False
    """True if the truncation may remove acknowledged data, or if the mark that would show such a loss is lost."""
    quarantined: str | None = None
    may_pass: bool = False
    """True if the log is quarantined because of a disk error, which a retry may not hit."""
    is_trusted: bool = True
    """True if there was a readable checkpoint."""
    is_exchanged: bool = False
    """True if an exchange of segments was completed, which the last checkpoint may not contain."""
    bytes_read: int = 0
    """Bytes after the last checkpoint that were read and verified."""
    bytes_truncated: int = 0
    took_s: float = 0.0
    """The time for reading and repairing the log."""

    @property
    def is_truncated(self) -> bool:
        return self.quarantined is None and (self.cut is not None or bool(self.set_aside))

    def timed(self, took_s: float) -> None:
        """Add the time that a step of the recovery took."""
        self.took_s += took_s

    def check_mark(self, path: str, mark: Offset | None, *, is_complete: bool, is_missing: bool) -> None:
        """Quarantine the log if it ends below its end mark, and note whether it may have lost acknowledged data.

        With `is_complete`, every acknowledgement has a mark, so a truncation above the mark loses nothing. With
        `is_missing`, the log had a mark that is lost.
        """
        if self.quarantined is None and mark is not None and self.end_offset < mark:
            self.quarantined = (
                f"{path}: offsets up to {mark} were acknowledged, but the log is readable only up to {self.end_offset}"
            )
        is_uncertain = self.is_truncated and (mark is None or not is_complete)
        self.may_lose_acknowledged = self.quarantined is None and (is_uncertain or is_missing)


def follow(
    file: DiskFile | None,
    *,
    end: int,
    position: int,
    offset: int,
    patches: Sequence[JournalEntry],
    stop_offset: int | None,
) -> Iterator[RecoveredBatch]:
    """Yield each batch from `position` on that continues the log at `offset`, up to `stop_offset`.

    It ends at the first batch that does not continue the log. `patches` are the journal's entries for this segment, by
    position.
    """
    begins = [patch.position for patch in patches]
    while offset != stop_offset:
        number = bisect_right(begins, position)
        patch = patches[number - 1] if number else None
        if patch is not None and position < patch.position + len(patch.data):
            data = patch.data[position - patch.position :]
            for at, header in _batches(data):
                if header.base_offset != offset or offset == stop_offset:
                    return
                yield RecoveredBatch(position + at, header, data[at : at + header.size_bytes])
                offset = header.next_offset
            position += len(data)
            continue
        until = min(begins[number], end) if number < len(begins) else end
        if file is None or position >= until:
            return
        try:
            for at, header in walk(file, position=position, end=until, next_offset=offset, verify=True):
                yield RecoveredBatch(at, header, None)
                position, offset = at + header.size_bytes, header.next_offset
                if offset == stop_offset:
                    return
        except CorruptBatch:
            return


def _batches(data: bytes) -> list[tuple[int, BatchHeader]]:
    try:
        return list(each_batch(data))
    except CorruptBatch:
        return []


def plan_log(
    disk: Disk,
    path: str,
    known: LogState | None,
    entries: Sequence[JournalEntry],
    now_ms: int,
    *,
    trusted: bool = True,
    flushes: bool = True,
    exchanged: bool = False,
    marked_start: Offset | None = None,
    written: Sequence[SegmentState] = (),
) -> LogPlan:
    """Plan the recovery of one log without changing anything. Raise OSError.

    `marked_start` is the log start in the end marks, None if it is unknown. `written` are the marks of the previous
    process in this boot, see `written_marks`. Without `flushes`, data after the flushed part is left to the kernel as
    before, unless the journal has entries of the log.

    With `trusted`, a log that the checkpoint does not contain was created after it and begins at offset 0. Otherwise
    the log begins with its first segment. That also holds if an earlier start without a checkpoint quarantined the
    log, or if the log is older than the checkpoint that lacks it, because its files were away and are back.
    """
    names = disk.list(path)
    bases = bases_of(names)
    if known is not None and known.end_offset == UNKNOWN:
        known, trusted = None, False
    elif known is None and bases and bases[0] > 0 and _last_snapshot(disk, path, names)[0] >= bases[0]:
        trusted = False
    leftovers = [name for name in names if name.endswith((UNFINISHED, CLEANED_SUFFIX))]
    plan = LogPlan(unneeded=leftovers, is_trusted=trusted, is_exchanged=exchanged)
    known = known or _new_log(Offset(bases[0] if bases and not trusted else 0))
    plan.start_offset = max(known.start_offset, _moved_start(disk, path, names, marked_start))
    plan.end_offset = known.end_offset
    first = known.segments[0].base_offset if known.segments else known.end_offset
    plan.unneeded += [segment_name(base) for base in bases if base < first]
    bases = [base for base in bases if base >= first]
    plan.quarantined = _missing(disk, path, known.segments, bases) or _missing_start(plan, path, bases, marked_start)
    if plan.quarantined is None:
        reached = _reached(disk, path, known, written, bases) if trusted and not entries else known.segments
        _Walk(disk, path, bases, entries, now_ms, plan).run(list(reached), first)
        if not flushes and not entries:
            _leave_to_kernel(plan, known.segments)
    if plan.quarantined is None:
        _measure_truncation(disk, path, plan)
    if plan.quarantined is None and not trusted:
        later = _evidence_of_later_data(disk, path, names, plan)
        if later is not None:
            plan.quarantined = f"{path}: no whole batch at offset {plan.end_offset}, but there is {later}"
    return plan


def _new_log(start: Offset) -> LogState:
    return LogState(_NO_KEY, start, start, ())


def _reached(
    disk: Disk, path: str, known: LogState, written: Sequence[SegmentState], bases: Sequence[int]
) -> Sequence[SegmentState]:
    """The segments up to their written marks, or up to their flushed ends if the files do not match the marks."""
    reached = {state.base_offset: state for state in known.segments}
    for state in written:
        flushed = reached.get(state.base_offset)
        if flushed is None or flushed.next_offset < state.next_offset:
            reached[state.base_offset] = state
    states = sorted(reached.values())
    begins = [state.base_offset for state in states]
    following = next(iter(bases[len(states) :]), None)
    is_run = list(bases[: len(states)]) == begins and all(a.next_offset == b.base_offset for a, b in pairwise(states))
    is_end = not states or following is None or following >= states[-1].next_offset
    return states if is_run and is_end and _missing(disk, path, states, bases) is None else known.segments


def _leave_to_kernel(plan: LogPlan, flushed: Sequence[SegmentState]) -> None:
    known = {state.base_offset: state for state in flushed}
    for state in plan.segments:
        base = state.base_offset
        if base not in known:
            plan.unflushed[base] = SegmentState.empty(base, created_ms=state.created_ms)
        elif known[base].size_bytes < state.size_bytes:
            plan.unflushed[base] = known[base]
    plan.to_flush = []


def _evidence_of_later_data(disk: Disk, path: str, names: Sequence[str], plan: LogPlan) -> str | None:
    """Name a file or batch which proves that the log continued after the end that was found."""
    if plan.set_aside:
        return plan.set_aside[0]
    if plan.cut is not None:
        base, position = plan.cut
        file = disk.open(f"{path}/{segment_name(base)}")
        found = find_later(file, position=position, end=file.size(), offset=plan.end_offset)
        file.close()
        if found is not None:
            return f"a later one at byte {found} of {segment_name(base)}"
    offset, name = _last_snapshot(disk, path, names)
    return f"{name}, which was saved at offset {offset}" if offset > plan.end_offset else None


def _measure_truncation(disk: Disk, path: str, plan: LogPlan) -> None:
    """Count the bytes and whole batches that the truncation removes.

    Some batches may be acknowledged, or left over from earlier data.
    """
    parts = [plan.cut] if plan.cut is not None else []
    parts += [(int(name.partition(".")[0]), 0) for name in plan.set_aside]
    for base, position in parts:
        file = disk.open(f"{path}/{segment_name(base)}")
        size = file.size()
        behind = batches_behind(file, position=position, end=size, offset=plan.end_offset)
        plan.whole_batches_set_aside += sum(1 for _ in behind)
        plan.bytes_truncated += size - position
        file.close()


def _moved_start(disk: Disk, path: str, names: Sequence[str], marked_start: Offset | None) -> Offset:
    """The log start that a deletion of records saved, which the checkpoint may lack; see `snapshot.START`.

    If the snapshot is missing or damaged, the end marks have the start too.
    """
    found = snapshot.load(disk, path, snapshot.START) if snapshot.START + snapshot.SUFFIX in names else None
    return Offset(max(found[0] if found is not None else 0, marked_start or 0))


def _last_snapshot(disk: Disk, path: str, names: Sequence[str]) -> tuple[int, str]:
    """Offset and name of the snapshot with the greatest offset, or (-1, "") if there is none."""
    last = (-1, "")
    for name in names:
        if name.endswith(snapshot.SUFFIX):
            saved = snapshot.load(disk, path, name.removesuffix(snapshot.SUFFIX))
            last = max(last, (saved[0], name)) if saved is not None else last
    return last


def _missing(disk: Disk, path: str, states: Sequence[SegmentState], bases: Sequence[int]) -> str | None:
    present = set(bases)
    for state in states:
        name = segment_name(state.base_offset)
        if state.base_offset not in present:
            if state.size_bytes:
                return f"{path}/{name} is missing; it held offsets {state.base_offset}..{state.next_offset}"
            continue
        file = disk.open(f"{path}/{name}")
        size = file.size()
        file.close()
        if size < state.size_bytes:
            return f"{path}/{name} has {size} bytes; {state.size_bytes} had been flushed"
    return None


def _missing_start(plan: LogPlan, path: str, bases: Sequence[int], marked_start: Offset | None) -> str | None:
    if plan.is_trusted or marked_start is None or not bases or bases[0] <= marked_start:
        return None
    return f"{path}: the log starts at offset {marked_start}, but its first segment begins at {bases[0]}"


class _Walk:
    """Scans a log from the end of the checkpoint to the end of the log."""

    def __init__(
        self, disk: Disk, path: str, bases: list[int], entries: Sequence[JournalEntry], now_ms: int, plan: LogPlan
    ) -> None:
        self._disk = disk
        self._path = path
        self._bases = bases
        self._now_ms = now_ms
        self._plan = plan
        self._patches: dict[int, list[JournalEntry]] = {}
        for entry in entries:
            self._patches.setdefault(entry.segment_base, []).append(entry)
        for patches in self._patches.values():
            patches.sort(key=lambda patch: patch.position)

    def run(self, states: list[SegmentState], first: Offset) -> None:
        plan = self._plan
        state = self._first(states, first)
        while state is not None:
            state = self._segment(state)
            plan.segments.append(state)
            plan.end_offset = state.next_offset
            following = self._following(state)
            is_empty = state.next_offset == state.base_offset
            if is_empty or (following != state.next_offset and not self._begins_in_journal(state.next_offset)):
                break
            state = self._unknown(state.next_offset)
        end = plan.segments[-1].base_offset if plan.segments else -1
        plan.set_aside = [segment_name(base) for base in self._bases if base > end]
        lost = max((p.next_offset for patches in self._patches.values() for p in patches), default=0)
        if lost > plan.end_offset:
            plan.quarantined = (
                f"{self._path}: offsets up to {lost} were acknowledged in the journal, but the log ends at "
                f"{plan.end_offset}"
            )
        if plan.end_offset < plan.start_offset:
            plan.set_aside += [segment_name(s.base_offset) for s in plan.segments if s.base_offset in self._bases]
            plan.segments, plan.writes, plan.to_flush, plan.cut = [], [], [], None
            plan.end_offset = plan.start_offset

    def _first(self, states: list[SegmentState], first: Offset) -> SegmentState | None:
        """The first segment that may not be completely flushed. The segments before it are taken over unchanged."""
        for number, state in enumerate(states):
            is_last = number == len(states) - 1
            if is_last or state.next_offset != states[number + 1].base_offset:
                return state
            self._plan.segments.append(state)
        return self._unknown(first) if first in self._bases or self._begins_in_journal(first) else None

    def _unknown(self, base_offset: Offset) -> SegmentState:
        return SegmentState.empty(base_offset, created_ms=self._now_ms)

    def _following(self, state: SegmentState) -> int | None:
        number = bisect_right(self._bases, state.base_offset)
        return self._bases[number] if number < len(self._bases) else None

    def _begins_in_journal(self, base_offset: int) -> bool:
        return any(patch.position == 0 for patch in self._patches.get(base_offset, ()))

    def _segment(self, state: SegmentState) -> SegmentState:
        """Recover one segment, and add the necessary changes to the plan."""
        plan, base = self._plan, state.base_offset
        file = self._disk.open(f"{self._path}/{segment_name(base)}") if base in self._bases else None
        size = file.size() if file else 0
        offset: int = state.next_offset
        max_offset: int = state.max_timestamp_offset
        position, max_timestamp = state.size_bytes, state.max_timestamp
        following = self._following(state)
        for found in follow(
            file, end=size, position=position, offset=offset, patches=self._patches.get(base, ()), stop_offset=following
        ):
            header = found.header
            if found.patch is not None and (
                file is None or file.read(len(found.patch), position=found.position) != found.patch
            ):
                plan.writes.append((base, found.position, found.patch))
            position, offset = found.position + header.size_bytes, header.next_offset
            if header.max_timestamp > max_timestamp and header.record_count:
                max_timestamp, max_offset = header.max_timestamp, header.last_offset
        plan.bytes_read += position - state.size_bytes
        if position > state.size_bytes or file is None:
            plan.to_flush.append((base, state.size_bytes, position))
        if size > position and offset != following:
            plan.cut = (base, position)
        if file is not None:
            file.close()
        return SegmentState(
            base_offset=base,
            next_offset=Offset(offset),
            size_bytes=position,
            max_timestamp=max_timestamp,
            max_timestamp_offset=Offset(max_offset),
            created_ms=state.created_ms,
        )


def apply(disk: Disk, path: str, plan: LogPlan) -> None:
    """Perform the planned changes and flush them (blocking). It may be repeated after a crash. Raise OSError.

    The names are flushed even without changes, because the ended process may have created or renamed files without
    flushing the directory. If the plan leaves the flush of segments to the kernel, and neither cuts, renames nor
    removes a file, nothing is flushed.
    """
    assert plan.quarantined is None, "the files of a quarantined log stay untouched"
    if plan.unflushed and not (plan.cut or plan.set_aside or plan.unneeded):
        return
    for base, position, data in plan.writes:
        file = disk.open(f"{path}/{segment_name(base)}", create=True)
        file.write(data, position)
        file.close()
    if plan.cut is not None:
        base, position = plan.cut
        _cut(disk, path, base=base, position=position)
    for base, first, last in plan.to_flush:
        _flush_again(disk, f"{path}/{segment_name(base)}", first=first, last=last)
    for name in plan.set_aside:
        disk.rename(f"{path}/{name}", f"{path}/{name}{CUT_SUFFIX}")
    for name in plan.unneeded:
        disk.remove(f"{path}/{name}")
    disk.flush_directory(path)


def _flush_again(disk: Disk, path: str, *, first: int, last: int) -> None:
    """Make recovered bytes durable.

    A flush alone is not enough. If a flush failed before the process ended, the kernel may consider these bytes clean
    although they never reached the disk. Writing them again makes them dirty.
    """
    file = disk.open(path, create=True)
    for position in range(first, last, _COPY_BYTES):
        file.write(file.read(min(_COPY_BYTES, last - position), position=position), position)
    file.flush()
    file.close()


def _cut(disk: Disk, path: str, *, base: int, position: int) -> None:
    """Truncate the segment at `position`. The removed bytes are kept in a separate file if the disk has room."""
    file = disk.open(f"{path}/{segment_name(base)}")
    try:
        _keep(disk, file, f"{path}/{base:020d}-{position}{CUT_SUFFIX}", position)
    except OSError as error:
        if not is_full(error):
            raise
    file.truncate(position)
    file.flush()
    file.close()


def _keep(disk: Disk, file: DiskFile, path: str, position: int) -> None:
    """Copy the bytes after `position` to another file, unless all are zeros."""
    kept: DiskFile | None = None
    for at in range(position, file.size(), _COPY_BYTES):
        data = file.read(_COPY_BYTES, position=at)
        if kept is None and data.strip(b"\0"):
            kept = disk.open(path, create=True)
            kept.truncate(0)
        if kept is not None:
            kept.write(data, at - position)
    if kept is not None:
        kept.flush()
        kept.close()
