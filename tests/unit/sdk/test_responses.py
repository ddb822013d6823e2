"""What becomes of a broker's answers."""

import pytest

from millstream.model.errors import ErrorCode
from millstream.sdk.responses import refusal


@pytest.mark.parametrize(
    ("concerns", "text", "detail"),
    [
        ("creating topic 'a'", "topic 'a' exists already", "topic 'a' exists already"),
        ("creating topic 'a'", "foo: no such setting", "creating topic 'a': foo: no such setting"),
        ("creating topic 'a'", None, f"creating topic 'a': {ErrorCode.INVALID_REQUEST.meaning}"),
        ("listing groups", "it's late", "listing groups: it's late"),
    ],
)
def test_a_refusal_names_what_it_concerned_once(concerns: str, text: str | None, detail: str) -> None:
    assert refusal(ErrorCode.INVALID_REQUEST.number, concerns, text).detail == detail
