"""Encodes messages as JSON: as text if the bytes are UTF-8, otherwise as base64, unless the caller sets a format."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from millstream.gateway.http.resources.event_bodies import HeaderTexts
from millstream.model.message_id import ID_HEADER
from millstream.records.message import Message
from millstream.records.record import RecordHeader

Format = Literal["auto", "text", "json", "base64"]


class EventView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message. Key, value and headers are each present as text or, in the `_base64` field, as bytes."""

    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    key: Any = UNSET
    key_base64: str | UnsetType = UNSET
    value: Any = UNSET
    value_base64: str | UnsetType = UNSET
    headers: HeaderTexts | UnsetType = UNSET
    headers_base64: HeaderTexts | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    """The message id; missing if the writer's client does not use ids."""
    topic: str | UnsetType = UNSET
    """Present if the response has several topics."""


def shown(message: Message, form: Format = "auto", topic: str | UnsetType = UNSET) -> EventView:
    """Convert a message to its JSON form."""
    event = EventView(
        partition=message.partition, offset=message.offset, timestamp=message.timestamp, topic=topic, value=None
    )
    value, key = message.value, message.key
    if value is not None:
        event.value, event.value_base64 = _form(value, form)
    if key is not None:
        event.key, event.key_base64 = _form(key, "base64" if form == "base64" else "auto")
    else:
        event.key = None
    if message.headers:
        _show_headers(event, message.headers)
    own_id = message.message_id
    if own_id is not None:
        event.message_id = own_id.decode(errors="backslashreplace")
    return event


def _form(data: bytes, form: Format) -> tuple[Any, str | UnsetType]:
    """Return the data as text (or embedded JSON) and as base64. Exactly one of the two is set; the other is UNSET."""
    if form != "base64":
        if form == "json" and (embedded := _embedded(data)) is not None:
            return embedded, UNSET
        try:
            return data.decode(), UNSET
        except UnicodeDecodeError:
            if form == "text":
                return data.decode(errors="replace"), UNSET
    return UNSET, b64encode(data).decode()


def _embedded(data: bytes) -> Raw | None:
    """Return the bytes as raw JSON, or None if they are not JSON."""
    try:
        msgspec.json.decode(data)
        data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Raw(data)


def _show_headers(event: EventView, headers: Sequence[RecordHeader]) -> None:
    """Add the headers. The values of a repeated name become one list: all as text, or all as base64."""
    by_name: dict[str, list[bytes | None]] = {}
    for name, data in headers:
        if name != ID_HEADER:
            by_name.setdefault(name, []).append(data)
    texts: HeaderTexts = {}
    packed: HeaderTexts = {}
    for name, values in by_name.items():
        try:
            texts[name] = _alone([None if data is None else data.decode() for data in values])
        except UnicodeDecodeError:
            packed[name] = _alone([None if data is None else b64encode(data).decode() for data in values])
    if texts:
        event.headers = texts
    if packed:
        event.headers_base64 = packed


def _alone(values: list[str | None]) -> str | list[str | None] | None:
    return values if len(values) > 1 else values[0]
