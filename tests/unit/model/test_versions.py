"""Tests the version window of clients and brokers."""

import pytest

from millstream.model.versions import work_together


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("1.5.0", "1.5.0", True),
        ("1.5.0", "1.3.9", True),
        ("1.5.0", "1.7", True),
        ("1.5.0", "1.2.9", False),
        ("1.5.0", "1.8.0", False),
        ("1.5.0", "2.5.0", False),
        ("0.1.0", "0.1.0.dev1", True),
        ("1.5rc1", "1.5", True),
        ("1.5", "1", False),
        ("1.5", "", False),
        ("x", "x", False),
        ("1.999999", "1.999999", False),
    ],
)
def test_versions_work_together_up_to_two_minor_versions_apart(one: str, other: str, expected: bool) -> None:
    assert work_together(one, other) is expected
    assert work_together(other, one) is expected
