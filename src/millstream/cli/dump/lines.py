"""Formats the records or the batches of a log, one per line, as text or as JSON.

A record's line is `[date] [time] [topic] [partition] [offset] [key] [value] [action]`. Inside the brackets, bytes that
are not printable UTF-8 appear as `\\xNN`, or `\\n`, `\\r`, `\\t`. A backslash appears as `\\\\`, a closing bracket as
`\\]`, and null as `\\N`. A program can therefore parse the line and restore the original bytes.
"""

import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from millstream.cli.output import printable, record_document
from millstream.records.compression import Compression
from millstream.records.header import BatchHeader
from millstream.records.record import Record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHORT = {"\\": "\\\\", "]": "\\]", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MARKS = {0: "abort", 1: "commit"}
_MARK_KEY = struct.Struct(">hh")


class DumpPartition(NamedTuple):
    """The partition of a batch. `topic` is the topic's name, or its id if the name is unknown."""

    topic: str
    partition: int


class DumpFormat(NamedTuple):
    """Formatters for records and batches. If `record` is None, batches are printed instead of records."""

    record: Callable[[DumpPartition, BatchHeader, Record], str] | None
    batch: Callable[[DumpPartition, BatchHeader], str]


def format_for(*, batches: bool, as_json: bool) -> DumpFormat:
    record = record_json if as_json else record_line
    return DumpFormat(None if batches else record, batch_json if as_json else batch_line)


def record_line(where: DumpPartition, header: BatchHeader, record: Record) -> str:
    date, time = date_and_time(record.timestamp)
    topic = escaped(where.topic.encode(errors="surrogateescape"))
    place = f"[{date}] [{time}] [{topic}] [{where.partition}] [{record.offset}]"
    return f"{place} [{escaped(record.key)}] [{escaped(record.value)}] [{action(header, record)}]\n"


def record_json(where: DumpPartition, header: BatchHeader, record: Record) -> str:
    return _json_line({**record_document(*where, record), "action": action(header, record)})


def batch_line(where: DumpPartition, header: BatchHeader) -> str:
    fields = {name: value for name, value in batch_fields(where, header).items() if value is not None}
    return printable(" ".join(f"{name}={value}" for name, value in fields.items())) + "\n"


def batch_json(where: DumpPartition, header: BatchHeader) -> str:
    return _json_line(batch_fields(where, header))


def batch_fields(where: DumpPartition, header: BatchHeader) -> dict[str, Any]:
    """Returns the fields of a batch header. Fields that the batch does not use are None."""
    has_producer = header.producer_id >= 0
    flags = [
        name
        for name, is_set in (
            ("log-append-time", header.is_log_append_time),
            ("transactional", header.is_transactional),
            ("control", header.is_control),
        )
        if is_set
    ]
    return {
        "topic": where.topic,
        "partition": where.partition,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "bytes": header.size_bytes,
        "compression": _compression(header.compression),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id if has_producer else None,
        "producer_epoch": header.producer_epoch if has_producer else None,
        "base_sequence": header.base_sequence if has_producer else None,
        "crc": f"{header.crc:08x}",
        "flags": ",".join(flags) or None,
    }


def _compression(number: int) -> str:
    """Returns the compression's name, or the number itself if it is unknown, as in a damaged header."""
    try:
        return Compression(number).name.lower()
    except ValueError:
        return str(number)


def action(header: BatchHeader, record: Record) -> str:
    """Returns `put`, `delete` (a tombstone), or the type of a control record: `commit`, `abort` or `control`."""
    if header.is_control:
        kind = _MARK_KEY.unpack_from(record.key)[1] if record.key and len(record.key) >= _MARK_KEY.size else -1
        return _MARKS.get(kind, "control")
    return "delete" if record.value is None else "put"


def date_and_time(timestamp_ms: int) -> tuple[str, str]:
    """Returns a timestamp as UTC date and time, or as `-` and `@milliseconds` if no calendar date can represent it."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return "-", f"@{timestamp_ms}"
    if timestamp_ms < 0:
        return "-", f"@{timestamp_ms}"
    return moment.strftime("%Y-%m-%d"), f"{moment.strftime('%H:%M:%S')}.{timestamp_ms % 1000:03d}Z"


def escaped(data: bytes | None) -> str:
    """Escapes bytes as text for use inside brackets. The escapes can be reversed."""
    if data is None:
        return "\\N"
    text = data.decode(errors="surrogateescape")
    return text if text.isprintable() and "\\" not in text and "]" not in text else "".join(map(_escaped_one, text))


def _escaped_one(character: str) -> str:
    short = _SHORT.get(character)
    if short is not None:
        return short
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))


def _json_line(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False) + "\n"
