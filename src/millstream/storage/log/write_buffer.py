"""Buffers appended batches of one log so that one round of group commit writes them with a single system call.

Invariant: the buffered batches cover the log's written_offset..end_offset without a gap, and each producer has at most
one. They are neither acknowledged nor visible to readers. The log writes them before it appends anything else and
before a round flushes it. If that write fails, or the log is fenced, they are lost, and their writers get an error.
"""

from msgspec import Struct

from millstream.model.ids import ProducerId
from millstream.records.header import BatchHeader

BUFFERED_BYTES_MAX = 64 * 1024
"""A larger batch is written at once: writing much later would block the event loop for too long."""


class BufferedRun(Struct, eq=False):
    """All buffered batches, to be written with one call."""

    data: bytes
    headers: list[BatchHeader]


class WriteBuffer:
    """The buffered batches of one log."""

    __slots__ = ("_headers", "_parts", "producer_ids", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self.producer_ids: set[ProducerId] = set()
        """The producers of the buffered batches."""
        self._parts: list[bytes] = []
        self._headers: list[BatchHeader] = []

    def add(self, batch: memoryview, header: BatchHeader) -> None:
        """Copy a batch that is stamped with the log's end offset into the buffer."""
        assert header.producer_id < 0 or header.producer_id not in self.producer_ids, "one batch per producer"
        self._headers.append(header)
        self._parts.append(bytes(batch))
        self.producer_ids.add(header.producer_id)
        self.size_bytes += len(batch)

    def take(self, *, written_offset: int, end_offset: int) -> BufferedRun:
        """Remove and return all batches. They begin at the log's written offset and end at its end."""
        parts, headers = self._parts, self._headers
        assert headers[0].base_offset == written_offset, "no gap before the buffered batches"
        assert headers[-1].next_offset == end_offset, "no gap after the buffered batches"
        run = BufferedRun(parts[0] if len(parts) == 1 else b"".join(parts), headers)
        self._parts, self._headers = [], []
        self.producer_ids.clear()
        self.size_bytes = 0
        return run
