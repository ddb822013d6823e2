"""Parses messages from JSON lines, in the format that `get --json` prints."""

from base64 import b64decode
from binascii import Error as Base64Error
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from millstream.cli.messages.message_input import Header, MessageToPut

_Text = str | None | UnsetType
_Base64 = str | UnsetType


class _HeaderLine(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: _Text = UNSET
    value_base64: _Base64 = UNSET


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line. `topic` and `offset` are ignored, so that output of `get` and `dump` can be written again."""

    value: _Text = UNSET
    value_base64: _Base64 = UNSET
    key: _Text = UNSET
    key_base64: _Base64 = UNSET
    headers: list[_HeaderLine] | dict[str, str | None] = msgspec.field(default_factory=list)
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    timestamp: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    topic: str | None = None
    offset: int | None = None
    action: str = "put"


_decoder = msgspec.json.Decoder(_Line)


def parse_line(line: bytes) -> MessageToPut:
    """Parses the message of one line. Raises ValueError with the problem and the expected form."""
    try:
        row = _decoder.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(f'{error}; expected an object such as {{"key": "k", "value": "v"}}') from None
    if row.action not in ("put", "delete"):
        raise ValueError(f'"action" is {row.action!r}; expected "put" or "delete"')
    if row.value is UNSET and row.value_base64 is UNSET:
        raise ValueError('missing "value" (null for a tombstone) or "value_base64" (for bytes)')
    return MessageToPut(
        _bytes("value", row.value, row.value_base64),
        _bytes("key", row.key, row.key_base64),
        _headers(row.headers),
        row.partition,
        row.timestamp,
    )


def _headers(rows: list[_HeaderLine] | dict[str, str | None]) -> tuple[Header, ...]:
    if isinstance(rows, dict):
        return tuple((name, _bytes("value", value, UNSET)) for name, value in rows.items())
    return tuple((row.name, _bytes("value", row.value, row.value_base64)) for row in rows)


def _bytes(name: str, text: _Text, base64: _Base64) -> bytes | None:
    if isinstance(base64, UnsetType):
        if text is None or isinstance(text, UnsetType):
            return None
        return text.encode()
    if not isinstance(text, UnsetType):
        raise ValueError(f'both "{name}" and "{name}_base64" are given; expected only one')
    try:
        return b64decode(base64, validate=True)
    except Base64Error as error:
        raise ValueError(f'"{name}_base64" is not valid base64: {error}') from None
