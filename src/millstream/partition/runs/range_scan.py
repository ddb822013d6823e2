"""Reads the entries of an index between two keys, in key order, from memory and from the runs."""

from collections.abc import Iterator, Sequence
from heapq import merge
from operator import itemgetter

from msgspec import Struct

from millstream.partition.runs.layout import RunLayout
from millstream.partition.runs.run import SortedRun


class RangeScan(Struct, frozen=True):
    """The entries with `low` <= key < `high`. Entries that the log loses during the scan are left out."""

    layout: RunLayout
    recent: Sequence[bytes]
    """The entries in memory, in order."""
    runs: Sequence[SortedRun]
    low: bytes
    high: bytes

    def entries(self) -> Iterator[bytes]:
        """Yield the entries in order, the newest of each identity. Blocks are read only as they are needed.

        Blocking: for workers. Raises OSError and KAFKA_STORAGE_ERROR. After a FileNotFoundError, try a new scan: a
        merge may have replaced a run.
        """
        newest_first = [iter(self.recent), *(run.scan(self.low, self.high) for run in reversed(self.runs))]
        identity_of = itemgetter(slice(self.layout.identity_bytes))
        last = b""
        for entry in merge(*newest_first, key=identity_of):
            identity = identity_of(entry)
            if identity != last:
                last = identity
                yield entry
