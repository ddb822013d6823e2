"""Encodes message values as configured: text, JSON, a msgspec type, a pydantic model, or a user's function.

These are the formats in which consumers decode (`sdk/consuming/decoding.py`). None stays a null value, a tombstone, and
is never passed to the encoder. A producer without a value format does not use this module.
"""

from collections.abc import Callable, Iterable, Sequence
from types import UnionType
from typing import Any, get_origin

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.producing.message_ids import as_column
from millstream.sdk.value_formats import EncodedValues

_SHOWN_MAX = 60


class UnencodableError(ValueError):
    """A value that cannot be encoded in the producer's format. The message was not put."""

    def __init__(self, topic: str, key: Any, reason: BaseException) -> None:
        super().__init__(topic, key, reason)
        self.topic = topic
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        shown = repr(self.key)
        shown = shown if len(shown) <= _SHOWN_MAX else shown[:_SHOWN_MAX] + "..."
        reason = f"{type(self.reason).__name__}: {self.reason}"
        return f"topic {self.topic!r}, key {shown}: the value cannot be encoded: {reason}"


class ValueEncoder:
    """Encodes the values of one producer. Raises UnencodableError, with topic and key, for an unsuitable value."""

    def __init__(self, values: EncodedValues) -> None:
        self._make = _maker(values)

    def __call__(self, topic: str, value: Any, key: Any) -> bytes | None:
        """Encode the value of one message."""
        if value is None:
            return None
        try:
            return self._make(value)
        except Exception as error:
            raise UnencodableError(topic, key, error) from error

    def column(self, topic: str, values: Iterable[Any], keys: Iterable[Any] | None) -> list[bytes | None]:
        """Encode the values of many messages. The error names the key of the message if `keys` is a sequence."""
        known: Sequence[Any] = keys if isinstance(keys, Sequence) else ()
        return [
            self(topic, value, known[row] if row < len(known) else None)
            for row, value in enumerate(as_column(values, "values"))
        ]

    def before(self, put: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the accumulator's `put`, so that it gets the encoded value."""

        def put_encoded(topic: str, value: Any, key: Any, *rest: Any) -> Any:
            return put(topic, self(topic, value, key), key, *rest)

        return put_encoded


def value_encoder(values: EncodedValues) -> ValueEncoder | None:
    """Return the encoder of a value format; None if values are bytes. Raises INVALID_SETTING for an unknown format."""
    return None if values is None or values is bytes else ValueEncoder(values)


def _maker(values: EncodedValues) -> Callable[[Any], bytes]:
    if values == "json":
        return _json_encoder()
    if values is str:
        return _text
    if isinstance(values, type) and hasattr(values, "model_dump_json"):
        return _checked(values, lambda value: value.model_dump_json().encode())
    if isinstance(values, UnionType):
        return _checked(values, _json_encoder())
    if isinstance(values, type) or get_origin(values) is not None:  # `list[Order]` is not an instance of `type`.
        origin = get_origin(values) or values
        return _checked(origin, _json_encoder()) if isinstance(origin, type) else _json_encoder()
    if callable(values):
        return _custom(values)
    text = f'values={values!r}: expected str, "json", a msgspec type, a pydantic model or a function that returns bytes'
    raise MillstreamError(ErrorCode.INVALID_SETTING, text)


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"expected str, not {type(value).__name__}")
    return value.encode()


def _json_encoder() -> Callable[[Any], bytes]:
    import msgspec

    encode = msgspec.json.Encoder().encode

    def as_json(value: Any) -> bytes:
        if isinstance(value, bytes | bytearray | memoryview):
            raise TypeError("JSON has no bytes; pass the object that the bytes encode")
        return encode(value)

    return as_json


def _checked(kind: Any, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Wrap `encode` so that it refuses values of other types: consumers of this type could not decode them."""
    try:
        isinstance(None, kind)
    except TypeError:  # A union with parameters, such as `list[int] | None`, has no instance check.
        return encode
    name = getattr(kind, "__name__", str(kind))

    def encode_checked(value: Any) -> bytes:
        if not isinstance(value, kind):
            raise TypeError(f"expected {name}, not {type(value).__name__}")
        return encode(value)

    return encode_checked


def _custom(encode: Callable[[Any], Any]) -> Callable[[Any], bytes]:
    def checked(value: Any) -> bytes:
        made = encode(value)
        if isinstance(made, str):
            return made.encode()
        if not isinstance(made, bytes | bytearray | memoryview):
            raise TypeError(f"the function returned {type(made).__name__}, expected bytes or str")
        return bytes(made)

    return checked
