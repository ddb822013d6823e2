"""Reads one sorted run: a file of entries in key order that never changes (see `run_writer` for its format).

Invariant: entries at or above `end_offset` are ignored, because the log was cut there. `end_offset` only decreases.
Entries outside the live range of the index are ignored as well.

A damaged block raises KAFKA_STORAGE_ERROR. If it were skipped, a known key could be reported as absent, and its message
could be stored a second time. The run is marked as `unreadable`, and the owner of the index rebuilds it.
"""

import errno
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.runs.bloom_filter import BloomFilter
from millstream.partition.runs.layout import BLOCK_ENTRIES, OFFSET, RunLayout
from millstream.partition.runs.live_range import LiveRange
from millstream.records.checksum import crc32c
from millstream.seams.disk import DiskFile
from millstream.storage.log.open_files import OpenFiles

CHECKSUM = struct.Struct(">I")
_LOST = (errno.ENOENT, errno.EIO)
"""Errors that mean that the content of a file is lost. Others, such as a lack of descriptors, pass."""

_GUESSES = 4
"""Number of guessed positions before the search bisects, since deliberately chosen keys may be unevenly distributed."""


class RunFacts(NamedTuple):
    """The facts about a run that the list of runs stores. Times are of the monotonic clock."""

    number: int
    entries: int
    filter_bytes: int
    end_offset: int
    oldest_ms: int
    newest_ms: int
    first_key: bytes = b""
    last_key: bytes = b""


class RunContent(NamedTuple):
    """The facts about a run's file that are known once it is written."""

    entries: int
    keys: BloomFilter | None
    first_key: bytes
    last_key: bytes


class SortedRun:
    """One run. `oldest_ms` and `newest_ms` are the times at which its entries were added, by the monotonic clock."""

    def __init__(
        self,
        layout: RunLayout,
        directory: str,
        files: OpenFiles,
        live: LiveRange,
        facts: RunFacts,
    ) -> None:
        self.layout = layout
        self.path = f"{directory}/{layout.run_name(facts.number)}"
        self.unreadable: str | None = None
        """The reason why a part of the file cannot be read. It remains until the run is replaced."""
        self.file: DiskFile | None = None
        self.used = False
        self.number, self.count, self.filter_bytes, self.end_offset, *_ = facts
        self.oldest_ms, self.newest_ms = facts.oldest_ms, facts.newest_ms
        self.first_key, self.last_key = facts.first_key, facts.last_key
        self.filter: BloomFilter | None = None
        """Read when it is first needed, so that a start reads no filters."""
        self.blocks = -(-self.count // BLOCK_ENTRIES)
        self._entry_bytes = layout.entry_bytes
        self._live = live
        self._files = files

    @property
    def facts(self) -> RunFacts:
        return RunFacts(
            self.number,
            self.count,
            self.filter_bytes,
            self.end_offset,
            self.oldest_ms,
            self.newest_ms,
            self.first_key,
            self.last_key,
        )

    def written(self, content: RunContent) -> None:
        """Set the content of the file, which was written."""
        self.count, self.filter, self.first_key, self.last_key = content
        self.blocks = -(-self.count // BLOCK_ENTRIES)
        self.filter_bytes = 0 if self.filter is None else len(self.filter.data)

    def cut(self, end_offset: int) -> None:
        """Ignore the entries at or above this offset, because the log was cut there."""
        self.end_offset = min(self.end_offset, end_offset)

    @property
    def is_dead(self) -> bool:
        """True if no entry is live any more."""
        live = self._live
        if not self.count:
            return True
        return self.end_offset <= live.start_offset or (not self.layout.is_hashed and self.last_key < live.low_key)

    def let_go(self) -> None:
        self.file = None

    def forget(self) -> None:
        """Close the file, which is about to be removed."""
        self._files.forget(self)
        self.filter = None

    def may_have(self, key: bytes) -> bool:
        """False when the filter, if it has been read, excludes the key. Does not block."""
        return self.filter is None or self.filter.may_have(key)

    def find(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None. Blocking. Raises OSError and KAFKA_STORAGE_ERROR."""
        assert self.layout.is_hashed, "only runs with a filter are searched for one key"
        if not self._filter().may_have(key):
            return None
        key_bytes, entry_bytes = self.layout.key_bytes, self._entry_bytes
        low, high = 0, self.blocks
        floor, ceiling, reads = 0, 1 << (key_bytes * 8), 0
        wanted = int.from_bytes(key, "big")
        while low < high:
            # Keys are evenly distributed, so their position can be guessed: two or three reads find it.
            at = low + (wanted - floor) * (high - low) // (ceiling - floor) if reads < _GUESSES else (low + high) // 2
            reads += 1
            block = self.block(at)
            first, last = block[:key_bytes], block[-entry_bytes : key_bytes - entry_bytes]
            if key < first:
                high, ceiling = at, int.from_bytes(first, "big")
            elif key > last:
                low, floor = at + 1, int.from_bytes(last, "big")
            else:
                return self._within(block, key)
        return None

    def _within(self, block: bytes, key: bytes) -> bytes | None:
        layout, entry_bytes = self.layout, self._entry_bytes
        at = block.find(key)
        while at >= 0 and at % entry_bytes:
            at = block.find(key, at + 1)
        if at < 0:
            return None
        offset = OFFSET.unpack_from(block, at + layout.offset_at)[0]
        is_live = self._live.start_offset <= offset < self.end_offset
        return block[at + layout.key_bytes : at + entry_bytes] if is_live else None

    def scan(self, low: bytes, high: bytes) -> Iterator[bytes]:
        """Yield the entries with `low` <= key < `high` in order. Blocking. Raises OSError and KAFKA_STORAGE_ERROR."""
        assert not self.layout.is_hashed, "digests have no order"
        if self.last_key < low or self.first_key >= high:
            return
        entry_bytes = self._entry_bytes
        first = bisect_left(range(self.blocks), low, key=lambda number: self.block(number)[-entry_bytes:])
        for number in range(first, self.blocks):
            block = self.block(number)
            for entry in self.live_entries(block):
                if low <= entry < high:
                    yield entry
            if block[-entry_bytes:] >= high:
                return

    def live_entries(self, block: bytes) -> list[bytes]:
        """Return the live entries of a block."""
        offset_at, unpack = self.layout.offset_at, OFFSET.unpack_from
        start, end, low_key = self._live.start_offset, self.end_offset, self._live.low_key
        entries = [each for each in self.layout.split(block) if start <= unpack(each, offset_at)[0] < end]
        return [entry for entry in entries if entry >= low_key] if low_key else entries

    def block(self, number: int) -> bytes:
        """Return the entries of one block. Blocking. Raises OSError, or KAFKA_STORAGE_ERROR if it is damaged."""
        entry_bytes = self._entry_bytes
        entries = min(BLOCK_ENTRIES, self.count - number * BLOCK_ENTRIES)
        return self._read(entries * entry_bytes, position=number * (BLOCK_ENTRIES * entry_bytes + CHECKSUM.size))

    def _filter(self) -> BloomFilter:
        if self.filter is None:
            position = self.count * self._entry_bytes + self.blocks * CHECKSUM.size
            self.filter = BloomFilter(self._read(self.filter_bytes, position=position))
        return self.filter

    def _read(self, size: int, *, position: int) -> bytes:
        try:
            data = self._files.open(self).read(size + CHECKSUM.size, position=position)
        except OSError as error:
            if error.errno in _LOST:
                self.unreadable = f"{self.path} cannot be read: {error.strerror}"
            raise
        payload, checksum = data[:size], data[size:]
        if len(data) != size + CHECKSUM.size or crc32c(payload) != CHECKSUM.unpack(checksum)[0]:
            self.unreadable = f"{self.path} is damaged at byte {position}"
            raise MillstreamError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.unreadable}; the broker rebuilds it from the log, retry later"
            )
        return payload


def find_newest(runs: Sequence[SortedRun], keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the newest value of each key that the runs have. Blocking. Raises the errors of `SortedRun.find`."""
    newest_first = tuple(reversed(runs))
    found = {}
    for key in keys:
        for run in newest_first:
            value = run.find(key)
            if value is not None:
                found[key] = value
                break
    return found
