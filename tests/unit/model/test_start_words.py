"""Tests the words for start positions, and the defaults of each kind of reader."""

from pathlib import Path

import pytest

from millstream.model.start_words import (
    ACCEPTED_WORDS,
    BEGINNING,
    FOLLOW_START,
    GROUP_START,
    LATEST,
    READ_START,
    START_WORDS,
    follow_start,
    start_word,
)


@pytest.mark.parametrize("word", ["beginning", "earliest", "Earliest", "BEGINNING", " beginning "])
def test_beginning_and_earliest_are_the_same_position(word: str) -> None:
    assert start_word(word) == BEGINNING


@pytest.mark.parametrize("word", ["latest", "end", "LATEST", "End"])
def test_latest_and_end_are_the_same_position(word: str) -> None:
    assert start_word(word) == LATEST


@pytest.mark.parametrize("text", ["", "first", "0", "begin", "7d"])
def test_other_text_is_not_a_start_word(text: str) -> None:
    assert start_word(text) is None


def test_error_messages_list_every_word() -> None:
    assert all(word in ACCEPTED_WORDS for word in START_WORDS)
    assert {start_word(word) for word in START_WORDS} == {BEGINNING, LATEST}


def test_following_readers_start_at_the_end_and_groups_at_the_beginning() -> None:
    assert (follow_start(None), follow_start("billing")) == (FOLLOW_START, GROUP_START) == (LATEST, BEGINNING)


def _rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of docs/positions.md."""
    page = (Path(__file__).parents[3] / "docs" / "positions.md").read_text(encoding="utf-8")
    table = page.split(f"## {heading}\n")[1].split("\n\n")[0]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_page_of_positions_lists_every_word() -> None:
    found = dict(_rows("Start positions"))
    assert list(found) == list(START_WORDS)
    for word in START_WORDS:
        synonym_of = start_word(word)
        assert word == synonym_of or found[word] == f"a synonym of `{synonym_of}"


def test_the_page_of_positions_has_the_default_of_every_kind_of_reader() -> None:
    found = {reader.split(":")[0]: default for reader, default in _rows("Defaults")}
    assert found == {
        "a read that returns what is stored and ends": READ_START,
        "a reader without a group that waits for new messages": FOLLOW_START,
        "a group, in partitions without a committed offset": GROUP_START,
    }
