"""Records how far each log was written, flushed or not, for the process that starts after a crash of this one.

Under the policy `os`, nothing flushes the end of a log, so a checkpoint may lack the last gigabyte. If only the process
ends, that gigabyte is still in the kernel's page cache. Therefore the marks are saved periodically, with the id of the
current boot. A start in the same boot then reads only what was written after the marks.

File `written`, a sealed file (see `sealed_file`) that is never flushed: after a power loss it is invalid, because the
boot id differs. Payload, little-endian: 16 id of the data directory, 40 the boot, 4 logs. Each log has the format of
the checkpoint, but with the written ends of its segments, from the first segment that is not completely flushed on.

The marks are true when they are saved, and stay true while logs only grow. Other changes are handled as follows:
  - Segments that compaction, retention or a deletion removes are removed after a checkpoint, which saves the marks.
  - The file is removed before a log is rebuilt after a failed flush, and at a start before anything is appended.
  - Recovery uses the mark of a log only if it matches the files and no segments were exchanged.
A failed flush may have damaged written data, so a broken log has no mark. A flush that fails just before the process
is killed is not recorded. Such damage is found on read, as with a failed write-back of the kernel.
"""

import asyncio
import struct
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from millstream.model.names import PartitionKey
from millstream.seams.disk import Disk
from millstream.seams.workers import Workers
from millstream.storage import sealed_file
from millstream.storage.cleaning.file_removal import remove_all
from millstream.storage.flush.checkpoint import LogState, decode_logs, encode_log
from millstream.storage.log.log import Log
from millstream.storage.log.segment import FlushMark, Segment

FILE_NAME = "written"
KIND = b"MSTRMWR1"
_HEAD = struct.Struct("<16s40sI")
_ENCODED_AT_ONCE = 256


class _LogMark(NamedTuple):
    segments: list[Segment]
    end: FlushMark
    flushed: FlushMark
    encoded: bytes


class WrittenMarks:
    """Saves the marks of one data directory."""

    def __init__(self, disk: Disk, directory: str, directory_id: UUID, workers: Workers, *, is_kept: bool) -> None:
        """Without `is_kept`, logs are flushed regularly, and no marks are saved or read."""
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._id = directory_id
        self._workers = workers
        self.is_kept = is_kept
        self._marks: dict[PartitionKey, _LogMark] = {}
        self._saved: list[bytes] | None = None

    async def note(self, logs: Sequence[Log]) -> None:
        """Save how far these logs are written. Raise OSError; then the previous marks stay valid."""
        if not self.is_kept:
            return
        encoded: list[bytes] = []
        for number, log in enumerate(logs):
            if number % _ENCODED_AT_ONCE == _ENCODED_AT_ONCE - 1:
                await asyncio.sleep(0)
            encoded.append(self._encode(log))
        if encoded != self._saved:
            self._saved = None
            await self._workers.run(partial(self._write, [one for one in encoded if one]))
            self._saved = encoded

    def _encode(self, log: Log) -> bytes:
        """Encode the mark of a log. A log that is flushed or damaged has none."""
        if not log.segments or log.health.broken is not None or log.health.quarantined is not None or log.is_deleted:
            return b""
        last, mark = log.segments[-1], self._marks.get(log.key)
        if mark is None or (mark.segments, mark.end, mark.flushed) != (log.segments, last.end, last.flushed):
            mark = self._marks[log.key] = _LogMark(log.segments, last.end, last.flushed, _written(log))
        return mark.encoded

    def forget(self, key: PartitionKey) -> None:
        """Drop the mark of a deleted log."""
        self._marks.pop(key, None)

    def _write(self, encoded: Sequence[bytes]) -> None:
        boot = self._disk.boot_id().encode()
        if boot:
            head = _HEAD.pack(self._id.bytes, boot, len(encoded))
            sealed_file.leave(self._disk, self._path, KIND, head + b"".join(encoded))

    async def retract(self) -> None:
        """Remove the file until the marks are saved again. Raise OSError."""
        self._saved = None
        await self._workers.run(partial(remove_all, self._disk, [self._path]))

    def read(self) -> dict[PartitionKey, LogState]:
        """The marks that the previous process saved in this boot (blocking); empty if there are none."""
        payload = sealed_file.read(self._disk, self._path, KIND) if self.is_kept else None
        if payload is None or len(payload) < _HEAD.size:
            return {}
        owner, boot, count = _HEAD.unpack_from(payload)
        if owner != self._id.bytes or boot.rstrip(b"\0") != self._disk.boot_id().encode():
            return {}
        return decode_logs(payload, _HEAD.size, count=count)


def _written(log: Log) -> bytes:
    """Encode the segments from the first incompletely flushed one on; b"" if there is none."""
    segments = log.segments
    first = next((n for n, s in enumerate(segments) if s.flushed.position < s.end.position), len(segments))
    states = tuple(s.end.state(s.base_offset, s.created_ms) for s in segments[first:])
    return encode_log(LogState(log.key, log.start_offset, log.end_offset, states)) if states else b""
