"""Checks the batches that clients produce. The rules are stricter than those for stored batches.

As in Kafka since Produce version 3, a request has exactly one batch per partition, of format 2, with as many records as
offsets. Only the header is checked; the records are not decoded. So the timestamp limits apply to the first and the
newest timestamp, which the header has, and not to the others. `opened_batches` checks all records of the batches that
it decodes.
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
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    check,
    read_header,
)
from millstream.records.produced_batch import usual_header
from millstream.topics.settings import TopicSettings

_BROKER_ONLY = TRANSACTIONAL | CONTROL | DELETE_HORIZON
"""Attribute bits that clients must not set, as long as there are no transactions."""

_NOT_PRODUCED = _BROKER_ONLY | ANY_IDS
"""Attribute bits that Produce requests must not set. Puts requests may set those of message ids."""

_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35
_PRODUCER_POSITION = 43
_pack_crc = struct.Struct(">I").pack_into
_pack_attributes = struct.Struct(">h").pack_into
_PRODUCER = struct.Struct(">qhi")
_pack_producer = _PRODUCER.pack_into
_pack_timestamp = struct.Struct(">q").pack_into


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
    """Refuse attributes that only brokers set, and incomplete fields of an idempotent producer."""
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
    """Raise INVALID_TIMESTAMP if a timestamp of a batch is too far from now for the topic."""
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
