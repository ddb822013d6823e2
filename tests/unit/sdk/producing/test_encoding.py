"""Tests encoding of values in each format of a producer, and that consumers decode them."""

import pickle
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.message import Message
from millstream.sdk.consuming.decoding import decoder
from millstream.sdk.producing.encoding import UnencodableError, ValueEncoder, value_encoder


class Order(msgspec.Struct):
    number: int


class Model(BaseModel):
    number: int


@pytest.mark.parametrize(
    ("values", "value"),
    [
        (str, "\N{SNOWMAN}"),
        ("json", {"number": 3}),
        ("json", "text"),
        ("json", False),
        (dict[str, int], {"number": 3}),
        (Order, Order(3)),
        (list[Order], [Order(3)]),
        (list[int] | None, [1]),
        (Order | int, 3),
        (Model, Model(number=3)),
    ],
)
def test_consumers_decode_what_producers_encode_in_each_format(values: Any, value: Any) -> None:
    encode, decode = value_encoder(values), decoder(values)
    assert encode is not None
    assert decode is not None
    data = encode("orders", value, None)
    assert isinstance(data, bytes)
    assert decode(Message("orders", 0, 0, 0, None, data)).value == value
    assert encode("orders", None, None) is None


@pytest.mark.parametrize("made", [b"ab", "ab", bytearray(b"ab"), memoryview(b"ab")])
def test_a_function_may_return_bytes_or_text(made: Any) -> None:
    assert ValueEncoder(lambda value: made)("orders", 1, None) == b"ab"


@pytest.mark.parametrize(
    ("values", "wrong", "reason"),
    [
        (str, b"bytes", "expected str, not bytes"),
        ("json", object(), "TypeError: Encoding objects of type object is unsupported"),
        ("json", b"{}", "JSON has no bytes"),
        (Order, {"number": 3}, "expected Order, not dict"),
        (Model, Order(3), "expected Model, not Order"),
        (Order | int, "3", "not str"),
        (list[Order], (Order(3),), "expected list, not tuple"),
        (len, "four", "the function returned int, expected bytes or str"),
        (lambda value: 1 // value, 0, "ZeroDivisionError"),
    ],
)
def test_an_unencodable_value_is_refused_with_topic_key_and_reason(values: Any, wrong: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        ValueEncoder(values)("orders", wrong, "alice")
    assert isinstance(caught.value, UnencodableError)
    assert "topic 'orders', key 'alice': the value cannot be encoded" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_error_of_a_column_names_the_key_of_its_message() -> None:
    encode = ValueEncoder(Order)
    assert encode.column("orders", iter([Order(1), None]), None) == [b'{"number":1}', None]
    with pytest.raises(UnencodableError, match="key 'bob'"):
        encode.column("orders", [Order(1), 2], ["alice", "bob"])


@pytest.mark.parametrize("values", [None, bytes])
def test_byte_values_need_no_encoder(values: Any) -> None:
    assert value_encoder(values) is None


@pytest.mark.parametrize("values", ["text", 7, b"json"])
def test_an_unknown_encoding_format_is_refused(values: Any) -> None:
    with pytest.raises(MillstreamError) as caught:
        value_encoder(values)
    assert caught.value.code is ErrorCode.INVALID_SETTING
