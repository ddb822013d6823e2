"""Writes the file of one sorted run: `<name>-<number>.run` beside the log.

Layout: blocks of up to 128 entries, each followed by its CRC-32C (4 bytes, big-endian). If the layout has filters, the
filter and its CRC-32C follow. The list of runs (see `run_list`) has the numbers of entries and filter bytes. It names a
run only after the run and its file name are flushed. So a crash never leaves an incomplete run that the list names. It
may leave runs that the list does not name, which the next start removes. The checksum of a block detects bit flips.

Invariant: entries are written in ascending order of their identities.
"""

from collections.abc import Sequence
from contextlib import suppress

from millstream.partition.runs.bloom_filter import BloomFilter
from millstream.partition.runs.layout import BLOCK_ENTRIES, RunLayout
from millstream.partition.runs.run import CHECKSUM, RunContent
from millstream.records.checksum import crc32c
from millstream.seams.disk import Disk
from millstream.storage.cleaning.file_removal import remove_all


class RunWriter:
    """Writes at most `entries_max` entries. The file is complete after `finish`."""

    def __init__(self, disk: Disk, path: str, layout: RunLayout, entries_max: int) -> None:
        self._count = 0
        self._filter = BloomFilter.empty(entries_max) if layout.is_hashed else None
        self._layout = layout
        self._entries_max = entries_max
        self._first = self._last = b""
        self._disk = disk
        self._path = path
        self._file = disk.open(path, create=True)
        self._file.truncate(0)
        self._position = 0
        self._rest = b""

    def add(self, entries: Sequence[bytes]) -> None:
        """Add entries in order. Raises OSError."""
        if not entries:
            return
        identity_bytes, key_bytes = self._layout.identity_bytes, self._layout.key_bytes
        assert self._last < entries[0][:identity_bytes], "entries are added in order, each once"
        self._first = self._first or entries[0]
        self._last = entries[-1][:identity_bytes]
        self._count += len(entries)
        assert self._count <= self._entries_max, "the filter has room for this number of entries"
        if self._filter is not None:
            self._filter.add(entry[:key_bytes] for entry in entries)
        self._write(self._rest + b"".join(entries), whole_blocks=True)

    def finish(self) -> RunContent:
        """Write the remaining entries and flush. The caller must flush the directory before a list names the run.

        Raises OSError.
        """
        self._write(self._rest, whole_blocks=False)
        if self._filter is not None:
            self._put([_sealed(bytes(self._filter.data))])
        self._file.flush()
        self._file.close()
        key_bytes = self._layout.key_bytes
        return RunContent(self._count, self._filter, self._first[:key_bytes], self._last[:key_bytes])

    def discard(self) -> None:
        """Remove a run that no list names. A file that cannot be removed is left for the next start."""
        with suppress(OSError):
            self._file.close()
            remove_all(self._disk, [self._path])

    def _write(self, data: bytes, *, whole_blocks: bool) -> None:
        size = BLOCK_ENTRIES * self._layout.entry_bytes
        end = len(data) // size * size if whole_blocks else len(data)
        self._rest = data[end:]
        self._put([_sealed(data[at : min(at + size, end)]) for at in range(0, end, size)])

    def _put(self, parts: list[bytes]) -> None:
        if parts:
            self._file.write(parts, self._position)
            self._position += sum(map(len, parts))


def _sealed(data: bytes) -> bytes:
    return data + CHECKSUM.pack(crc32c(data))
