"""Provides an index of sorted runs on a simulated disk, over a log that is a list of keys."""

from collections.abc import Callable, Sequence

from millstream.partition.runs.budget import RunBudget, RunLimits
from millstream.partition.runs.index import RunIndex
from millstream.partition.runs.layout import OFFSET, Entry, RunLayout
from millstream.partition.runs.merging import merge
from millstream.partition.runs.run import find_newest
from millstream.partition.runs.run_writer import RunWriter
from millstream.partition.runs.saving import RunSave
from millstream.storage.log.open_files import OpenFiles
from millstream.testing.simulated.disk import DiskOperation, PowerLoss, SimulatedDisk

HASHED = RunLayout(name="ids", kind=b"TIDS", key_bytes=16, value_bytes=8, offset_at=16, is_unique=True, is_hashed=True)
DUE_TIMES = RunLayout(
    name="due", kind=b"TDUE", key_bytes=8, value_bytes=8, offset_at=8, is_unique=False, is_hashed=False
)
"""The layout of an index from due time to offset."""

DUE_MAX = 2**63


class Fault:
    """Fails the disk operation of this number, counted from now on, with an error or a power loss."""

    def __init__(self, number: int, error: type[OSError] | type[PowerLoss]) -> None:
        self._left = number
        self._error = error

    def __call__(self, operation: DiskOperation) -> None:
        self._left -= 1
        if self._left == 0:
            raise self._error


def nothing() -> None:
    pass


class RunSite:
    """An index and its log, whose messages have one key each; `log` provides the part of a log that an index needs."""

    def __init__(self, layout: RunLayout, limits: RunLimits | None = None) -> None:
        self.layout = layout
        self.limits = limits or RunLimits()
        self.disk = SimulatedDisk()
        self.disk.make_directory("/log")
        self.path = "/log"
        self.files = OpenFiles(self.disk, 8)
        self.start_offset = 0
        self.keys: list[bytes] = []
        self.budget = RunBudget(self.limits)
        self.index = self._new_index()
        self.index.join(self.budget)

    @property
    def end_offset(self) -> int:
        return len(self.keys)

    def _new_index(self) -> RunIndex:
        return RunIndex(self.layout, self, self.limits, self.start_offset)

    def entry(self, offset: int) -> Entry:
        key, value = self.keys[offset], OFFSET.pack(offset)
        return (key, value) if self.layout.is_unique else (key + value, b"")

    def append(self, *keys: bytes) -> None:
        first = self.end_offset
        self.keys += keys
        self.index.add((self.entry(offset) for offset in range(first, self.end_offset)), 0)

    def save(self) -> None:
        self._write(self.index.freeze(0))

    def _write(self, saving: RunSave) -> None:
        try:
            saving.write()
        except OSError:
            self.index.failed(saving)
            raise
        self.index.saved(saving)

    def merge(self, meanwhile: Callable[[], None] = nothing) -> bool:
        """Merge runs if a merge is due, and call `meanwhile` before the index uses the merged run."""
        work = self.index.begin_merge()
        if work is None:
            return False
        runs, run = work
        writer = RunWriter(self.disk, run.path, self.layout, run.count)
        try:
            for _ in merge(runs, writer):
                pass
            run.written(writer.finish())
            self.disk.flush_directory(self.path)
        except OSError:
            writer.discard()
            raise
        meanwhile()
        self.index.merged(runs, run)
        self._write(self.index.name_runs(0))
        return True

    def truncate(self, offset: int) -> None:
        if (cut := self.index.truncate(offset, now_ms=0)) is not None:
            self._write(cut)
        del self.keys[offset:]

    def restart(self) -> None:
        """Load the index like a start of the broker, and the rest from the log."""
        self.index.leave()
        self.index = self._new_index()
        self.index.restore(0)
        for offset in range(max(self.index.covered, self.start_offset), self.end_offset):
            self.index.add([self.entry(offset)], 0)
            if self.index.is_full:
                self.index.spill(0, covered=offset + 1)
        self.index.join(self.budget)
        self.index.trim(self.start_offset)

    def offset(self, key: bytes) -> int | None:
        """Return the indexed offset of a unique key."""
        found = self.index.recent(key) or find_newest(self.index.runs, [key]).get(key)
        return None if found is None else int(OFFSET.unpack(found)[0])

    def due(self, low: int = 0, high: int = DUE_MAX) -> list[tuple[int, int]]:
        """Return (due time, offset) of the entries due from `low` until before `high`, in order."""
        entries = self.index.range(due(low), due(high)).entries()
        return [(int.from_bytes(entry[:8], "big"), int.from_bytes(entry[8:], "big")) for entry in entries]

    def live(self, low: int = 0) -> Sequence[tuple[int, int]]:
        """Return the expected result of `due`, computed from the log."""
        found = ((int.from_bytes(self.keys[each], "big"), each) for each in range(self.start_offset, self.end_offset))
        return sorted(each for each in found if each[0] >= low)


def due(time_ms: int) -> bytes:
    return time_ms.to_bytes(8, "big")
