"""Checks that a failing loop inside a test reports its value."""

from pathlib import Path

import pytest

from builders.loops import for_each


def test_a_failure_inside_a_loop_names_the_value() -> None:
    seen = []

    @for_each("seed", range(5))
    def fails_at_three(seed: int) -> None:
        seen.append(seed)
        assert seed != 3

    with pytest.raises(AssertionError) as caught:
        fails_at_three()
    assert caught.value.__notes__ == ["with seed=3"]
    assert seen == [0, 1, 2, 3]


@for_each("seed", range(3))
def test_each_value_of_a_loop_gets_an_empty_directory(seed: int, tmp_path: Path) -> None:
    assert list(tmp_path.iterdir()) == []
    (tmp_path / str(seed)).touch()


def test_a_loop_without_values_is_refused() -> None:
    with pytest.raises(AssertionError, match="no value for seed"):
        for_each("seed", [])
