"""Tests the parsing of bootstrap lists."""

from typing import Any

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.address import Address, parse_bootstrap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", [("localhost", 9092)]),
        ("localhost:1234", [("localhost", 1234)]),
        (" a:1 , b:2 ,", [("a", 1), ("b", 2)]),
        ("[::1]:9192", [("::1", 9192)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
        ("fe80::1%eth0", [("fe80::1%eth0", 9092)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
    ],
)
def test_a_bootstrap_list_is_parsed(text: str | list[str], expected: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap(text)) == [Address(*each) for each in expected]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " , ",
        "host:",
        ":9092",
        "host:port",
        "host:0",
        "host:65536",
        "[::1]9092",
        "a:-1",
        "bad:host:x",
        "a:1:2",
        "[a:1]:2",
        9092,
        None,
        b"host:1",
        ["a", 1],
    ],
)
def test_an_invalid_address_is_refused_with_the_expected_format(text: Any) -> None:
    with pytest.raises(MillstreamError) as caught:
        parse_bootstrap(text)
    assert caught.value.code is ErrorCode.INVALID_SETTING
    assert "host:port" in caught.value.detail


@pytest.mark.parametrize(("address", "text"), [(Address("a", 1), "a:1"), (Address("::1", 2), "[::1]:2")])
def test_the_text_of_an_address_can_be_parsed_again(address: Address, text: str) -> None:
    assert str(address) == text
    assert parse_bootstrap(text) == (address,)
