"""Stores how far each log of a data directory is flushed.

File `checkpoint`, a sealed file (see `sealed_file`: written beside, flushed, renamed), payload little-endian:
  head     16 id of the data directory, 1 flags (bit 0: closed cleanly, bit 1: the first journal exists),
           8 first journal still needed, 4 logs
  log      16 topic id, 4 partition, 8 start offset, 8 offset after the last flushed batch, 4 segments
  segment  8 each: base offset, offset after the flushed part, flushed bytes, largest time stamp, its offset, time made

It lists only segments whose names are flushed, and only their flushed parts. A crash leaves this checkpoint or the
previous one. Both are valid; with the older one recovery reads more. Recovery begins where the checkpoint ends. Damage
before that point is a loss of flushed data, and is never treated as a torn tail.

If a log was quarantined at a start without a readable checkpoint, its state is unknown and both offsets are -1.

After a clean close the checkpoint is complete, and a start reads nothing else. Two signs prove a clean close: the flag
in the checkpoint, and the empty file `clean`, which is created afterwards. The next start removes `clean` before
anything is appended. A full disk permits that, while it may prevent writing a new checkpoint.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from millstream.model.ids import Offset, TopicId
from millstream.model.names import PartitionKey
from millstream.seams.disk import Disk
from millstream.storage import sealed_file
from millstream.storage.log.segment import SegmentState

FILE_NAME = "checkpoint"
CLEAN_NAME = "clean"
KIND = b"MSTRMCP1"
UNKNOWN = -1
_CLEAN = 1
_HAS_JOURNAL = 2
_HEAD = struct.Struct("<16sBQI")
_LOG = struct.Struct("<16siqqI")
_SEGMENT = struct.Struct("<qqqqqq")


class LogState(NamedTuple):
    """The flushed state of a log."""

    key: PartitionKey
    start_offset: Offset
    end_offset: Offset
    segments: tuple[SegmentState, ...]


class Checkpoint(NamedTuple):
    is_clean: bool
    first_journal: int
    logs: dict[PartitionKey, LogState]
    has_journal: bool


def encode_log(state: LogState) -> bytes:
    head = _LOG.pack(
        state.key.topic_id.bytes, state.key.partition, state.start_offset, state.end_offset, len(state.segments)
    )
    return head + b"".join([_SEGMENT.pack(*segment) for segment in state.segments])


def write(
    disk: Disk,
    directory: str,
    directory_id: UUID,
    *,
    is_clean: bool,
    first_journal: int,
    has_journal: bool,
    logs: Iterable[bytes],
) -> None:
    """Replace the checkpoint durably (blocking); `logs` come from `encode_log`. Raises OSError.

    `has_journal` says that the first journal exists and must be found after a crash.
    """
    parts = list(logs)
    flags = (_CLEAN if is_clean else 0) | (_HAS_JOURNAL if has_journal else 0)
    head = _HEAD.pack(directory_id.bytes, flags, first_journal, len(parts))
    sealed_file.write(disk, f"{directory}/{FILE_NAME}", KIND, head + b"".join(parts))
    if is_clean:
        disk.open(f"{directory}/{CLEAN_NAME}", create=True).close()
        disk.flush_directory(directory)


def begin(disk: Disk, directory: str) -> None:
    """Note that logs may change from now on, so the checkpoint is not complete (blocking).

    The caller flushes the directory.
    """
    if disk.exists(f"{directory}/{CLEAN_NAME}"):
        disk.remove(f"{directory}/{CLEAN_NAME}")


def read(disk: Disk, directory: str, directory_id: UUID) -> Checkpoint | None:
    """Read the checkpoint. Return None if there is none that is intact and of this directory (blocking)."""
    payload = sealed_file.read(disk, f"{directory}/{FILE_NAME}", KIND)
    if payload is None or len(payload) < _HEAD.size:
        return None
    owner, flags, first_journal, count = _HEAD.unpack_from(payload)
    if owner != directory_id.bytes:
        return None
    is_clean = bool(flags & _CLEAN) and disk.exists(f"{directory}/{CLEAN_NAME}")
    logs = decode_logs(payload, _HEAD.size, count=count)
    return Checkpoint(is_clean, first_journal, logs, has_journal=bool(flags & _HAS_JOURNAL))


def decode_logs(payload: bytes, at: int, *, count: int) -> dict[PartitionKey, LogState]:
    """Decode `count` logs that `encode_log` encoded, from byte `at` on."""
    logs: dict[PartitionKey, LogState] = {}
    for _ in range(count):
        topic, partition, start, end, segment_count = _LOG.unpack_from(payload, at)
        at += _LOG.size
        size = _SEGMENT.size * segment_count
        segments = tuple(SegmentState(*row) for row in _SEGMENT.iter_unpack(payload[at : at + size]))
        at += size
        key = PartitionKey(TopicId(UUID(bytes=topic)), partition)
        logs[key] = LogState(key, start, end, segments)
    return logs
