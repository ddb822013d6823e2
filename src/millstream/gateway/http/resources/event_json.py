"""Encodes messages as JSON: as text if the bytes are UTF-8, otherwise as base64, unless the caller sets a format."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from millstream.gateway.budget import Budget
from millstream.gateway.http.resources.event_bodies import HeaderTexts
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations.answer_limit import MESSAGE_BYTES, AnswerLimit
from millstream.model.message_id import ID_HEADER
from millstream.records.message import Message
from millstream.records.record import RecordHeader

COPIES_MAX = 3
"""Maximum number of copies of a response at one time: messages, their texts, and the JSON."""

GROWTH = 6
"""Maximum bytes of JSON for a byte of a message: a control character is written as six."""

_PLAIN = bytes(number for number in range(256) if number >= 0x20 and number not in b'"\\')
_SLICE = 64 * 1024

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


def answer_limit(budget: Budget, form: Format) -> AnswerLimit:
    """Return the limit of one response with messages in this format."""
    return AnswerLimit(budget.answer_bytes_max, GROWTH, partial(json_size, form=form))


@contextmanager
def building(request: WebRequest, messages: Sequence[Message], *, is_refusable: bool = True) -> Iterator[None]:
    """Count a response with these messages as held memory while it is built. Raises GATEWAY_FULL before that."""
    limit = answer_limit(request.site.budget, "auto")
    size_bytes = min(limit.bound(messages), COPIES_MAX * limit.most_bytes)
    request.share.take(size_bytes, is_refusable=is_refusable)
    try:
        yield
    finally:
        request.share.give_back(size_bytes)


def json_size(message: Message, form: Format) -> int:
    """Return a size that the JSON of a message does not exceed."""
    parts = [message.key or b"", *(data or b"" for _, data in message.headers)]
    size_bytes = sum(_text_size(part) for part in parts) + sum(6 * len(name) for name, _ in message.headers)
    value = message.value or b""
    if form == "base64":
        return size_bytes + MESSAGE_BYTES + (len(value) + 2) // 3 * 4
    replaced = 2 * len(value) if form == "text" and not value.isascii() else 0
    return size_bytes + MESSAGE_BYTES + _text_size(value) + replaced


def _text_size(data: bytes) -> int:
    """Return the larger of the sizes as a JSON text, whose control characters take six bytes, and as base64."""
    escaped = sum(len(data[at : at + _SLICE].translate(None, _PLAIN)) for at in range(0, len(data), _SLICE))
    return max(len(data) + 5 * escaped, (len(data) + 2) // 3 * 4)


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
