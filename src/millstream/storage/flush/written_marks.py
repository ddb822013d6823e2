"""How far each log was written, flushed or not: what a process that is killed leaves to the next one.

Under the policy `os` nobody flushes the end of a log, so a checkpoint may know nothing of the last gigabyte. As long as
the machine goes on running, that gigabyte is there all the same: the kernel has it. So the marks are noted from time
to time, with the boot that they hold for, and a start in the same boot looks only at what was written behind them.

File `written`, a sealed file (see `sealed_file`) that is never flushed: after a loss of power it does not count,
whatever is left of it. Payload, little-endian: 16 id of the data directory, 40 the boot, 4 logs; each log as in the
checkpoint, its segments with what was written instead of what was flushed, and only from the first on that is not
flushed to its end.

It is true when it is noted and stays true while logs only grow. What else happens to logs is seen to:
  - segments that compaction, retention or a deletion takes away go after a checkpoint, which notes it anew;
  - it is removed before a log is rebuilt after a failed flush, and at a start, before anything is appended;
  - recovery believes it of a log only where the files bear it out, and not where segments were exchanged.
A failed flush may have spoilt what was written, so a log that is broken is not noted. One that fails just before the
process is killed is not heard of: then damage shows when it is read, as it does when a write-back of the kernel fails.
"""

import asyncio
import struct
from collections.abc import Mapping, Sequence
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
from millstream.storage.log.segment import FlushMark, Segment, SegmentState

FILE_NAME = "written"
KIND = b"MSTRMWR1"
_HEAD = struct.Struct("<16s40sI")
_ENCODED_AT_ONCE = 256


class _Noted(NamedTuple):
    segments: list[Segment]
    end: FlushMark
    flushed: FlushMark
    encoded: bytes


class WrittenMarks:
    """Notes the marks of one data directory."""

    def __init__(self, disk: Disk, directory: str, directory_id: UUID, workers: Workers, *, is_kept: bool) -> None:
        """Without `is_kept` every log is flushed before long, and nothing is noted or believed."""
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._id = directory_id
        self._workers = workers
        self.is_kept = is_kept
        self._noted: dict[PartitionKey, _Noted] = {}
        self._told: list[bytes] | None = None

    async def note(self, logs: Sequence[Log]) -> None:
        """Tell the next process how far these were written; raises OSError, and then what was told before holds."""
        if not self.is_kept:
            return
        encoded: list[bytes] = []
        for number, log in enumerate(logs):
            if number % _ENCODED_AT_ONCE == _ENCODED_AT_ONCE - 1:
                await asyncio.sleep(0)
            encoded.append(self._encode(log))
        if encoded != self._told:
            self._told = None
            await self._workers.run(partial(self._write, [one for one in encoded if one]))
            self._told = encoded

    def _encode(self, log: Log) -> bytes:
        """Nothing of one that is flushed, or whose files are in doubt."""
        if not log.segments or log.broken is not None or log.quarantined is not None or log.is_deleted:
            return b""
        last, noted = log.segments[-1], self._noted.get(log.key)
        if noted is None or (noted.segments, noted.end, noted.flushed) != (log.segments, last.end, last.flushed):
            noted = self._noted[log.key] = _Noted(log.segments, last.end, last.flushed, _written(log))
        return noted.encoded

    def forget(self, key: PartitionKey) -> None:
        """A log was deleted."""
        self._noted.pop(key, None)

    def _write(self, encoded: Sequence[bytes]) -> None:
        boot = self._disk.boot_id().encode()
        if boot:
            head = _HEAD.pack(self._id.bytes, boot, len(encoded))
            sealed_file.leave(self._disk, self._path, KIND, head + b"".join(encoded))

    async def retract(self) -> None:
        """Tell nothing, until it is noted again; raises OSError."""
        self._told = None
        await self._workers.run(partial(remove_all, self._disk, [self._path]))

    def read(self) -> dict[PartitionKey, LogState]:
        """What the last process of this boot noted (blocking); nothing when there is no such note."""
        payload = sealed_file.read(self._disk, self._path, KIND) if self.is_kept else None
        if payload is None or len(payload) < _HEAD.size:
            return {}
        owner, boot, count = _HEAD.unpack_from(payload)
        if owner != self._id.bytes or boot.rstrip(b"\0") != self._disk.boot_id().encode():
            return {}
        return decode_logs(payload, _HEAD.size, count)


def carry_on(log: Log, flushed: Mapping[int, SegmentState]) -> None:
    """Of these segments of a new log, by base offset, only so much is flushed; the rest, their names too, is not."""
    for segment in log.segments:
        state = flushed.get(segment.base_offset)
        if state is None:
            continue
        segment.flush_only(state)
        if segment.is_closed and segment.flushed.position < segment.end.position:
            log.unflushed.append(segment)
        if not segment.flushed.position:
            segment.is_named = False
            log.unnamed.append(segment)
    first = next(segment.flushed.offset for segment in log.segments if segment.base_offset in flushed)
    log.durable_offset = max(log.start_offset, first)


def _written(log: Log) -> bytes:
    """The segments from the first on that is not flushed to its end; b"" without any."""
    segments = log.segments
    first = next((n for n, s in enumerate(segments) if s.flushed.position < s.end.position), len(segments))
    states = tuple(SegmentState(s.base_offset, *s.end, s.created_ms) for s in segments[first:])
    return encode_log(LogState(log.key, log.start_offset, log.end_offset, states)) if states else b""
