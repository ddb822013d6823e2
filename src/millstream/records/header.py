"""Reads, checks and stamps the 61-byte header of a record batch, without decoding the records.

The broker does nothing else with most batches, so all functions here cost the same for one record as for ten thousand.
All numbers are big-endian:

====== ===== ==================== =====================================================================
at     bytes field                meaning
====== ===== ==================== =====================================================================
0      8     base_offset          offset of the first record; the broker stamps it
8      4     batch_length         bytes that follow this field
12     4     leader_epoch         epoch of the leader that took the batch; the broker stamps it
16     1     magic                2, the only format Millstream stores
17     4     crc                  CRC-32C of everything from `attributes` to the end
21     2     attributes           bits 0-2 compression, 3 log append time, 4 transactional, 5 control,
                                  6 delete horizon, 13 made ids, 14 own ids (both Millstream's, see below)
23     4     last_offset_delta    offset of the last record, less base_offset
27     8     base_timestamp       base of the records' timestamp deltas, milliseconds; with a delete horizon, also the
                                  time from which on its tombstones may be removed
35     8     max_timestamp        largest time of a record; with log append time, the time of all of them
43     8     producer_id          -1: the producer is not idempotent
51     2     producer_epoch
53     4     base_sequence        sequence number of the first record
57     4     record_count         number of records; after compaction it may be lower than the number of offsets
====== ===== ==================== =====================================================================

Offset and epoch are outside the checksum. So a broker can stamp a batch in place and store it without decoding it.

Two attribute bits that Kafka does not use describe the message ids of a batch, so that a reader of the log knows which
batches to check and which to decode. *Made ids* follow from this header. *Own ids* are in the headers `millstream.id`
of the records. At most one of the two bits is set. Clients of other vendors ignore both.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import LeaderEpoch, Offset, ProducerId
from millstream.records.checksum import crc32c

HEADER_BYTES = 61
MAGIC = 2
CRC_START = 21
"""The first byte that the checksum covers."""

LENGTH_END = 12
"""The bytes up to the end of `batch_length`, which that field does not count."""

RECORD_BYTES_MIN = 7
"""The smallest record: length, attributes, two deltas, null key, null value and header count 0."""

COMPRESSION_MASK = 0x07
COMPRESSION_MAX = 4
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
MADE_IDS = 0x2000
OWN_IDS = 0x4000
ANY_IDS = MADE_IDS | OWN_IDS

DEFINED_ATTRIBUTES = COMPRESSION_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | DELETE_HORIZON | ANY_IDS

SEQUENCE_MASK = 0x7FFFFFFF
BASE_OFFSET_MAX = 2**63 - 1 - 2**31
"""The highest base offset whose batch cannot exceed the highest offset."""

LAYOUT = struct.Struct(">qiibIhiqqqhii")
_unpack_from = LAYOUT.unpack_from
_pack_offset = struct.Struct(">q").pack_into
_pack_epoch = struct.Struct(">i").pack_into
_new = tuple.__new__

Bytes = bytes | bytearray | memoryview


class CorruptBatch(MillstreamError):  # noqa: N818 - the name says what the batch is; the base says that it is an error
    """The bytes are not a record batch, or an incomplete or damaged one."""

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, detail)


class OversizedBatch(CorruptBatch):
    """A batch that takes more memory, decompressed or as objects, than the reader allows."""


class BatchHeader(NamedTuple):
    """The header of a record batch, field by field."""

    base_offset: Offset
    batch_length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, including the header."""
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 for a batch of a producer that is not idempotent.

        Sequence numbers wrap from 2**31 - 1 to 0.
        """
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MASK

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def made(self) -> tuple[int, int, int, int] | None:
        """Producer id, epoch, first sequence number and first offset, from which made ids derive; None without them."""
        if not self.attributes & MADE_IDS or min(self.producer_id, self.producer_epoch, self.base_sequence) < 0:
            return None
        return self.producer_id, self.producer_epoch, self.base_sequence, self.base_offset

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time when tombstones of the batch may be removed; None if compaction has not kept any yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """Read the header at `position` without checks. Raise CorruptBatch if the buffer is too short."""
    try:
        return _new(BatchHeader, _unpack_from(buffer, position))
    except struct.error:
        raise CorruptBatch(f"a batch header needs {HEADER_BYTES} bytes, {len(buffer) - position} are left") from None


def check(buffer: Bytes, position: int, header: BatchHeader, *, verify_crc: bool = True) -> None:
    """Raise CorruptBatch unless a whole, undamaged batch of format 2 is at `position`.

    The records are not decoded, so a wrong record count is found only on decoding. But the header must be possible: for
    example, a batch may have fewer records than offsets, because compaction removes records.
    """
    base_offset, batch_length, _, magic, expected_crc, attributes, last_delta, _, _, _, _, _, record_count = header
    size_bytes = batch_length + LENGTH_END
    if magic != MAGIC:
        raise CorruptBatch(f"the batch has format {magic}, only {MAGIC} is supported")
    if size_bytes < HEADER_BYTES:
        raise CorruptBatch(f"the batch length {batch_length} is too small for a header")
    if not 0 <= base_offset <= BASE_OFFSET_MAX:
        raise CorruptBatch(f"the base offset {base_offset} is out of range")
    if last_delta < 0:
        raise CorruptBatch(f"the last offset delta {last_delta} is negative")
    if not 0 <= record_count <= last_delta + 1:
        raise CorruptBatch(f"{record_count} records cannot have {last_delta + 1} offsets")
    compression = attributes & COMPRESSION_MASK
    if compression > COMPRESSION_MAX:
        raise CorruptBatch(f"the compression {compression} is unknown")
    if not compression and record_count * RECORD_BYTES_MIN > size_bytes - HEADER_BYTES:
        raise CorruptBatch(f"{record_count} records do not fit into {size_bytes} bytes")
    end = position + size_bytes
    if end > len(buffer):
        raise CorruptBatch(f"the batch has {size_bytes} bytes, {len(buffer) - position} are left")
    if not verify_crc:
        return
    crc = crc32c(memoryview(buffer)[position + CRC_START : end])
    if crc != expected_crc:
        raise CorruptBatch(f"the batch's CRC-32C is {crc:08x}, its header says {expected_crc:08x}")


def has_right_checksum(buffer: Bytes, position: int, header: BatchHeader) -> bool:
    """True if a whole batch is at `position` and its checksum is right, whatever its records are."""
    end = position + header.size_bytes
    if header.magic != MAGIC or header.size_bytes < HEADER_BYTES or end > len(buffer):
        return False
    return crc32c(memoryview(buffer)[position + CRC_START : end]) == header.crc


def stamp(buffer: bytearray | memoryview, position: int = 0, *, base_offset: int, leader_epoch: int) -> None:
    """Write offset and leader epoch into the batch at `position`, in place. The checksum does not cover them."""
    _pack_offset(buffer, position, base_offset)
    _pack_epoch(buffer, position + LENGTH_END, leader_epoch)


def each_batch(buffer: Bytes, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every whole batch from `position` on, in order. A partial one at the end is skipped.

    Raise CorruptBatch at bytes that cannot be a batch, because no later batch can be located. Checksums are not
    verified.
    """
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header: BatchHeader = _new(BatchHeader, _unpack_from(buffer, position))
        if header.magic != MAGIC or header.batch_length < HEADER_BYTES - LENGTH_END:
            raise CorruptBatch(
                f"no batch begins at byte {position}: format {header.magic}, batch length {header.batch_length}"
            )
        following = position + header.batch_length + LENGTH_END
        if following > end:
            return
        yield position, header
        position = following
