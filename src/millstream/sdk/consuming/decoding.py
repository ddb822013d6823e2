"""Decodes message values as configured: text, JSON, a msgspec type, a pydantic model, or a user's function.

A null value stays None and is never passed to the decoder.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, get_origin

import msgspec

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.message import Message
from millstream.sdk.value_formats import Values
from millstream.seams.signal_handlers import raised_by_signal_handler

Decode = Callable[[Message], Message]


class UndecodableError(MillstreamError):
    """A message whose value cannot be decoded in the configured format; `message` holds the value as bytes.

    The consumer continues after this message.
    """

    def __init__(self, message: "Message[bytes]", reason: BaseException) -> None:
        text = (
            f"{message.topic}-{message.partition} at offset {message.offset}: the value cannot be decoded: "
            f"{type(reason).__name__}: {reason}"
        )
        super().__init__(ErrorCode.UNDECODABLE_VALUE, text)
        self.message = message


def decoder(values: Values) -> Decode | None:
    """Return the function that decodes a message's value; None if values stay bytes.

    Raises INVALID_SETTING if the format is unknown.
    """
    if values is None or values is bytes:
        return None
    make = _maker(values)

    def decode(message: Message) -> Message:
        if message.value is None:
            return message
        try:
            return message.with_value(make(message.value))
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
            raise UndecodableError(message, error) from error

    return decode


def decode_first(decode: Callable[[Message], Message | None], left: deque[Message]) -> Message:
    """Return the first message decoded, without removing it. Removes the messages before it that `decode` skips.

    Removes a message for which `decode` raises. Raises IndexError if no message is left.
    """
    while True:
        message = left[0]
        try:
            decoded = decode(message)
        except Exception as error:
            if not raised_by_signal_handler(error):
                del left[0]
            raise
        if decoded is not None:
            return decoded
        del left[0]


def decode_some(
    decode: Callable[[Message], Message | None], found: list[Message], left: deque[Message]
) -> list[Message]:
    """Decode `found` up to the first message that raises; that message and its successors go back to `left`.

    If no message precedes it, its error is raised and the message is skipped. `decode` returns None for messages that
    are left out.
    """
    decoded: list[Message] = []
    for at, message in enumerate(found):
        try:
            made = decode(message)
            if made is not None:
                decoded.append(made)
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
            left.extendleft(reversed(found[at + bool(not decoded) :]))
            if not decoded:
                raise
            break
    return decoded


def _maker(values: Values) -> Callable[[bytes], Any]:
    make: Callable[[bytes], Any]
    if values == "json":
        make = msgspec.json.decode
    elif values is str:
        make = bytes.decode
    elif isinstance(values, type) or get_origin(values) is not None:  # `list[Order]` is not an instance of `type`.
        make = getattr(values, "model_validate_json", None) or msgspec.json.Decoder(values).decode
    elif callable(values):
        make = values
    else:
        text = f'values={values!r}: expected str, "json", a msgspec type, a pydantic model or a function of bytes'
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    return make
