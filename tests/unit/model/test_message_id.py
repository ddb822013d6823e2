"""Checks that each message id has exactly one form, and that invalid ids are refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import EPOCH_MAX, ID_BYTES_MAX, MadeId, as_message_id, parse_message_id

int32s = st.integers(0, 2**31 - 1)
made_ids = st.builds(MadeId, st.integers(0, 2**63 - 1), st.integers(0, EPOCH_MAX - 1), int32s, int32s, int32s)


@given(made_ids)
def test_a_made_id_is_parsed_back_unchanged(made: MadeId) -> None:
    assert parse_message_id(made.encode()) == made
    assert as_message_id(str(made)) == as_message_id(made) == made.encode()


@given(st.binary(min_size=1, max_size=ID_BYTES_MAX).filter(lambda data: not data.startswith(b"~")))
def test_a_natural_id_is_parsed_unchanged(data: bytes) -> None:
    assert parse_message_id(data) == as_message_id(data) == data


@given(st.binary(max_size=40))
def test_an_id_with_the_made_prefix_is_canonical_or_refused(data: bytes) -> None:
    try:
        parsed = parse_message_id(b"~" + data)
    except MillstreamError:
        return
    assert isinstance(parsed, MadeId)
    assert parsed.encode() == b"~" + data


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * (ID_BYTES_MAX + 1),
        "~",
        "~1.2.3.4",
        "~1.2.3.4.5.6",
        "~01.0.0.0.0",
        "~+1.0.0.0.0",
        "~-1.0.0.0.0",
        "~1.0.0.0. 0",
        "~1.0.0.0.\u0661",
        "~9223372036854775808.0.0.0.0",
        "~1.32767.0.0.0",
        "~1.0.2147483648.0.0",
        "~1.0.0.2147483648.0",
        "~1.0.0.0.2147483648",
    ],
)
def test_an_invalid_message_id_is_refused(text: str) -> None:
    with pytest.raises(MillstreamError) as refused:
        as_message_id(text)
    assert refused.value.code is ErrorCode.INVALID_MESSAGE_ID


@pytest.mark.parametrize("wrong", [5, None, 1.5, ["a"], (1, 2)])
def test_an_id_that_is_neither_bytes_nor_str_raises_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a message id is bytes or str"):
        as_message_id(wrong)
