"""A run: keys and their places, sorted by key, in a file that never changes: `ids-<number>.run` beside the log.

Layout, big-endian: blocks of up to 128 entries (16 bytes key, 8 bytes offset, 4 bytes messages), each block followed by
its CRC-32C; then the filter and its CRC-32C. How many entries there are, and how large the filter is, stands in the
index's own file (see `index`), which names a run only after it was flushed: a crash leaves runs that nobody names,
which the next start removes, and never a named one that is not whole.

A damaged block is not read around: whoever looks for a key gets KAFKA_STORAGE_ERROR, since to say "not there" might
store a message a second time.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.message_ids.filter import BloomFilter
from millstream.partition.message_ids.keys import KEY_BYTES, Entry, IndexedMessage
from millstream.records.checksum import crc32c
from millstream.seams.disk import Disk, DiskFile
from millstream.storage.cleaning.file_removal import remove_all
from millstream.storage.log.open_files import OpenFiles

BLOCK_ENTRIES = 128
_PLACE = struct.Struct(">qi")
_CHECKSUM = struct.Struct(">I")
ENTRY_BYTES = KEY_BYTES + _PLACE.size
BLOCK_BYTES = BLOCK_ENTRIES * ENTRY_BYTES + _CHECKSUM.size
_KEYS = 1 << (KEY_BYTES * 8)
_GUESSES = 4
"""After so many, halves are looked at: keys that somebody made on purpose may not be spread evenly."""

_STEP_BLOCKS = 4
"""Blocks of each run that one step of a merge takes: some milliseconds of work."""


def run_name(number: int) -> str:
    return f"ids-{number:020d}.run"


def is_run_name(name: str) -> bool:
    return name.startswith("ids-") and name.endswith(".run")


class IdRun:
    """One run as it can be looked into. Only entries of offsets below `end_offset` count: a log that was cut took the
    others with it. `newest_ms` and `oldest_ms` are when its entries came, on a clock that never goes back."""

    def __init__(
        self,
        directory: str,
        number: int,
        files: OpenFiles,
        *,
        count: int,
        filter_bytes: int,
        end_offset: int,
        oldest_ms: int,
        newest_ms: int,
    ) -> None:
        self.number = number
        self.path = f"{directory}/{run_name(number)}"
        self.file: DiskFile | None = None
        self.used = False
        self.count = count
        self.filter_bytes = filter_bytes
        self.end_offset = end_offset
        self.oldest_ms = oldest_ms
        self.newest_ms = newest_ms
        self.filter: BloomFilter | None = None
        """Read when it is first needed, so that a start reads none."""
        self._files = files
        self._blocks = -(-count // BLOCK_ENTRIES)

    def filled(self, count: int, keys: BloomFilter) -> None:
        """The file was written, with so many entries."""
        self.count = count
        self._blocks = -(-count // BLOCK_ENTRIES)
        self.filter = keys
        self.filter_bytes = len(keys.data)

    def let_go(self) -> None:
        self.file = None

    def forget(self) -> None:
        """The file is about to be removed."""
        self._files.forget(self)
        self.filter = None

    def find(self, key: bytes) -> IndexedMessage | None:
        """Where the message of this key is, if it is here. Blocking; raises OSError, KAFKA_STORAGE_ERROR."""
        if not self._filter().may_have(key):
            return None
        low, high = 0, self._blocks
        floor, ceiling, looks = 0, _KEYS, 0
        wanted = int.from_bytes(key, "big")
        while low < high:
            # Keys are spread evenly, so where one is can be guessed: two or three looks find it.
            at = low + (wanted - floor) * (high - low) // (ceiling - floor) if looks < _GUESSES else (low + high) // 2
            looks += 1
            block = self.block(at)
            first, last = block[:KEY_BYTES], block[-ENTRY_BYTES : KEY_BYTES - ENTRY_BYTES]
            if key < first:
                high, ceiling = at, int.from_bytes(first, "big")
            elif key > last:
                low, floor = at + 1, int.from_bytes(last, "big")
            else:
                return self._within(block, key)
        return None

    def _within(self, block: bytes, key: bytes) -> IndexedMessage | None:
        at = block.find(key)
        while at >= 0 and at % ENTRY_BYTES:
            at = block.find(key, at + 1)
        if at < 0:
            return None
        place = IndexedMessage(*_PLACE.unpack_from(block, at + KEY_BYTES))
        return place if place.offset < self.end_offset else None

    def block(self, number: int) -> bytes:
        """The entries of one block. Blocking; raises OSError, KAFKA_STORAGE_ERROR when it is damaged."""
        entries = min(BLOCK_ENTRIES, self.count - number * BLOCK_ENTRIES)
        return self._read(entries * ENTRY_BYTES, number * BLOCK_BYTES)

    def _filter(self) -> BloomFilter:
        if self.filter is None:
            position = self.count * ENTRY_BYTES + self._blocks * _CHECKSUM.size
            self.filter = BloomFilter(self._read(self.filter_bytes, position))
        return self.filter

    def _read(self, size: int, position: int) -> bytes:
        data = self._files.open(self).read(size + _CHECKSUM.size, position)
        payload, checksum = data[:size], data[size:]
        if len(data) != size + _CHECKSUM.size or crc32c(payload) != _CHECKSUM.unpack(checksum)[0]:
            raise MillstreamError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.path} is damaged at byte {position}: which message ids are known cannot be told. Without "
                "ids.snapshot beside it, the next start makes the index anew from the log",
            )
        return payload


class RunWriter:
    """Writes a run of at most `keys_max` entries, which come in order; what is there of it counts after `finish`."""

    def __init__(self, disk: Disk, path: str, keys_max: int) -> None:
        self.count = 0
        self.filter = BloomFilter.empty(keys_max)
        self._disk = disk
        self._path = path
        self._file = disk.open(path, create=True)
        self._file.truncate(0)
        self._position = 0
        self._rest = b""

    def add(self, entries: Sequence[bytes]) -> None:
        """More entries, packed; raises OSError."""
        self.count += len(entries)
        self.filter.add(entry[:KEY_BYTES] for entry in entries)
        self._write(self._rest + b"".join(entries), whole_blocks=True)

    def finish(self) -> None:
        """Write what is left, and flush; the file's name is flushed by whoever names the run. Raises OSError."""
        self._write(self._rest, whole_blocks=False)
        self._put([_sealed(bytes(self.filter.data))])
        self._file.flush()
        self._file.close()

    def discard(self) -> None:
        """Give it up, and the room that it takes; nobody may have named it yet. What resists is left for a start."""
        with suppress(OSError):
            self._file.close()
            remove_all(self._disk, [self._path])

    def _write(self, data: bytes, *, whole_blocks: bool) -> None:
        size = BLOCK_ENTRIES * ENTRY_BYTES
        end = len(data) // size * size if whole_blocks else len(data)
        self._rest = data[end:]
        self._put([_sealed(data[at : min(at + size, end)]) for at in range(0, end, size)])

    def _put(self, parts: list[bytes]) -> None:
        if parts:
            self._file.write(parts, self._position)
            self._position += sum(map(len, parts))


def _sealed(data: bytes) -> bytes:
    return data + _CHECKSUM.pack(crc32c(data))


def packed(entries: Iterable[Entry]) -> list[bytes]:
    """Entries as a run has them, in order."""
    return sorted(key + _PLACE.pack(*place) for key, place in entries)


def merge(runs: Sequence[IdRun], writer: RunWriter) -> Iterator[None]:
    """Write the entries of several runs, oldest first, as one; of those with the same key, the newest. Blocking.

    Goes in steps of bounded work; what is left is to finish the writer.
    """
    heads = [_Head(run) for run in runs]
    while heads := [head for head in heads if head.more()]:
        # Everything up to the lowest of the last keys at hand can be written: none that is still to come is lower.
        limit = min((head.last for head in heads if head.left), default=None)
        ready = [head.take(limit) for head in heads]
        newest = {entry[:KEY_BYTES]: entry for entry in chain.from_iterable(ready)}
        writer.add([newest[key] for key in sorted(newest)])
        yield


class _Head:
    """How far one run has been merged."""

    def __init__(self, run: IdRun) -> None:
        self._run = run
        self._block = 0
        self._entries: list[bytes] = []

    @property
    def left(self) -> bool:
        """Whether the run has blocks that were not read yet."""
        return self._block * BLOCK_ENTRIES < self._run.count

    @property
    def last(self) -> bytes:
        return self._entries[-1][:KEY_BYTES] if self._entries else b""

    def more(self) -> bool:
        """Have something at hand; False when there is nothing more."""
        end_offset = self._run.end_offset
        while not self._entries and self.left:
            for _ in range(_STEP_BLOCKS):
                if self.left:
                    block = self._run.block(self._block)
                    self._block += 1
                    self._entries += [block[at : at + ENTRY_BYTES] for at in range(0, len(block), ENTRY_BYTES)]
            self._entries = [entry for entry in self._entries if _PLACE.unpack_from(entry, KEY_BYTES)[0] < end_offset]
        return bool(self._entries)

    def take(self, limit: bytes | None) -> list[bytes]:
        """Those at hand up to a key, or all."""
        entries = self._entries
        count = len(entries) if limit is None else sum(entry[:KEY_BYTES] <= limit for entry in entries)
        self._entries = entries[count:]
        return entries[:count]
