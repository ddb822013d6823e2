"""Indexes entries that are derived from a log, the newest in memory and the others in sorted runs on disk.

Invariants:
- the runs have every entry of the log's batches below `covered`, except forgotten ones; memory has every later entry;
- no run ends above `covered`;
- every entry has an offset that the log has.

Limits bound the number of entries. An entry is forgotten after its window, at the latest an eighth of the window later.
If the broker has too many entries, the oldest runs are forgotten first. Time is measured on the monotonic clock while
the broker runs, so neither clock jumps nor a long stop shorten the window.

On disk, `<name>.snapshot` beside the log (see `run_list`) lists the runs and has `covered` as its offset. A crash
leaves the last list or the previous one. It may also leave unlisted runs, which the next start removes.
Entries from `covered` on are read from the log again. If the log is cut below `covered`, by a truncation or a power
loss, the runs are first cut durably. Otherwise other messages could get those offsets, and the next start would use the
outdated entries.

The index belongs to the event loop. Blocking methods are marked as such and are for workers.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from millstream.partition.runs.budget import RunBudget, RunLimits
from millstream.partition.runs.layout import Entry, RunLayout
from millstream.partition.runs.live_range import LiveRange
from millstream.partition.runs.range_scan import RangeScan
from millstream.partition.runs.run import SortedRun
from millstream.partition.runs.run_list import unpack_list
from millstream.partition.runs.run_set import RunSet
from millstream.partition.runs.saving import IndexedLog, RunSave
from millstream.partition.snapshot_encoding import SnapshotError
from millstream.storage import snapshot
from millstream.storage.cleaning.file_removal import remove_all


class RunIndex:
    def __init__(self, layout: RunLayout, log: IndexedLog, limits: RunLimits, covered: int) -> None:
        self.covered = covered
        self.revision = 0
        """Increases when a run is added from memory or runs are cut. Earlier results of workers are then stale."""
        self._layout = layout
        self._log = log
        self._limits = limits
        self._budget = RunBudget(limits)
        self._live = LiveRange()
        self._set = RunSet(layout, log, self._live)
        self._recent: dict[bytes, bytes] = {}
        self._recent_since_ms = 0
        self._saving: dict[bytes, bytes] = {}
        self._saving_since_ms = 0
        self._awaits_save = False
        """True from a failed save, or a truncation of the runs, until a save succeeds."""
        self._is_cut_unsaved = False
        """True while the list on disk has entries that a truncation has dropped. No entry may be added then."""

    def __len__(self) -> int:
        return len(self._recent) + len(self._saving) + len(self._set)

    def __repr__(self) -> str:
        return f"<RunIndex {self._layout.name}: {len(self)} entries, {len(self.runs)} runs up to {self.covered}>"

    @property
    def runs(self) -> tuple[SortedRun, ...]:
        """The runs, oldest first. The tuple never changes."""
        return self._set.runs

    # Adding and finding

    def add(self, entries: Iterable[Entry], now_ms: int) -> None:
        """Add the entries of batches that were written to the log."""
        before = len(self._recent)
        if not before:
            self._recent_since_ms = now_ms
        self._recent.update(entries)
        self._budget.changed(len(self._recent) - before)
        if self._awaits_save:
            assert not self._is_cut_unsaved, "the log accepts no batch until its truncation is durable in the index"
            self._drop_excess()

    def recent(self, key: bytes) -> bytes | None:
        """Return the value that memory has for a unique key."""
        assert self._layout.is_unique
        value = self._recent.get(key) or self._saving.get(key)
        return None if value is None or (self._live.is_bounded and not self._is_live(key + value)) else value

    def has_none_recent(self, keys: Sequence[bytes]) -> bool:
        """True if memory has none of these unique keys."""
        return self._recent.keys().isdisjoint(keys) and self._saving.keys().isdisjoint(keys)

    def may_be_stored(self, key: bytes) -> bool:
        """True if the runs must be searched for a key. Does not block."""
        return any(run.may_have(key) for run in self.runs)

    def range(self, low: bytes, high: bytes) -> RangeScan:
        """Return a scan of the current entries with `low` <= key < `high`, for a worker to read."""
        held = (identity + rest for identity, rest in (self._saving | self._recent).items())
        recent = sorted(entry for entry in held if low <= entry < high and self._is_live(entry))
        return RangeScan(self._layout, recent, self.runs, low, high)

    def _is_live(self, entry: bytes) -> bool:
        live = self._live
        return entry >= live.low_key and self._layout.offset_of(entry) >= live.start_offset

    # Limits

    def join(self, budget: RunBudget) -> None:
        """Count in `budget` from now on. A worker may build an index, but the budget belongs to the event loop."""
        self._budget = budget
        budget.join(self)

    def leave(self) -> None:
        """Stop counting in the budget and close all files."""
        self._budget.leave(self)
        self._budget = RunBudget(self._limits)
        self._set.close()

    @property
    def is_full(self) -> bool:
        """True if memory holds enough entries for an immediate save.

        False while saves fail: the next round of maintenance then tries again.
        """
        return not self._awaits_save and len(self._recent) >= self._budget.in_memory_max

    @property
    def is_overfull(self) -> bool:
        """True if memory should take no more entries, because saves have failed for too long.

        Without a limit `most` no entry is forgotten, so the caller must refuse work that would add entries.
        """
        return len(self._recent) >= self._budget.unsaved_max

    def wants_saving(self, now_ms: int) -> bool:
        """True if a save would free memory or disk."""
        span_ms = self._limits.run_span_ms
        is_old = span_ms is not None and bool(self._recent) and now_ms - self._recent_since_ms >= span_ms
        return is_old or bool(self._set.gone) or len(self._recent) >= self._budget.in_memory_max

    def expire(self, now_ms: int) -> None:
        """Forget the runs whose window has passed."""
        window_ms = self._limits.window_ms
        while window_ms is not None and self.runs and now_ms - self.runs[0].newest_ms >= window_ms:
            self.forget_oldest()

    def forget_oldest(self) -> None:
        """Forget the oldest run."""
        self._budget.changed(self._set.forget_oldest())

    def trim(self, start_offset: int) -> None:
        """Drop the entries below `start_offset`, the new log start. The caller must repeat this after each start."""
        self._live.trimmed(start_offset)
        self._budget.changed(self._set.forget_dead())

    def done_below(self, key: bytes) -> None:
        """Drop the entries with keys below `key`, including entries that are added later.

        After a restart, dropped entries may exist again.
        """
        assert not self._layout.is_hashed, "digests have no order"
        self._live.done_below(key)
        self._budget.changed(self._set.forget_dead())

    def _keep(self, is_kept: Callable[[bytes], bool]) -> None:
        """Drop the entries from memory for which `is_kept` is False."""
        kept = {identity: rest for identity, rest in self._recent.items() if is_kept(identity + rest)}
        self._budget.changed(len(kept) - len(self._recent))
        self._recent = kept

    def _drop_excess(self) -> None:
        """Drop the oldest entries that memory cannot keep while saves fail."""
        if self._limits.most is not None:
            too_many = max(0, len(self._recent) - self._budget.unsaved_max)
            for identity in list(islice(self._recent, too_many)):
                del self._recent[identity]
            self._budget.changed(-too_many)

    # Saving: the caller ensures that only one save, merge or load runs at a time

    def freeze(self, now_ms: int, *, end_offset: int | None = None) -> RunSave:
        """Return a save of the current entries: those of all batches below `end_offset`, by default the log end.

        These batches must be written before. The caller then calls `saved` or `failed`.
        """
        return self._freeze(now_ms, end_offset=self._log.end_offset if end_offset is None else end_offset)

    def _freeze(self, now_ms: int, *, end_offset: int) -> RunSave:
        assert not self._saving, "one save at a time"
        assert end_offset >= self.covered, "the runs cover no more than the log has"
        if self._live.is_bounded:
            self._keep(self._is_live)
        self._saving, self._recent = self._recent, {}
        self._saving_since_ms = self._recent_since_ms
        run = None
        if self._saving:
            run = self._set.new_run(
                len(self._saving), end_offset=end_offset, oldest_ms=self._saving_since_ms, newest_ms=now_ms
            )
        return self._save(run, now_ms, covered=end_offset)

    def name_runs(self, now_ms: int) -> RunSave:
        """Return a save of only the list of runs, without the entries in memory.

        If the save succeeds, the caller calls `saved`.
        """
        return self._save(None, now_ms, covered=self.covered)

    def _save(self, run: SortedRun | None, now_ms: int, *, covered: int) -> RunSave:
        entries = {} if run is None else self._saving
        pack = self._set.list_of(run, now_ms)
        return RunSave(self._log, self._layout.name, entries, run, covered, pack, self._set.gone)

    def saved(self, saving: RunSave) -> None:
        """Apply a save that was written."""
        self.covered = saving.covered
        self._awaits_save = self._is_cut_unsaved = False
        self._set.removed(saving.gone)
        if saving.run is not None:
            assert saving.run.count == len(self._saving)
            assert saving.run.end_offset == saving.covered
            self._saving = {}
            self._set.added(saving.run)
            self.revision += 1
            self._budget.changed(self._set.forget_dead())
        self._budget.trim()

    def failed(self, saving: RunSave) -> None:
        """Handle a failed save: memory keeps its entries, up to its limit."""
        self._awaits_save = True
        if saving.run is not None:
            self._set.discarded(saving.run)  # The list on disk may name this run; the next list does not.
        before = len(self._saving) + len(self._recent)
        if self._saving:
            self._recent = self._saving | self._recent
            self._recent_since_ms = self._saving_since_ms
            self._saving = {}
        self._budget.changed(len(self._recent) - before)
        self._drop_excess()

    def begin_merge(self) -> tuple[tuple[SortedRun, ...], SortedRun] | None:
        """Return runs to merge and the run to write instead, or None if no merge is needed."""
        return self._set.begin_merge(self._limits.run_span_ms)

    def merged(self, runs: tuple[SortedRun, ...], run: SortedRun) -> None:
        """Replace `runs` by `run`, the written result of their merge. The next save lists `run`."""
        self._budget.changed(self._set.merged(runs, run) + self._set.forget_dead())

    # Rebuilding a run that cannot be read

    @property
    def unreadable(self) -> SortedRun | None:
        """The first run that is lost or damaged. Keys that it may have can be neither found nor excluded."""
        return next((run for run in self.runs if run.unreadable is not None), None)

    def start_of(self, run: SortedRun) -> int:
        """Return the offset at which the entries of a run begin."""
        return self._set.start_of(run)

    @property
    def needed_from(self) -> int:
        """The offset from which the log must be kept, so that the entries can be read from it again."""
        run = self.unreadable
        return self.covered if run is None else min(self.covered, self._set.start_of(run))

    def begin_rebuild(self, run: SortedRun, count: int, *, end_offset: int) -> SortedRun:
        """Return a run to write with entries of a run that cannot be read."""
        return self._set.new_run(count, end_offset=end_offset, oldest_ms=run.oldest_ms, newest_ms=run.newest_ms)

    def discarded(self, runs: Iterable[SortedRun]) -> None:
        """Schedule the removal of run files that did not become part of the index."""
        for run in runs:
            self._set.discarded(run)

    def rebuilt(self, run: SortedRun, instead: tuple[SortedRun, ...]) -> None:
        """Replace a run that cannot be read. The next save lists the written runs `instead`."""
        self._budget.changed(self._set.rebuilt(run, instead) + self._set.forget_dead())

    def truncate(self, offset: int, *, now_ms: int) -> RunSave | None:
        """Drop the entries at or above `offset`. The log ends there, or the caller is about to cut it there.

        Returns a save if the runs have such entries, otherwise None. The caller writes this save and then calls
        `saved`. Until then the log must accept no batch at or above `offset`. If the write fails, the caller calls
        `failed`, and later writes the save that `name_runs` returns. When this method is called, no save may be
        running, but a merge may be running.

        A dropped entry may have replaced an older entry of the same unique key. The older entry does not come back.
        """
        assert not self._saving, "no save runs while the log is cut"
        self._keep(lambda entry: self._layout.offset_of(entry) < offset)
        if offset >= self.covered:
            return None
        self._set.cut(offset)
        self.covered = offset
        self.revision += 1
        self._awaits_save = self._is_cut_unsaved = True
        return self.name_runs(now_ms)

    # Starting: blocking

    def restore(self, now_ms: int) -> bool:
        """Load the saved runs and cut them at the log end. False if there are no usable ones. Raises OSError.

        Removes the run files that the list does not name.
        """
        disk, path = self._log.files.disk, self._log.path
        found = snapshot.load(disk, path, self._layout.name)
        if found is None:
            return False
        try:
            next_number, runs = unpack_list(self._layout, found[1], now_ms)
        except (SnapshotError, struct.error):
            return False
        self.covered = found[0]
        self._set.listed(next_number, runs, self.covered)
        self._budget.changed(len(self._set))
        if (cut := self.truncate(self._log.end_offset, now_ms=now_ms)) is not None:
            cut.write()
            self.saved(cut)
        named = {run.path for run in self.runs}
        found_runs = [f"{path}/{name}" for name in disk.list(path) if self._layout.is_run_name(name)]
        remove_all(disk, [each for each in found_runs if each not in named])
        return True

    def spill(self, now_ms: int, *, covered: int) -> None:
        """Write the entries in memory, which cover the log up to `covered`, to a run. Blocking. Raises OSError."""
        saving = self._freeze(now_ms, end_offset=covered)
        saving.write()
        self.saved(saving)
