"""Checks the batches that clients produce. The rules are stricter than those for stored batches.

As in Kafka since Produce version 3, a request has exactly one batch per partition, of format 2, with as many records as
offsets. `check_produced` checks the header. `check_records` walks the records of an uncompressed batch without decoding
them, so that every reader can decode what is stored.

The timestamp limits apply to each record that is walked. Of a compressed batch, which is not opened, they apply to the
first and the newest timestamp, which the header has. `opened_batches` checks all records of the batches that it opens.
"""

import struct

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import ProducerId
from millstream.model.limits import NO_TIMESTAMP
from millstream.records.checksum import crc32c
from millstream.records.header import (
    ANY_IDS,
    COMPRESSION_MASK,
    COMPRESSION_MAX,
    CONTROL,
    CRC_START,
    DEFINED_ATTRIBUTES,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Bytes,
    check,
    read_header,
)
from millstream.records.produced_batch import usual_header
from millstream.records.record_walk import InvalidRecord, walk_records
from millstream.topics.settings import TopicSettings

_BROKER_ONLY = TRANSACTIONAL | CONTROL | DELETE_HORIZON
"""Attribute bits that clients must not set, as long as there are no transactions."""

_NOT_PRODUCED = ~(COMPRESSION_MASK | LOG_APPEND_TIME)
"""Attribute bits that Produce requests must not set. Puts requests may set those of message ids."""

_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35
_PRODUCER_POSITION = 43
_pack_crc = struct.Struct(">I").pack_into
_pack_attributes = struct.Struct(">h").pack_into
_PRODUCER = struct.Struct(">qhi")
_NEGATIVE = 0x80
"""The first byte of a negative number has this value or a higher one."""

_pack_producer = _PRODUCER.pack_into
_pack_timestamp = struct.Struct(">q").pack_into


class InvalidRecords(MillstreamError):  # noqa: N818 - named as the error that it is on the wire
    """Some records of a batch are invalid, so the whole batch is refused."""

    def __init__(self, detail: str, records: list[tuple[int, str | None]]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, detail)
        self.records = records
        """The index of each invalid record in the batch, with the reason."""

    def of(self, topic: str, number: int) -> "InvalidRecords":
        """Return the error with the partition in its text."""
        return InvalidRecords(f"partition {topic}-{number} refused the batch: {self.detail}", self.records)


def check_produced(records: memoryview, settings: TopicSettings, now_ms: int, *, ids: int = 0) -> BatchHeader:
    """Return the header of the single batch in `records`. Raises the error for the producer if it is not acceptable.

    `ids` is the attribute for the kind of message ids that the batch was sent with. The batch may already have it.
    """
    if not settings.log_append_time:
        bytes_max, segment_bytes = settings.max_message_bytes, settings.segment_bytes
        header = usual_header(
            records,
            bytes_max if bytes_max < segment_bytes else segment_bytes,
            now_ms,
            settings.timestamp_before_max_ms,
            settings.timestamp_after_max_ms,
            ids,
        )
        if header is not None:
            return header
    return check_closely(records, settings, now_ms, ids=ids)


def check_closely(records: memoryview, settings: TopicSettings, now_ms: int, *, ids: int = 0) -> BatchHeader:
    """Check every rule of `check_produced` separately, for a batch that is unusual or invalid."""
    sent_bytes = len(records)
    if sent_bytes < HEADER_BYTES:
        raise _invalid(f"{sent_bytes} bytes are too short for a record batch; send exactly one batch")
    header = read_header(records)
    _, batch_length, _, magic, _, attributes, last_delta, first_ms, newest_ms, producer_id, _, _, record_count = header
    if magic != MAGIC:
        _refuse_format(magic)
    size_bytes = batch_length + LENGTH_END
    # The size is checked before the checksum, so that a batch that is too large costs no pass over its bytes.
    if size_bytes > settings.max_message_bytes:
        raise MillstreamError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size_bytes} bytes, max.message.bytes is {settings.max_message_bytes}",
        )
    if size_bytes > settings.segment_bytes:
        raise MillstreamError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size_bytes} bytes, segment.bytes is {settings.segment_bytes}",
        )
    if attributes & COMPRESSION_MASK > COMPRESSION_MAX:
        raise MillstreamError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression {header.compression} is unknown; use 0 to {COMPRESSION_MAX}",
        )
    if size_bytes != sent_bytes:
        _refuse_size(size_bytes, sent_bytes=sent_bytes)
    if last_delta < 0 or record_count != last_delta + 1:
        raise _invalid(f"the batch has {record_count} records, but {last_delta + 1} offsets; the numbers must be equal")
    check(records, 0, header)
    if producer_id >= 0 or attributes & _NOT_PRODUCED:
        _check_origin(header, ids)
    if settings.log_append_time:
        return header
    if attributes & LOG_APPEND_TIME:
        raise MillstreamError(ErrorCode.INVALID_TIMESTAMP, "a producer must not mark a batch with the log append time")
    oldest_ms = first_ms if first_ms < newest_ms else newest_ms
    check_times(oldest=oldest_ms, newest=newest_ms, settings=settings, now_ms=now_ms)
    return header


def check_records(records: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> BatchHeader:
    """Walk the records of an uncompressed batch that `check_produced` accepted, and return its header.

    Raises InvalidRecords and INVALID_TIMESTAMP.
    """
    try:
        oldest, newest, _ = walk_records(records, HEADER_BYTES, header.record_count, header.base_timestamp)
    except InvalidRecord as error:
        raise _invalid_record(error, header) from None
    if newest == header.max_timestamp and (oldest == newest or oldest == header.base_timestamp):
        return header  # The usual case. `check_produced` has checked both timestamps.
    return check_walked_times(records, header, settings, now_ms, oldest=oldest, newest=newest)


def check_walked_times(
    records: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int, *, oldest: int, newest: int
) -> BatchHeader:
    """Check the timestamps that a walk has found, and return the header.

    If the header has another newest timestamp than the records, it is corrected in place, as Kafka does.
    """
    if settings.log_append_time:
        return header
    check_times(oldest=oldest, newest=newest, settings=settings, now_ms=now_ms)
    if newest == header.max_timestamp:
        return header
    _pack_timestamp(records, _MAX_TIMESTAMP_POSITION, newest)
    _pack_crc(records, _CRC_POSITION, crc32c(records[CRC_START:]))
    return read_header(records)


def walk(body: Bytes, header: BatchHeader) -> tuple[int, int, int]:
    """Walk the records of an opened batch. Raises InvalidRecords.

    Returns the oldest and the newest timestamp, and the number of records without a key.
    """
    try:
        return walk_records(body, 0, header.record_count, header.base_timestamp)
    except InvalidRecord as error:
        raise _invalid_record(error, header) from None


def _invalid_record(error: InvalidRecord, header: BatchHeader) -> InvalidRecords:
    if error.index == header.record_count:
        return InvalidRecords(error.detail, [])
    detail = f"record {error.index} of {header.record_count} is invalid: {error.detail}"
    return InvalidRecords(detail, [(error.index, error.detail)])


def stamp_append_time(records: memoryview, header: BatchHeader, now_ms: int) -> None:
    """Set the broker's time as the timestamp of every record, in place and without decoding the records.

    Readers use the batch's newest timestamp for all records when the LOG_APPEND_TIME bit is set. The checksum covers
    both fields and is recomputed.
    """
    _pack_attributes(records, _ATTRIBUTES_POSITION, header.attributes | LOG_APPEND_TIME)
    _pack_timestamp(records, _MAX_TIMESTAMP_POSITION, now_ms)
    _pack_crc(records, _CRC_POSITION, crc32c(records[CRC_START:]))


def mark_ids(records: memoryview, header: BatchHeader, ids: int) -> BatchHeader:
    """Set the attribute for message ids in the batch, in place, and return the new header.

    Millstream's own producers set it already, which costs nothing here. Otherwise the checksum is recomputed.
    """
    if header.attributes & ids:
        return header
    _pack_attributes(records, _ATTRIBUTES_POSITION, header.attributes | ids)
    _pack_crc(records, _CRC_POSITION, crc32c(records[CRC_START:]))
    return read_header(records)


def has_producer(records: memoryview) -> bool:
    """True if a batch has a producer id. The batch may be too short for a header."""
    return len(records) >= HEADER_BYTES and records[_PRODUCER_POSITION] < _NEGATIVE


def read_producer(records: memoryview) -> tuple[ProducerId, int, int]:
    """Return the producer id, epoch and first sequence number from the header of a batch."""
    producer_id, epoch, base_sequence = _PRODUCER.unpack_from(records, _PRODUCER_POSITION)
    return ProducerId(producer_id), epoch, base_sequence


def stamp_producer(records: memoryview, producer_id: ProducerId, *, epoch: int, base_sequence: int) -> None:
    """Set the producer fields of a batch in place and recompute its checksum."""
    _pack_producer(records, _PRODUCER_POSITION, producer_id, epoch, base_sequence)
    _pack_crc(records, _CRC_POSITION, crc32c(records[CRC_START:]))


def _invalid(detail: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_RECORD, detail)


def _refuse_format(magic: int) -> None:
    if magic in (0, 1):
        raise _invalid(f"the batch has the old message format {magic}; use format {MAGIC}")
    raise MillstreamError(ErrorCode.CORRUPT_MESSAGE, f"the batch has format {magic}, which does not exist")


def _refuse_size(size_bytes: int, *, sent_bytes: int) -> None:
    """Refuse a batch whose length field does not match the sent bytes. An invalid length is left to `check`."""
    if HEADER_BYTES <= size_bytes < sent_bytes:
        raise _invalid(f"{sent_bytes - size_bytes} bytes follow the batch; send exactly one batch")
    if size_bytes > sent_bytes:
        raise _invalid(f"the batch has {size_bytes} bytes, but only {sent_bytes} were sent")


def _check_origin(header: BatchHeader, ids: int) -> None:
    """Refuse undefined attributes, those that only brokers set, and incomplete fields of an idempotent producer."""
    if header.attributes & ~DEFINED_ATTRIBUTES:
        undefined = header.attributes & ~DEFINED_ATTRIBUTES & 0xFFFF
        raise _invalid(f"the batch has undefined attribute bits ({undefined:#06x}); they must be 0")
    if header.attributes & ANY_IDS & ~ids:
        raise _invalid("the batch has the attribute for message ids of a kind that the request does not have")
    if header.attributes & _BROKER_ONLY:
        if header.is_control:
            raise _invalid("only brokers may write control batches")
        if not header.is_transactional:
            raise _invalid("only compaction may set a delete horizon")
        raise MillstreamError(
            ErrorCode.INVALID_TXN_STATE, "transactions are not supported; produce without transactional.id"
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(
            f"producer {header.producer_id} sent sequence {header.base_sequence} and epoch {header.producer_epoch}; "
            "neither may be negative"
        )


def check_times(*, oldest: int, newest: int, settings: TopicSettings, now_ms: int) -> None:
    """Raise INVALID_TIMESTAMP if a timestamp of a batch is negative, or too far from now for the topic.

    Kafka's brokers store negative timestamps, but its producers refuse to send them and its log cleaner fails on them.
    """
    if oldest < NO_TIMESTAMP:
        raise MillstreamError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {oldest} is negative; use milliseconds since 1970, or -1 for a message without a timestamp",
        )
    if newest != NO_TIMESTAMP and newest - now_ms > settings.timestamp_after_max_ms:
        raise MillstreamError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {newest} is {newest - now_ms} ms ahead of the broker's clock; "
            f"message.timestamp.after.max.ms is {settings.timestamp_after_max_ms}",
        )
    if oldest != NO_TIMESTAMP and now_ms - oldest > settings.timestamp_before_max_ms:
        raise MillstreamError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {oldest} is {now_ms - oldest} ms behind the broker's clock; "
            f"message.timestamp.before.max.ms is {settings.timestamp_before_max_ms}",
        )
