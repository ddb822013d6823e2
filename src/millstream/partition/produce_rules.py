"""What a client may append: the rules for a produced batch, which are stricter than those for a stored one.

As Kafka decides since Produce version 3: exactly one batch, of format 2, whose records are as many as its offsets.
Only the header is looked at; the records stay closed. So the rules on time hold for the first and for the newest
time of the batch, which the header has, and not for each record between; what a topic wants opened is looked at once
more by `opened_batches`.
"""

import struct

from millstream.model.errors import ErrorCode, MillstreamError
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

_NOT_A_CLIENTS = TRANSACTIONAL | CONTROL | DELETE_HORIZON
"""The attribute bits that no client sets, as long as there are no transactions."""

_NOT_PRODUCED = _NOT_A_CLIENTS | ANY_IDS
"""Neither does one that does not write by Puts."""

_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35
_PRODUCER_POSITION = 43
_pack_crc = struct.Struct(">I").pack_into
_pack_attributes = struct.Struct(">h").pack_into
_PRODUCER = struct.Struct(">qhi")
_pack_producer = _PRODUCER.pack_into
_pack_timestamp = struct.Struct(">q").pack_into


def check_produced(records: memoryview, settings: TopicSettings, now_ms: int, ids: int = 0) -> BatchHeader:
    """The header of the one batch that `records` is; raises what a producer is to be told when it is not acceptable.

    `ids` is the attribute of those that its messages are to be stored under, which it may have already.
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
    return check_closely(records, settings, now_ms, ids)


def check_closely(records: memoryview, settings: TopicSettings, now_ms: int, ids: int = 0) -> BatchHeader:
    """As `check_produced`, rule by rule: for a batch of which something is unusual or wrong."""
    sent_bytes = len(records)
    if sent_bytes < HEADER_BYTES:
        raise _invalid(f"{sent_bytes} bytes are not a record batch; exactly one must be sent")
    header = read_header(records)
    _, batch_length, _, magic, _, attributes, last_delta, first_ms, newest_ms, producer_id, _, _, record_count = header
    if magic != MAGIC:
        _refuse_format(magic)
    size_bytes = batch_length + LENGTH_END
    # Size before checksum: a batch that is too large anyway should not cost a pass over its bytes.
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
            f"compression {header.compression} is not known; 0 to {COMPRESSION_MAX} are",
        )
    if size_bytes != sent_bytes:
        _refuse_size(size_bytes, sent_bytes)
    if last_delta < 0 or record_count != last_delta + 1:
        raise _invalid(f"{record_count} records have {last_delta + 1} offsets; they must be as many")
    check(records, 0, header)
    if producer_id >= 0 or attributes & _NOT_PRODUCED:
        _check_origin(header, ids)
    if settings.log_append_time:
        return header
    if attributes & LOG_APPEND_TIME:
        raise MillstreamError(ErrorCode.INVALID_TIMESTAMP, "a producer must not mark a batch with the log append time")
    check_times(first_ms if first_ms < newest_ms else newest_ms, newest_ms, settings, now_ms)
    return header


def stamp_append_time(records: memoryview, header: BatchHeader, now_ms: int) -> None:
    """Make the broker's time that of every record, in place: readers take the batch's newest time when the bit is set.

    The checksum covers both fields, so it is made anew; the records stay closed.
    """
    _pack_attributes(records, _ATTRIBUTES_POSITION, header.attributes | LOG_APPEND_TIME)
    _pack_timestamp(records, _MAX_TIMESTAMP_POSITION, now_ms)
    _pack_crc(records, _CRC_POSITION, crc32c(records[CRC_START:]))


def mark_ids(records: memoryview, header: BatchHeader, ids: int) -> BatchHeader:
    """Have the batch tell, in place, which ids its messages are stored under; its header from then on.

    A batch that says so already, as ours do, costs nothing here; for any other the checksum is made anew.
    """
    if header.attributes & ids:
        return header
    _pack_attributes(records, _ATTRIBUTES_POSITION, header.attributes | ids)
    _pack_crc(records, _CRC_POSITION, crc32c(records[CRC_START:]))
    return read_header(records)


def read_producer(records: memoryview) -> tuple[int, int, int]:
    """Producer id, epoch and first sequence of a batch, from the header alone."""
    producer_id, epoch, base_sequence = _PRODUCER.unpack_from(records, _PRODUCER_POSITION)
    return producer_id, epoch, base_sequence


def stamp_producer(records: memoryview, producer_id: int, epoch: int, base_sequence: int) -> None:
    """Make the batch another producer's, in place, with a new checksum."""
    _pack_producer(records, _PRODUCER_POSITION, producer_id, epoch, base_sequence)
    _pack_crc(records, _CRC_POSITION, crc32c(records[CRC_START:]))


def _invalid(detail: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_RECORD, detail)


def _refuse_format(magic: int) -> None:
    if magic in (0, 1):
        raise _invalid(f"the batch has the old message format {magic}; format {MAGIC} is needed")
    raise MillstreamError(ErrorCode.CORRUPT_MESSAGE, f"the batch has format {magic}, which does not exist")


def _refuse_size(size_bytes: int, sent_bytes: int) -> None:
    """A batch that is no batch at all is left to the check of its header."""
    if HEADER_BYTES <= size_bytes < sent_bytes:
        raise _invalid(f"{sent_bytes - size_bytes} bytes follow the batch; exactly one must be sent")
    if size_bytes > sent_bytes:
        raise _invalid(f"the batch has {size_bytes} bytes, of which {sent_bytes} were sent; it must be whole")


def _check_origin(header: BatchHeader, ids: int) -> None:
    """What only brokers write, and what an idempotent producer must fill in."""
    if header.attributes & ANY_IDS & ~ids:
        raise _invalid("the batch is marked as having message ids of a kind that it was not sent with")
    if header.attributes & _NOT_A_CLIENTS:
        if header.is_control:
            raise _invalid("control batches are written by brokers only")
        if not header.is_transactional:
            raise _invalid("a delete horizon is set by compaction only")
        raise MillstreamError(
            ErrorCode.INVALID_TXN_STATE, "this broker does not serve transactions; produce without transactional.id"
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(
            f"producer {header.producer_id} sent sequence {header.base_sequence} and epoch {header.producer_epoch}; "
            "neither may be negative"
        )


def check_times(oldest: int, newest: int, settings: TopicSettings, now_ms: int) -> None:
    """INVALID_TIMESTAMP when a time of a batch is too far from now for the topic."""
    if newest != NO_TIMESTAMP and newest - now_ms > settings.timestamp_after_max_ms:
        raise MillstreamError(
            ErrorCode.INVALID_TIMESTAMP,
            f"time {newest} is {newest - now_ms} ms ahead of the broker's; "
            f"message.timestamp.after.max.ms is {settings.timestamp_after_max_ms}",
        )
    if oldest != NO_TIMESTAMP and now_ms - oldest > settings.timestamp_before_max_ms:
        raise MillstreamError(
            ErrorCode.INVALID_TIMESTAMP,
            f"time {oldest} is {now_ms - oldest} ms behind the broker's; "
            f"message.timestamp.before.max.ms is {settings.timestamp_before_max_ms}",
        )
