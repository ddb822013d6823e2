"""Holds the runs of an index, and the replaced runs whose files must be removed.

Invariants: runs are in the order of their offsets. `runs` is replaced and never changed, so that a worker can continue
with its copy. Each run number is used once.
"""

from collections.abc import Callable, Sequence

from millstream.partition.runs.layout import RunLayout
from millstream.partition.runs.live_range import LiveRange
from millstream.partition.runs.merging import mergeable
from millstream.partition.runs.run import RunFacts, SortedRun
from millstream.partition.runs.run_list import pack_list
from millstream.partition.runs.saving import IndexedLog


class RunSet:
    """The runs of one index. Transitions that change the number of entries return the difference."""

    def __init__(self, layout: RunLayout, log: IndexedLog, live: LiveRange) -> None:
        self.runs: tuple[SortedRun, ...] = ()
        self.gone: tuple[SortedRun, ...] = ()
        """Runs that are no longer part of the index, but whose files still exist."""
        self._layout = layout
        self._log = log
        self._live = live
        self._next_number = 1

    def __len__(self) -> int:
        return sum(run.count for run in self.runs)

    def new_run(self, count: int, *, end_offset: int, oldest_ms: int, newest_ms: int) -> SortedRun:
        """Create a run that is to be written. It is not part of the index yet."""
        facts = RunFacts(self._next_number, count, 0, end_offset, oldest_ms, newest_ms)
        self._next_number += 1
        return self._run(facts)

    def _run(self, facts: RunFacts) -> SortedRun:
        return SortedRun(self._layout, self._log.path, self._log.files, self._live, facts)

    def listed(self, next_number: int, runs: Sequence[RunFacts], covered: int) -> None:
        """Set the runs that a start has read from the list. They cover the log up to `covered`."""
        assert not self.runs, "a list is read once, before the first run is added"
        numbers = {facts.number for facts in runs}
        assert len(numbers) == len(runs), "each run number is used once"
        assert all(number < next_number for number in numbers), "the next number is above all used ones"
        self._next_number = next_number
        self.runs = tuple(map(self._run, runs))
        self.cut(covered)

    def added(self, run: SortedRun) -> None:
        """Add the newest run, which was written and is in the list."""
        assert not self.runs or self.runs[-1].end_offset <= run.end_offset, "runs are in the order of their offsets"
        self.runs = (*self.runs, run)

    def discarded(self, run: SortedRun) -> None:
        """Mark the file of a run for removal. The run is not part of the index, but its file may exist."""
        self.gone = (*self.gone, run)

    def removed(self, runs: Sequence[SortedRun]) -> None:
        """Drop runs whose files were removed and which no list names."""
        self.gone = tuple(run for run in self.gone if run not in runs)

    def forget_oldest(self) -> int:
        return self._replace(self.runs[:1], ())

    def forget_dead(self) -> int:
        """Forget the runs without live entries."""
        return sum(self._replace((run,), ()) for run in self.runs if run.is_dead)

    def cut(self, end_offset: int) -> None:
        """Ignore the entries at or above this offset in all runs."""
        for run in self.runs:
            run.cut(end_offset)

    def begin_merge(self, span_ms: int | None) -> tuple[tuple[SortedRun, ...], SortedRun] | None:
        """Return runs to merge and the run to write instead, or None if no merge is needed."""
        runs = mergeable(self.runs, span_ms)
        if runs is None:
            return None
        count = sum(run.count for run in runs)
        oldest, newest = runs[0], runs[-1]
        return runs, self.new_run(
            count, end_offset=newest.end_offset, oldest_ms=oldest.oldest_ms, newest_ms=newest.newest_ms
        )

    def merged(self, runs: tuple[SortedRun, ...], run: SortedRun) -> int:
        """Replace `runs` by `run`, the written result of their merge.

        The next list of runs names `run`. Return the change in the number of entries.
        """
        if not set(runs) <= set(self.runs):
            self.discarded(run)  # Some runs were forgotten meanwhile, and their entries must not come back.
            return 0
        run.cut(runs[-1].end_offset)  # The log may have been cut during the merge.
        return self._replace(runs, (run,))

    def start_of(self, run: SortedRun) -> int:
        """Return the offset at which the entries of a run begin: the end of the run before it."""
        first = self.runs.index(run)
        return self.runs[first - 1].end_offset if first else 0

    def rebuilt(self, run: SortedRun, instead: tuple[SortedRun, ...]) -> int:
        """Replace a run that cannot be read by runs with the same entries. Return as `merged` does."""
        if run not in self.runs:
            for each in instead:
                self.discarded(each)
            return 0
        for each in instead:
            each.cut(run.end_offset)  # The log may have been cut meanwhile.
        return self._replace((run,), instead)

    def _replace(self, runs: tuple[SortedRun, ...], instead: tuple[SortedRun, ...]) -> int:
        first = self.runs.index(runs[0])
        self.runs = (*self.runs[:first], *instead, *self.runs[first + len(runs) :])
        self.gone = (*self.gone, *runs)
        return sum(run.count for run in instead) - sum(run.count for run in runs)

    def list_of(self, new: SortedRun | None, now_ms: int) -> Callable[[], bytes]:
        """Return a function that packs the list of the current runs and a new run. Call it once that run is written."""
        layout, number = self._layout, self._next_number
        runs = self.runs if new is None else (*self.runs, new)
        return lambda: pack_list(layout, number, runs, now_ms)

    def close(self) -> None:
        """Close the files of all runs."""
        for run in self.runs:
            run.forget()
