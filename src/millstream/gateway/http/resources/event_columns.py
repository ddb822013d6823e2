"""Converts JSON events to the columns of bytes that the producer takes. Cost per event is kept to the necessary
minimum.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Any

import msgspec

from millstream.gateway.failures import contradictory, invalid, missing
from millstream.gateway.http.resources.event_bodies import ABSENT, Event
from millstream.gateway.operations.writes import EventColumns, Headers, check_write_times, tombstone_without_key
from millstream.sdk.producing.put_arguments import TOMBSTONE_WITHOUT_KEY

_QUOTE = 0x22
_decode_text = msgspec.json.Decoder(str).decode


def columns_of(topic: str, events: Sequence[Event], path: str, rows: Sequence[int]) -> EventColumns:
    """Convert events to columns.

    `path` is the location of the events in the request, for errors, and `rows` are their indexes there. The path of a
    single event is empty.
    """
    values, keys = _values(events, path, rows), _keys(events, path, rows)
    timestamps = _column([event.timestamp for event in events])
    _check_tombstones(values, keys, path, rows)
    if timestamps is not None:
        check_write_times(timestamps, lambda index: _named(path, rows[index], "timestamp"))
    return EventColumns(
        topic,
        values,
        keys,
        _headers(events, path, rows),
        timestamps,
        _column([event.partition for event in events]),
        _column([event.hash for event in events]),
        _column([event.message_id for event in events]),
    )


def _check_tombstones(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, path: str, rows: Sequence[int]
) -> None:
    if None in values:
        index = tombstone_without_key(values, keys)
        if index is not None:
            raise missing(_named(path, rows[index], "key"), TOMBSTONE_WITHOUT_KEY)


def _column(found: list[Any]) -> list[Any] | None:
    """Return the column, or None if all of its entries are None."""
    return None if found.count(None) == len(found) else found


def _values(events: Sequence[Event], path: str, rows: Sequence[int]) -> list[bytes | None]:
    found: list[bytes | None] = []
    for row, event in zip(rows, events, strict=True):
        data = bytes(event.value)
        if event.value_base64 is None and data[:1] == b'"' and b"\\" not in data:
            found.append(data[1:-1])  # A JSON string without escapes is already its UTF-8 bytes.
        else:
            found.append(_value(event, data, path, row))
    return found


def _value(event: Event, data: bytes, path: str, row: int) -> bytes | None:
    if not data and event.value_base64 is None:
        raise missing(_named(path, row, "value"), "use null for a tombstone, or value_base64 for bytes")
    return _bytes(data, event.value_base64, path, row, "value")


def _keys(events: Sequence[Event], path: str, rows: Sequence[int]) -> list[bytes | None] | None:
    if all(event.key is ABSENT and event.key_base64 is None for event in events):
        return None
    return [
        _bytes(bytes(event.key), event.key_base64, path, row, "key") for row, event in zip(rows, events, strict=True)
    ]


def _bytes(data: bytes, base64: str | None, path: str, row: int, name: str) -> bytes | None:
    if base64 is not None:
        if data:
            raise contradictory(_named(path, row, name), f"set either {name} or {name}_base64, not both")
        return _unpacked(base64, _named(path, row, f"{name}_base64"))
    if not data or data == b"null":
        return None
    if data[0] != _QUOTE:
        return msgspec.json.format(data, indent=-1)
    if b"\\" not in data:
        return data[1:-1]
    try:
        return _decode_text(data).encode()
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise invalid(_named(path, row, name), str(error)) from None


def _headers(events: Sequence[Event], path: str, rows: Sequence[int]) -> list[Headers | None] | None:
    if all(event.headers is None and event.headers_base64 is None for event in events):
        return None
    return [_pairs(event, path, row) for row, event in zip(rows, events, strict=True)]


def _pairs(event: Event, path: str, row: int) -> Headers:
    """Return the names and values. Values of one name keep their order."""
    found: list[tuple[str, bytes | None]] = []
    for name, text in (event.headers or {}).items():
        found += [(name, None if each is None else each.encode()) for each in _listed(text)]
    for name, base64 in (event.headers_base64 or {}).items():
        field = _named(path, row, f"headers_base64.{name}")
        if event.headers and name in event.headers:
            raise contradictory(field, "the name is also in headers; use one of the two")
        found += [(name, None if each is None else _unpacked(each, field)) for each in _listed(base64)]
    return found


def _listed(values: str | list[str | None] | None) -> Sequence[str | None]:
    return values if isinstance(values, list) else (values,)


def _unpacked(base64: str, field: str) -> bytes:
    try:
        return b64decode(base64, validate=True)
    except (Base64Error, ValueError) as error:
        raise invalid(field, f"not valid base64: {error}") from None


def _named(path: str, row: int, name: str) -> str:
    return f"{path}[{row}].{name}" if path else name
