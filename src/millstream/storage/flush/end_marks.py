"""Records the acknowledged end of each log, so that recovery can tell damage from a torn write.

A log is acknowledged up to its mark at least. If recovery finds a shorter log, acknowledged data is damaged, and the
log is quarantined instead of truncated.

Under the policy `always`, a mark is the flushed offset. It is written after the flush and before the acknowledgement,
so it covers every acknowledged batch when the process is killed. The file itself is flushed at most once per second, so
after a power loss the marks may miss the last second. A mark on disk is always true, because its data was flushed
first. Under the other policies, a mark is the written end, saved once per second, and true only in the same boot.

File `end-marks`, little-endian, slots of 32 bytes:
  head  3 slots: 8 kind, 16 id of the data directory, 40 boot id, 1 flags (bit 0: marks are flushed offsets), 4 CRC-32C
        of these, zeros
  mark  1 slot: 16 topic id, 4 partition, 8 offset, 4 CRC-32C of these; zeros if the slot is free. A partition below
        zero (-1 minus its number) marks the log start that a deletion of records has moved.
A slot never crosses a sector, so a crash leaves the old or the new mark. A start replaces the file durably.
"""

import logging
import struct
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple
from uuid import UUID

from millstream.model.ids import Offset, TopicId
from millstream.model.names import PartitionKey
from millstream.records.checksum import crc32c
from millstream.seams.disk import Disk, DiskFile
from millstream.seams.workers import Workers
from millstream.storage.recovery.disk_errors import DiskErrorLog
from millstream.storage.sealed_file import UNFINISHED

FILE_NAME = "end-marks"
KIND = b"MSTRMEM1"
SLOT_BYTES = 32
_PAGE_BYTES = 4096
_HEAD = struct.Struct("<8s16s40sB")
_HEAD_BYTES = 3 * SLOT_BYTES
_MARK = struct.Struct("<16siq")
_CRC = struct.Struct("<I")
_FLUSHED = 1
_SPAN_PAGES_MAX = 16
"""Changed pages within this distance are written with one call, together with the pages between them."""

_logger = logging.getLogger(__name__)


class SavedMarks(NamedTuple):
    """The marks that the previous process left."""

    ends: Mapping[PartitionKey, Offset]
    starts: Mapping[PartitionKey, Offset]
    """The log starts after deletions of records. Logs without a deletion are missing."""
    is_complete: bool
    """True if every acknowledgement has a mark: the machine has not rebooted, and marks were saved before each."""


NO_MARKS = SavedMarks({}, {}, is_complete=False)


class EndMarks:
    """The marks of one data directory. Only the event loop's thread changes and saves them."""

    def __init__(self, disk: Disk, directory: str, directory_id: UUID, trouble: DiskErrorLog, *, flushed: bool) -> None:
        """With `flushed`, marks are flushed offsets."""
        self.path = f"{directory}/{FILE_NAME}"
        self.are_flushed_offsets = flushed
        self._disk = disk
        self._id = directory_id
        self._trouble = trouble
        self._file: DiskFile | None = None
        self._image = bytearray()
        self._slots: dict[PartitionKey, int] = {}
        self._free: list[int] = []
        self._changed: set[int] = set()
        self._needs_flush = False

    # Start.

    def read(self) -> SavedMarks:
        """Read the marks of the previous process (blocking). Raise OSError."""
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            return NO_MARKS
        data = file.read(file.size(), position=0)
        file.close()
        if len(data) < _HEAD_BYTES or _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(data[: _HEAD.size]):
            _logger.warning("end marks unusable", extra={"path": self.path, "error": "the head is damaged"})
            return NO_MARKS
        kind, owner, boot, flags = _HEAD.unpack_from(data)
        if kind != KIND or owner != self._id.bytes:
            _logger.warning("end marks unusable", extra={"path": self.path, "error": "it is from another directory"})
            return NO_MARKS
        is_same_boot = bool(boot.rstrip(b"\0")) and boot.rstrip(b"\0") == self._disk.boot_id().encode()
        are_flushed = bool(flags & _FLUSHED)
        if not (is_same_boot or are_flushed):
            return NO_MARKS
        marks = dict(_marks(data))
        starts = {_start_key(key): offset for key, offset in marks.items() if key.partition < 0}
        ends = {key: offset for key, offset in marks.items() if key.partition >= 0}
        return SavedMarks(ends, starts, is_complete=is_same_boot and are_flushed)

    def begin(self, ends: Mapping[PartitionKey, Offset], starts: Mapping[PartitionKey, Offset]) -> None:
        """Replace the file by these marks, durably once the directory is flushed (blocking). Raise OSError."""
        head = _HEAD.pack(KIND, self._id.bytes, self._disk.boot_id().encode(), int(self.are_flushed_offsets))
        self._image = bytearray(head + _CRC.pack(crc32c(head))).ljust(_HEAD_BYTES, b"\0")
        for key, end in ends.items():
            self.advance(key, end)
        for key, start in starts.items():
            self.advance(_start_key(key), start)
        self._replace(bytes(self._image))

    def _replace(self, image: bytes) -> None:
        file = self._disk.open(self.path + UNFINISHED, create=True)
        file.truncate(0)
        file.write(image, 0)
        file.flush()
        self._disk.rename(self.path + UNFINISHED, self.path)
        self._file = file

    # Changes.

    def advance(self, key: PartitionKey, end: Offset) -> None:
        """Set the mark of a log. `save` writes it."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = self._take_slot()
        mark = _MARK.pack(key.topic_id.bytes, key.partition, end)
        if self._image[slot : slot + _MARK.size] != mark:
            self._set(slot, mark)

    def _take_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._image.extend(bytes(SLOT_BYTES))
        return len(self._image) - SLOT_BYTES

    def _set(self, slot: int, mark: bytes) -> None:
        self._image[slot : slot + SLOT_BYTES] = mark + _CRC.pack(crc32c(mark)) if mark else bytes(SLOT_BYTES)
        self._changed.add(slot // _PAGE_BYTES)

    def start_moved(self, key: PartitionKey, start: Offset) -> None:
        """Record the log start after a deletion of records."""
        self.advance(_start_key(key), start)
        self.save()

    def forget(self, key: PartitionKey) -> None:
        """Remove the marks of a deleted log."""
        for each in (key, _start_key(key)):
            slot = self._slots.pop(each, None)
            if slot is not None:
                self._set(slot, b"")
                self._free.append(slot)
        self.save()

    # Saving.

    def save(self) -> None:
        """Write the changed marks, without a flush. A failure is logged; the marks on disk then stay lower."""
        if not self._changed or self._file is None:
            return
        try:
            for first, last in self._runs():
                begin = first * _PAGE_BYTES
                self._file.write(self._image[begin : (last + 1) * _PAGE_BYTES], begin)
        except OSError as error:
            self._trouble.unmarked({"path": self.path}, error)
            return
        self._changed.clear()
        self._needs_flush = True

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last page of each write."""
        first, last = min(self._changed), max(self._changed)
        if last - first < _SPAN_PAGES_MAX:
            yield first, last
        else:
            yield from ((page, page) for page in sorted(self._changed))

    async def flush(self, workers: Workers) -> None:
        """Flush what was saved, if the marks are flushed offsets. Raise OSError; the next call then repeats it.

        If the disk was full at the start, this creates the file.
        """
        if self._file is None:
            await workers.run(partial(self._replace, bytes(self._image)))
            self._changed.update(range(len(self._image) // _PAGE_BYTES + 1))
            self.save()
        if self._needs_flush and self.are_flushed_offsets and self._file is not None:
            self._needs_flush = False
            try:
                await workers.run(self._file.flush)
            except OSError:
                self._needs_flush = True
                raise


def _start_key(key: PartitionKey) -> PartitionKey:
    """Return the key of the mark of a log's start, or the log's key from that key."""
    return PartitionKey(key.topic_id, -1 - key.partition)


def _marks(data: bytes) -> Iterator[tuple[PartitionKey, Offset]]:
    for slot in range(_HEAD_BYTES, len(data) - SLOT_BYTES + 1, SLOT_BYTES):
        topic, partition, end = _MARK.unpack_from(data, slot)
        if _CRC.unpack_from(data, slot + _MARK.size)[0] == crc32c(data[slot : slot + _MARK.size]) and any(topic):
            yield PartitionKey(TopicId(UUID(bytes=topic)), partition), Offset(end)
