"""Indexes the message ids of one partition in sorted runs, and decides when a save would help the log."""

from typing import Protocol

from millstream.partition.message_ids.keys import ID_LAYOUT
from millstream.partition.message_ids.limits import IdLimits
from millstream.partition.runs.index import RunIndex
from millstream.partition.runs.saving import IndexedLog
from millstream.storage.log.segment import Segment


class IdLog(IndexedLog, Protocol):
    @property
    def segments(self) -> list[Segment]: ...


class IdIndex(RunIndex):
    """The message ids of one partition. Values are packed `keys.IndexedMessage`."""

    def __init__(self, log: IdLog, limits: IdLimits, covered: int) -> None:
        super().__init__(ID_LAYOUT, log, limits, covered)
        self._id_log = log

    @classmethod
    def load(cls, log: IdLog, limits: IdLimits, now_ms: int) -> "IdIndex | None":
        """Return the saved index, or None if there is no usable one. Blocking. Raises OSError."""
        index = cls(log, limits, 0)
        return index if index.restore(now_ms) else None

    def wants_saving(self, now_ms: int) -> bool:
        """True if a save would free memory or disk, or would let the log remove closed segments."""
        segments = self._id_log.segments
        return super().wants_saving(now_ms) or (bool(segments) and self.covered < segments[-1].base_offset)
