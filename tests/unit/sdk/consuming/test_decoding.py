"""What a consumer makes of values, as it was told to."""

from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, PositiveInt

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.message import Message
from millstream.sdk.consuming.decoding import UndecodableError, Values, decoder


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
def test_a_value_is_what_was_made_of_its_bytes(values: Values, data: bytes | None, expected: Any) -> None:
    decode = decoder(values)
    assert decode is not None
    assert decode(message(data)) == message(None).with_value(expected)


@pytest.mark.parametrize("values", [None, bytes])
def test_values_that_are_to_be_bytes_are_left_alone(values: Values) -> None:
    assert decoder(values) is None


@pytest.mark.parametrize(
    ("values", "data"), [(str, b"\xff"), ("json", b"{"), (Order, b"{}"), (int, b"x"), (Model, b'{"number": -3}')]
)
def test_a_value_that_is_not_what_was_said_is_an_error_that_has_the_message(values: Values, data: bytes) -> None:
    decode = decoder(values)
    assert decode is not None
    with pytest.raises(UndecodableError, match="orders-0 at offset 7") as caught:
        decode(message(data))
    assert caught.value.message == message(data)


@pytest.mark.parametrize("values", ["text", 7, b"json"])
def test_what_is_no_way_to_decode_is_refused(values: Any) -> None:
    with pytest.raises(MillstreamError) as caught:
        decoder(values)
    assert caught.value.code is ErrorCode.INVALID_SETTING
