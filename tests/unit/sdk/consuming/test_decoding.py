"""Tests decoding of values in each configured format."""

from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, PositiveInt

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.message import Message
from millstream.sdk.consuming.decoding import UndecodableError, decoder
from millstream.sdk.value_formats import Values


class Order(msgspec.Struct):
    number: int


class Model(BaseModel):
    number: PositiveInt


def message(value: bytes | None) -> Message:
    return Message("orders", 0, 7, 0, None, value)


@pytest.mark.parametrize(
    ("values", "data", "expected"),
    [
        (str, "\N{SNOWMAN} is not JSON".encode(), "\N{SNOWMAN} is not JSON"),
        ("json", b'{"number": 3}', {"number": 3}),
        (dict[str, int], b'{"number": 3}', {"number": 3}),
        (Order, b'{"number": 3}', Order(3)),
        (list[Order], b'[{"number": 3}]', [Order(3)]),
        (Order | int, b"3", 3),
        (Model, b'{"number": "3"}', Model(number=3)),
        (Model, None, None),
        (len, b"four", 4),
        (str, None, None),
        (Order, None, None),
    ],
)
def test_values_are_decoded_in_the_configured_format(values: Values, data: bytes | None, expected: Any) -> None:
    decode = decoder(values)
    assert decode is not None
    assert decode(message(data)) == message(None).with_value(expected)


@pytest.mark.parametrize("values", [None, bytes])
def test_byte_values_need_no_decoder(values: Values) -> None:
    assert decoder(values) is None


@pytest.mark.parametrize(
    ("values", "data"), [(str, b"\xff"), ("json", b"{"), (Order, b"{}"), (int, b"x"), (Model, b'{"number": -3}')]
)
def test_an_undecodable_value_raises_an_error_with_the_message(values: Values, data: bytes) -> None:
    decode = decoder(values)
    assert decode is not None
    with pytest.raises(UndecodableError, match="orders-0 at offset 7") as caught:
        decode(message(data))
    assert caught.value.message == message(data)


@pytest.mark.parametrize("values", ["text", 7, b"json"])
def test_an_unknown_value_format_is_refused(values: Any) -> None:
    with pytest.raises(MillstreamError) as caught:
        decoder(values)
    assert caught.value.code is ErrorCode.INVALID_SETTING
