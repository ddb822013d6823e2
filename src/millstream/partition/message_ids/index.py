"""The ids that one partition knows: the newest in memory, the others in runs on disk.

Invariants. The runs have every id of the log's batches below `covered`, but for those that were forgotten; memory has
every one from there on. Runs are in the order of their offsets. Nothing is known of what lies beyond the log's end.

What is known is bounded: an id is forgotten when its window is over, up to an eighth of the window later, and the
oldest runs of a broker go first when it knows too many. Time is counted while the broker runs, on a clock that never
goes back, so neither a clock that jumps nor a long stop shortens the window.

On disk, `ids.snapshot` beside the log (see `millstream.storage.snapshot`) names the runs that count and, as its offset,
`covered`. A crash leaves the last one or the one before, and perhaps runs that it does not name, which the next start
removes. Ids from `covered` on are made from the log again. Where power loss took back a part of the log that runs
speak of already, a start cuts the runs first, durably: otherwise other messages could take those offsets, and the next
start would believe what the runs say of them.

Lives on the event loop, but for what is said to block, which is for workers.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from millstream.partition.message_ids.keys import Entry, IndexedMessage
from millstream.partition.message_ids.limits import IdBudget, IdLimits
from millstream.partition.message_ids.run import IdRun, is_run_name, run_name
from millstream.partition.message_ids.saving import NAME, RunSave
from millstream.partition.snapshot_encoding import SnapshotError, seal, unseal
from millstream.storage import snapshot
from millstream.storage.cleaning.file_removal import remove_all
from millstream.storage.log.log import Log

_KIND = b"MIDS"
_VERSION = 1
_HEAD = struct.Struct(">QI")
_ROW = struct.Struct(">QQIqqq")
"""Of each run: number, entries, bytes of its filter, end offset, and how long ago its oldest and newest entry came."""

_MERGED = 4
"""So many runs become one: then there are few of them, and an entry is written anew a few times only."""

RUN_ENTRIES_MAX = 1_000_000
_AGES = 8
"""No run holds entries that came further apart than this part of the window: a run is forgotten as a whole."""


class IdIndex:
    """Know and find. `runs` is replaced and never changed, so that a worker can go on with what it was given."""

    def __init__(self, log: Log, limits: IdLimits, covered: int) -> None:
        self.covered = covered
        self.runs: tuple[IdRun, ...] = ()
        self.added = 0
        """How often a run was added from memory: who has looked into the runs before must look again."""
        self._log = log
        self._limits = limits
        self._budget = IdBudget(limits)
        self._recent: dict[bytes, IndexedMessage] = {}
        self._recent_since_ms = 0
        self._saving: dict[bytes, IndexedMessage] = {}
        self._saving_since_ms = 0
        self._is_failing = False
        self._gone: list[IdRun] = []
        """No longer known, and still on disk."""
        self._next_number = 1

    def __len__(self) -> int:
        return len(self._recent) + len(self._saving) + sum(run.count for run in self.runs)

    def __repr__(self) -> str:
        return f"<IdIndex {len(self)} ids, {len(self.runs)} runs up to {self.covered}>"

    # Knowing.

    def add(self, entries: Iterable[Entry], now_ms: int) -> None:
        """These are in the log now."""
        before = len(self._recent)
        if not before:
            self._recent_since_ms = now_ms
        self._recent.update(entries)
        self._budget.known += len(self._recent) - before
        if self._is_failing:
            self._keep_bounded()

    def recent(self, key: bytes) -> IndexedMessage | None:
        """What memory has of a key."""
        return self._recent.get(key) or self._saving.get(key)

    def has_none_recent(self, keys: Sequence[bytes]) -> bool:
        """Whether memory has nothing of any of these keys."""
        return self._recent.keys().isdisjoint(keys) and self._saving.keys().isdisjoint(keys)

    def may_be_stored(self, key: bytes) -> bool:
        """Whether the runs have to be looked into. Does not block."""
        return any(run.filter is None or run.filter.may_have(key) for run in self.runs)

    @property
    def is_full(self) -> bool:
        """Whether memory holds so many that they should be saved at once; if the disk would not take the last, then
        only when somebody looks after it."""
        return not self._is_failing and len(self._recent) >= self._budget.in_memory_max

    def wants_saving(self, now_ms: int) -> bool:
        """Whether something would be gained by saving: memory, disk, or that the log may lose closed segments."""
        segments = self._log.segments
        is_old = bool(self._recent) and now_ms - self._recent_since_ms >= self._limits.window_ms // _AGES
        holds_up = bool(segments) and self.covered < segments[-1].base_offset
        return is_old or holds_up or bool(self._gone) or len(self._recent) >= self._budget.in_memory_max

    def expire(self, now_ms: int) -> None:
        """Forget runs whose window is over."""
        while self.runs and now_ms - self.runs[0].newest_ms >= self._limits.window_ms:
            self.forget_oldest()

    def forget_oldest(self) -> None:
        """Forget the oldest run."""
        self._forget(self.runs[:1], ())

    def _forget(self, runs: tuple[IdRun, ...], instead: tuple[IdRun, ...]) -> None:
        first = self.runs.index(runs[0])
        self.runs = (*self.runs[:first], *instead, *self.runs[first + len(runs) :])
        self._gone += runs
        self._budget.known += sum(run.count for run in instead) - sum(run.count for run in runs)

    def join(self, budget: IdBudget) -> None:
        """Count in `budget` from now on: an index is built in a worker, the budget belongs to the event loop."""
        self._budget = budget
        budget.join(self)

    def leave(self) -> None:
        """Count nowhere any more, and hold no files."""
        self._budget.leave(self)
        self._budget = IdBudget(self._limits)
        for run in self.runs:
            run.forget()

    # Saving. Whoever saves sees to it that nobody else does at the same time.

    def freeze(self, now_ms: int) -> RunSave:
        """What is known now, to be written; `saved` or `failed` must follow. All of the log must have been written."""
        assert not self._saving, "one save at a time"
        self._saving, self._recent = self._recent, {}
        self._saving_since_ms = self._recent_since_ms
        run, end_offset = None, self._log.end_offset
        if self._saving:
            run = self._new_run(len(self._saving), end_offset, self._saving_since_ms, now_ms)
        runs = self.runs if run is None else (*self.runs, run)
        return RunSave(self._log, self._saving, run, end_offset, self._pack(runs, now_ms), tuple(self._gone))

    def name_runs(self, now_ms: int) -> RunSave:
        """The runs that there are, to be named; memory stays as it is. `saved` must follow if it was written."""
        return RunSave(self._log, {}, None, self.covered, self._pack(self.runs, now_ms), tuple(self._gone))

    def _new_run(self, count: int, end_offset: int, oldest_ms: int, newest_ms: int) -> IdRun:
        number = self._next_number
        self._next_number += 1
        return IdRun(
            self._log.path,
            number,
            self._log.files,
            count=count,
            filter_bytes=0,
            end_offset=end_offset,
            oldest_ms=oldest_ms,
            newest_ms=newest_ms,
        )

    def saved(self, saving: RunSave) -> None:
        """It was written."""
        self.covered = saving.covered
        self._is_failing = False
        self._gone = [run for run in self._gone if run not in saving.gone]
        if saving.run is not None:
            self._saving = {}
            self.runs = (*self.runs, saving.run)
            self.added += 1
        self._budget.trim()

    def failed(self, saving: RunSave) -> None:
        """It could not be written: memory keeps it, as much as it may hold."""
        self._is_failing = True
        if saving.run is not None:
            self._gone.append(saving.run)  # The list on disk may name it; the next one does not.
        before = len(self._saving) + len(self._recent)
        if self._saving:
            self._recent = self._saving | self._recent
            self._recent_since_ms = self._saving_since_ms
            self._saving = {}
        self._budget.known += len(self._recent) - before
        self._keep_bounded()

    def _keep_bounded(self) -> None:
        too_many = len(self._recent) - self._budget.unsaved_max
        for key in list(islice(self._recent, max(0, too_many))):
            del self._recent[key]
            self._budget.known -= 1

    def begin_merge(self) -> tuple[tuple[IdRun, ...], IdRun] | None:
        """Runs that should be one, and that one, to be written; None when there are no such."""
        runs = mergeable(self.runs, self._limits.window_ms // _AGES)
        if runs is None:
            return None
        count = sum(run.count for run in runs)
        return runs, self._new_run(count, runs[-1].end_offset, runs[0].oldest_ms, runs[-1].newest_ms)

    def merged(self, runs: tuple[IdRun, ...], run: IdRun) -> None:
        """It was written, and is to be named by the next save."""
        if set(runs) <= set(self.runs):
            self._forget(runs, (run,))
        else:  # Some of them were forgotten meanwhile: their entries must not come back.
            self._gone.append(run)

    def _pack(self, runs: Sequence[IdRun], now_ms: int) -> Callable[[], bytes]:
        number = self._next_number

        def pack() -> bytes:
            rows = b"".join(
                _ROW.pack(
                    run.number,
                    run.count,
                    run.filter_bytes,
                    run.end_offset,
                    now_ms - run.oldest_ms,
                    now_ms - run.newest_ms,
                )
                for run in runs
            )
            return seal(_KIND, _VERSION, _HEAD.pack(number, len(runs)) + rows)

        return pack

    # Starting. Blocking.

    @classmethod
    def load(cls, log: Log, limits: IdLimits, now_ms: int) -> "IdIndex | None":
        """What was saved, cut to the log's end; None when there is nothing that can be used. Raises OSError."""
        disk = log.files.disk
        found = snapshot.load(disk, log.path, NAME)
        if found is None:
            return None
        index = cls(log, limits, found[0])
        try:
            index._unpack(found[1], now_ms)
        except (SnapshotError, struct.error):
            return None
        if index.covered > log.end_offset:
            index._cut(log.end_offset, now_ms)
        named = {run_name(run.number) for run in index.runs}
        names = [name for name in disk.list(log.path) if is_run_name(name) and name not in named]
        remove_all(disk, [f"{log.path}/{name}" for name in names])
        index._budget.known = len(index)
        return index

    def _unpack(self, sealed: bytes, now_ms: int) -> None:
        payload = unseal(_KIND, _VERSION, sealed)
        self._next_number, count = _HEAD.unpack_from(payload)
        rows = payload[_HEAD.size :]
        if len(rows) != count * _ROW.size:
            raise SnapshotError("the list of runs is not as long as it says")
        self.runs = tuple(
            IdRun(
                self._log.path,
                number,
                self._log.files,
                count=entries,
                filter_bytes=size,
                end_offset=end_offset,
                oldest_ms=now_ms - oldest,
                newest_ms=now_ms - newest,
            )
            for number, entries, size, end_offset, oldest, newest in _ROW.iter_unpack(rows)
        )

    def _cut(self, end_offset: int, now_ms: int) -> None:
        """Know nothing from `end_offset` on, durably."""
        for run in self.runs:
            run.end_offset = min(run.end_offset, end_offset)
        self.covered = end_offset
        self._log.save_snapshot(NAME, end_offset, self._pack(self.runs, now_ms)())

    def spill(self, now_ms: int, covered: int) -> None:
        """Save what replaying the log up to `covered` has put into memory. Raises OSError."""
        saving = self.freeze(now_ms)._replace(covered=covered)
        saving.write()
        self.saved(saving)


def mergeable(runs: tuple[IdRun, ...], span_ms: int) -> tuple[IdRun, ...] | None:
    """The newest runs beside one another that are of like size, not too large together, and came not too far apart."""
    for first in range(len(runs) - _MERGED, -1, -1):
        some = runs[first : first + _MERGED]
        count = sum(run.count for run in some)
        is_alike = 2 * max(run.count for run in some) <= count <= RUN_ENTRIES_MAX
        if is_alike and some[-1].newest_ms - some[0].oldest_ms <= span_ms:
            return some
    return None
