"""What commands print, on wide and narrow screens and into pipes."""

import pytest

from penstock.cli.nearest import nearest_names
from penstock.cli.output import counted, print_table, shown_size


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (150 * 1024, "150 KiB"),
        (5 * 2**20, "5.0 MiB"),
        (2**40, "1.0 TiB"),
        (5000 * 2**40, "5000.0 TiB"),
    ],
)
def test_sizes_have_as_many_digits_as_people_read(size_bytes: int, text: str) -> None:
    assert shown_size(size_bytes) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 batches"), (1, "1 batch"), (2, "2 batches")])
def test_nouns_follow_their_numbers(count: int, text: str) -> None:
    assert counted(count, "batch", "batches") == text


def test_a_table_in_a_pipe_is_as_wide_as_it_needs_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "messages"), [("x" * 300, 5)], numbers=("messages",))
    assert "x" * 300 in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ordrs", ["orders"]),
        ("ORDERS", ["orders"]),
        ("visit", ["visits"]),
        ("payments", []),
    ],
)
def test_names_that_could_have_been_meant_are_found(name: str, expected: list[str]) -> None:
    assert nearest_names(name, ["orders", "visits", "greetings"]) == expected
