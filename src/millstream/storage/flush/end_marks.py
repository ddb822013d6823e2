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
        zero (-1 minus its number) marks the log start. A log that begins at offset 0 has only the mark of its end.
A slot never crosses a sector, so a crash leaves the old or the new mark. A start replaces the file durably.

If marks cannot be written, the boot id in the head becomes zeros, or the file is removed if that fails too. The marks
of the file then count as lower bounds that may miss acknowledgements. If both fail, nothing is acknowledged.
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
    """The log starts above 0. Retention and deletions of records move them."""
    is_current: bool
    """True if every acknowledgement got a mark: the machine has not rebooted, and marks were saved before each."""
    are_durable: bool
    """True if the marks were flushed before each checkpoint, so that every log in a checkpoint had a mark."""
    damage: str | None = None
    """The reason for which marks may be missing although they were saved."""

    @property
    def is_complete(self) -> bool:
        """True if every acknowledgement has a mark."""
        return self.is_current and self.damage is None

    def start_of(self, key: PartitionKey) -> Offset | None:
        """Return the log start, or None if it is unknown."""
        return self.starts.get(key, Offset(0) if key in self.ends else None)

    def is_missing(self, key: PartitionKey, *, is_in_checkpoint: bool) -> bool:
        """Return True if the mark of an existing log was saved and is lost."""
        return key not in self.ends and (self.is_current or (self.are_durable and is_in_checkpoint))


NO_MARKS = SavedMarks({}, {}, is_current=False, are_durable=False)


class EndMarks:
    """The marks of one data directory. Only the event loop's thread changes and saves them."""

    def __init__(self, disk: Disk, directory: str, directory_id: UUID, trouble: DiskErrorLog, *, flushed: bool) -> None:
        """With `flushed`, marks are flushed offsets."""
        self.path = f"{directory}/{FILE_NAME}"
        self.are_flushed_offsets = flushed
        self.start_problem: str | None = None
        """A sentence about logs that this start could not compare with their marks."""
        self._disk = disk
        self._id = directory_id
        self._trouble = trouble
        self._file: DiskFile | None = None
        self._image = bytearray()
        self._slots: dict[PartitionKey, int] = {}
        self._free: list[int] = []
        self._changed: set[int] = set()
        self._needs_flush = False
        self.is_stale = False
        """True while the file looks complete although marks are missing in it. Then nothing may be acknowledged."""

    # Start.

    def read(self) -> SavedMarks:
        """Read the marks of the previous process (blocking). Raise OSError."""
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            return NO_MARKS._replace(damage="the file is missing")
        data = file.read(file.size(), position=0)
        file.close()
        if not _is_intact_head(data):
            return NO_MARKS._replace(damage="the head is damaged")
        kind, owner, boot, flags = _HEAD.unpack_from(data)
        if kind != KIND or owner != self._id.bytes:
            return NO_MARKS._replace(damage="the file is from another directory")
        is_same_boot = bool(boot.rstrip(b"\0")) and boot.rstrip(b"\0") == self._disk.boot_id().encode()
        are_flushed = bool(flags & _FLUSHED)
        if not (is_same_boot or are_flushed):
            return NO_MARKS
        marks, damaged_count = _marks(data)
        damage = f"{damaged_count} marks are damaged" if damaged_count else None
        starts = {_start_key(key): offset for key, offset in marks.items() if key.partition < 0}
        ends = {key: offset for key, offset in marks.items() if key.partition >= 0}
        return SavedMarks(ends, starts, is_same_boot and are_flushed, are_flushed, damage)

    def lost(self, reason: str) -> None:
        """Report that the previous marks are not usable, although this start needs them."""
        _logger.error("end marks unusable", extra={"path": self.path, "error": reason})
        self.start_problem = (
            f"{self.path} was not usable at this start ({reason}); if a log was damaged too, acknowledged messages at"
            " its end may be lost"
        )

    def begin(self, ends: Mapping[PartitionKey, Offset], starts: Mapping[PartitionKey, Offset]) -> None:
        """Replace the file by these marks, durably once the directory is flushed (blocking).

        A failure, such as a full disk, is logged: the previous marks stay as lower bounds, and `flush` tries again.
        Raise OSError if even that is impossible.
        """
        head = _HEAD.pack(KIND, self._id.bytes, self._disk.boot_id().encode(), int(self.are_flushed_offsets))
        self._image = _sealed_head(head)
        for key, end in ends.items():
            self.advance(key, end)
        for key, start in starts.items():
            self.move_start(key, start)
        try:
            self._rename(self._create(bytes(self._image)))
        except OSError as error:
            _logger.error("end marks not saved", extra={"path": self.path, "error": str(error)})
            failure = self._declare_incomplete()
            if failure is not None:
                raise failure from error

    def _create(self, image: bytes) -> DiskFile:
        file = self._disk.open(self.path + UNFINISHED, create=True)
        file.truncate(0)
        file.write(image, 0)
        file.flush()
        return file

    def _rename(self, file: DiskFile) -> None:
        self._disk.rename(self.path + UNFINISHED, self.path)
        self._file = file
        self.is_stale = False

    # Changes.

    def advance(self, key: PartitionKey, end: Offset) -> None:
        """Set the mark of a log. `save` writes it."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = self._take_slot()
        mark = _MARK.pack(key.topic_id.bytes, key.partition, end)
        if self._image[slot : slot + _MARK.size] != mark:
            self._set(slot, mark)

    def record(self, key: PartitionKey, end: Offset) -> None:
        """Set and write the mark of a log."""
        self.advance(key, end)
        self.save()

    def _take_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._image.extend(bytes(SLOT_BYTES))
        return len(self._image) - SLOT_BYTES

    def _set(self, slot: int, mark: bytes) -> None:
        self._image[slot : slot + SLOT_BYTES] = mark + _CRC.pack(crc32c(mark)) if mark else bytes(SLOT_BYTES)
        self._changed.add(slot // _PAGE_BYTES)

    def move_start(self, key: PartitionKey, start: Offset) -> None:
        """Set the mark of a log's start. `save` writes it; `flush` does too, before files below it are removed."""
        self.advance(_start_key(key), start)

    def forget(self, key: PartitionKey) -> None:
        """Remove the marks of a deleted log."""
        for each in (key, _start_key(key)):
            slot = self._slots.pop(each, None)
            if slot is not None:
                self._set(slot, b"")
                self._free.append(slot)
        self.save()

    # Saving.

    def save(self) -> OSError | None:
        """Write the changed marks, without a flush.

        A failure is logged. The marks on disk then count as incomplete until `flush` replaces the file. Return the
        error if even that is impossible: then nothing may be acknowledged.
        """
        if self._file is None:
            return self._declare_incomplete() if self.is_stale else None
        if not self._changed:
            return None
        try:
            self._write_changes(self._file)
        except OSError as error:
            self._trouble.unmarked({"path": self.path}, error)
            self._file = None
            return self._declare_incomplete()
        return None

    def _write_changes(self, file: DiskFile) -> None:
        for first, last in self._runs():
            begin = first * _PAGE_BYTES
            file.write(self._image[begin : (last + 1) * _PAGE_BYTES], begin)
        self._changed.clear()
        self._needs_flush = True

    def _declare_incomplete(self) -> OSError | None:
        """Make the file on disk count as incomplete. It needs no space. Return the error if that is impossible."""
        self.is_stale = True
        try:
            self._clear_boot_id()
        except OSError:
            try:
                self._disk.remove(self.path)
            except FileNotFoundError:
                pass
            except OSError as error:
                return error
        self.is_stale = False
        return None

    def _clear_boot_id(self) -> None:
        file = self._disk.open(self.path)
        try:
            head = file.read(_HEAD_BYTES, position=0)
            if _is_intact_head(head):
                kind, owner, _, flags = _HEAD.unpack_from(head)
                file.write(_sealed_head(_HEAD.pack(kind, owner, b"", flags)), 0)
        finally:
            file.close()

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last page of each write."""
        first, last = min(self._changed), max(self._changed)
        if last - first < _SPAN_PAGES_MAX:
            yield first, last
        else:
            yield from ((page, page) for page in sorted(self._changed))

    async def flush(self, workers: Workers) -> None:
        """Save the marks, and flush them if they are flushed offsets. Raise OSError; the next call then repeats it.

        If marks could not be written, such as on a full disk, this replaces the file.
        """
        self.save()
        if self._file is None:
            self._changed.clear()
            file = await workers.run(partial(self._create, bytes(self._image)))
            if self._changed:  # Marks that changed meanwhile, before the file counts as complete.
                self._write_changes(file)
            self._rename(file)
        if self._needs_flush and self.are_flushed_offsets and self._file is not None:
            self._needs_flush = False
            try:
                await workers.run(self._file.flush)
            except OSError:
                self._needs_flush = True
                raise


def _sealed_head(head: bytes) -> bytearray:
    return bytearray(head + _CRC.pack(crc32c(head))).ljust(_HEAD_BYTES, b"\0")


def _is_intact_head(data: bytes) -> bool:
    return len(data) >= _HEAD_BYTES and data[_HEAD.size :].startswith(_CRC.pack(crc32c(data[: _HEAD.size])))


def _start_key(key: PartitionKey) -> PartitionKey:
    """Return the key of the mark of a log's start, or the log's key from that key."""
    return PartitionKey(key.topic_id, -1 - key.partition)


def _marks(data: bytes) -> tuple[dict[PartitionKey, Offset], int]:
    """Return the intact marks, and the number of damaged ones. An incomplete slot at the end counts as damaged."""
    marks: dict[PartitionKey, Offset] = {}
    damaged_count = 0
    for slot in range(_HEAD_BYTES, len(data), SLOT_BYTES):
        content = data[slot : slot + SLOT_BYTES]
        if not any(content) and len(content) == SLOT_BYTES:
            continue
        mark = content[: _MARK.size]
        if len(content) < SLOT_BYTES or content[_MARK.size :] != _CRC.pack(crc32c(mark)):
            damaged_count += 1
            continue
        topic, partition, end = _MARK.unpack(mark)
        marks[PartitionKey(TopicId(UUID(bytes=topic)), partition)] = Offset(end)
    return marks, damaged_count
