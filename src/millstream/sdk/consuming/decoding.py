"""Makes values of bytes, as a consumer was told to: text, JSON, a msgspec type, a pydantic model, or a user's function.

A null value stays None: it says that there is no value.
"""

from collections import deque
from collections.abc import Callable
from types import UnionType
from typing import Any, get_origin

import msgspec

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.message import Message

Decode = Callable[[Message], Message]
Values = str | type | UnionType | Callable[[bytes], Any] | None
"""What to make of values: nothing (or `bytes`), "json", a type (`str`: UTF-8), or what a function makes of them."""


class UndecodableError(MillstreamError):
    """A value that is not what the consumer was told it is; `message` has it as it came.

    The consumer goes on behind it.
    """

    def __init__(self, message: Message, reason: BaseException) -> None:
        text = (
            f"{message.topic}-{message.partition} at offset {message.offset}: the value cannot be decoded: "
            f"{type(reason).__name__}: {reason}"
        )
        super().__init__(ErrorCode.UNDECODABLE_VALUE, text)
        self.message = message


def decoder(values: Values) -> Decode | None:
    """From messages with bytes to messages with values; None where they stay bytes.

    INVALID_SETTING for what is no way to decode.
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
            raise UndecodableError(message, error) from error

    return decode


def decode_some(decode: Decode, found: list[Message], left: deque[Message]) -> list[Message]:
    """What was found, decoded, up to the first that cannot be: that and what follows it goes back to `left`.

    Where it comes first it is raised, and passed over.
    """
    decoded: list[Message] = []
    for at, message in enumerate(found):
        try:
            decoded.append(decode(message))
        except MillstreamError:
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
    elif isinstance(values, type) or get_origin(values) is not None:  # list[Order] is no type to Python.
        make = getattr(values, "model_validate_json", None) or msgspec.json.Decoder(values).decode
    elif callable(values):
        make = values
    else:
        text = f'values={values!r}: expected str, "json", a msgspec type, a pydantic model or a function of bytes'
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    return make
