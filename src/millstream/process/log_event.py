"""Defines the message of a log record that has fields, for libraries whose records other programs format.

The SDK runs in programs with their own logging, which would not show fields passed as `extra`. The text of a `LogEvent`
therefore contains the fields. The formatters of `process.logs` take event and fields apart.
"""

import json
from collections.abc import Mapping

import msgspec


class LogEvent:
    """An event with fields. Its text is `connection lost broker=127.0.0.1:9092 error="timed out"`."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, /, **fields: object) -> None:
        self.event = event
        self.fields: Mapping[str, object] = fields

    def __str__(self) -> str:
        return self.event + shown_fields(self.fields)


def shown_fields(fields: Mapping[str, object]) -> str:
    """Returns ` name=value` for each field, with quotes where a value needs them."""
    return "".join(f" {name}={_shown(value)}" for name, value in fields.items())


def _shown(value: object) -> str:
    text = str(value)
    if not text.isprintable():  # A client could otherwise write control characters to a terminal.
        return json.dumps(text)
    if text and not any(char in text for char in ' "='):
        return text
    return msgspec.json.encode(text).decode()
