"""Makes small appends of many logs durable with one flush. Each data directory has one active journal.

Each append to a segment is also copied into the journal, in one frame with the appends of other logs, and only the
journal is flushed. The checkpointer flushes the segments later; then the journal is no longer needed.

Invariant of the caller: every acknowledged byte is in a flushed part of its segment or in an existing journal.

File `journal-<number, 20 digits>`, little-endian:
  head   8 kind, 16 id of the data directory, 8 number, 4 CRC-32C of these
  frame  4 mark, 4 CRC-32C of all that follows in the frame (begun with the file's number), 8 frame number,
         4 bytes of entries, then the entries
  entry  16 topic id, 4 partition, 8 segment's base offset, 8 position in it, 8 first offset, 8 offset after the last,
         4 bytes of data, data: whole batches as in the segment

A frame is written only after the previous one was flushed. So a crash leaves whole frames and at most one partial frame
at the end, which was never acknowledged. A damaged frame before whole frames is lost data, not a torn tail. Reading
continues after the damaged frame. If the segments do not contain the lost entries, recovery detects a gap in the
offsets. A crash during the creation of the file leaves an incomplete head; no append was acknowledged from such a
journal.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import PartitionKey
from millstream.records.checksum import crc32c
from millstream.seams.disk import Buffer, Disk

PREFIX = "journal-"
KIND = b"MSTRMJN1"
_MARK = b"\xf7MsJ"
_HEAD = struct.Struct("<8s16sQI")
_FRAME = struct.Struct("<4sIQI")
_ENTRY = struct.Struct("<16siqqqqI")
_CHECKED_FROM = 8


class JournalEntry(NamedTuple):
    """Batches of one log, and their position in its segment."""

    key: PartitionKey
    segment_base: int
    position: int
    base_offset: int
    next_offset: int
    data: bytes


def journal_path(directory: str, number: int) -> str:
    return f"{directory}/{PREFIX}{number:020d}"


def journal_numbers(names: Sequence[str]) -> list[int]:
    """The numbers of the journals among the file names of a directory, in ascending order."""
    digits = [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
    return sorted(int(number) for number in digits if number.isdecimal())


class Journal:
    """A journal that accepts frames, from one writer at a time."""

    def __init__(self, disk: Disk, directory: str, directory_id: UUID, number: int) -> None:
        """Create the file, and flush it and its name (blocking). Raise OSError."""
        self.number = number
        self.path = journal_path(directory, number)
        self._file = disk.open(self.path, create=True)
        self._file.truncate(0)
        head = _HEAD.pack(KIND, directory_id.bytes, number, 0)[:-4]
        self._file.write(head + struct.pack("<I", crc32c(head)), 0)
        self._file.flush()
        disk.flush_directory(directory)
        self.size_bytes = _HEAD.size
        self.frame_count = 0
        self.failed: OSError | None = None

    def append(self, entries: Sequence[JournalEntry], monotonic_s: Callable[[], float]) -> float:
        """Write one frame, flush it, and return the duration of the flush (blocking).

        After OSError the journal accepts no more frames.
        """
        assert self.failed is None, "a failed journal accepts no frames"
        parts: list[Buffer] = [b"", *packed(entries)]
        size = sum(map(len, parts))
        tail = struct.pack("<QI", self.frame_count, size)
        crc = crc32c(tail, self.number & 0xFFFFFFFF)
        for part in parts:
            crc = crc32c(part, crc)
        parts[0] = _MARK + struct.pack("<I", crc) + tail
        try:
            self._file.write(parts, self.size_bytes)
            begun_s = monotonic_s()
            self._file.flush()
            flushed_s = monotonic_s()
        except OSError as error:
            self.failed = error
            raise
        self.size_bytes += _FRAME.size + size
        self.frame_count += 1
        return flushed_s - begun_s


def packed(entries: Iterable[JournalEntry]) -> Iterator[bytes]:
    """Encode the entries of a frame, piece by piece."""
    for key, segment_base, position, base_offset, next_offset, data in entries:
        yield _ENTRY.pack(
            key.topic_id.bytes, key.partition, segment_base, position, base_offset, next_offset, len(data)
        )
        yield data


def read_journal(disk: Disk, directory: str, directory_id: UUID, number: int) -> Iterator[JournalEntry]:
    """Yield all entries of whole frames, in order (blocking). A file with an incomplete head has none.

    Raises DATA_DIRECTORY_MISSING if the journal belongs to another directory.
    """
    file = disk.open(journal_path(directory, number))
    data = file.read(file.size(), position=0)
    file.close()
    if len(data) < _HEAD.size:
        return
    kind, owner, found_number, crc = _HEAD.unpack_from(data)
    if kind != KIND or crc != crc32c(data[: _HEAD.size - 4]) or found_number != number:
        return
    if owner != directory_id.bytes:
        raise MillstreamError(
            ErrorCode.DATA_DIRECTORY_MISSING,
            f"{journal_path(directory, number)} belongs to data directory {UUID(bytes=owner)}, not {directory_id}",
        )
    view = memoryview(data)
    for first, end in _whole_frames(data, view, number):
        yield from unpacked(view[first:end])


def _whole_frames(data: bytes, view: memoryview, number: int) -> Iterator[tuple[int, int]]:
    """Yield the position and end of the entries of each whole frame."""
    at, last = _HEAD.size, -1
    while at + _FRAME.size <= len(data):
        mark, crc, frame, size = _FRAME.unpack_from(data, at)
        end = at + _FRAME.size + size
        if mark == _MARK and end <= len(data) and frame > last:
            counted = crc32c(view[at + _CHECKED_FROM : end], number & 0xFFFFFFFF)
            if counted == crc:
                yield at + _FRAME.size, end
                at, last = end, frame
                continue
        at = data.find(_MARK, at + 1)
        if at < 0:
            return


def unpacked(frame: memoryview) -> Iterator[JournalEntry]:
    """Decode the entries of a verified frame."""
    at = 0
    while at < len(frame):
        topic, partition, base, position, first, after, size = _ENTRY.unpack_from(frame, at)
        at += _ENTRY.size
        yield JournalEntry(
            key=PartitionKey(TopicId(UUID(bytes=topic)), partition),
            segment_base=base,
            position=position,
            base_offset=first,
            next_offset=after,
            data=bytes(frame[at : at + size]),
        )
        at += size
