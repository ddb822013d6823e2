"""Tests the script that checks docs/spec-coverage.md."""

import pytest

from spec_coverage import ROWS_PER_AREA, Row, names_of_tests, problems, read_rows, unproven

IDS = [f"{area}{number}" for area, count in ROWS_PER_AREA.items() for number in range(1, count + 1)]
THERE = {"tests/test_a.py": {"test_x", "TestY::test_z"}}


def table(*changed: Row) -> list[Row]:
    rows = {id_: Row(id_, "not yet", ()) for id_ in IDS}
    return [*({**rows, **{row.id: row for row in changed}}).values()]


def test_a_complete_and_correct_coverage_table_has_no_problems() -> None:
    done = Row("T6", "done", ("tests/test_a.py::test_x", "tests/test_a.py::TestY::test_z"))
    assert problems(table(done, Row("W4", "partly: message ids", ("tests/test_a.py::test_x",))), THERE) == []


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (Row("T6", "done", ("tests/test_a.py::test_gone",)), "T6: the test tests/test_a.py::test_gone does not exist"),
        (Row("T6", "done", ("tests/test_b.py::test_x",)), "T6: the test tests/test_b.py::test_x does not exist"),
        (Row("T6", "done", ()), "T6: 'done' with 0 tests"),
        (Row("T6", "not yet", ("tests/test_a.py::test_x",)), "T6: 'not yet' with 1 tests"),
        (Row("T6", "partly", ("tests/test_a.py::test_x",)), "T6: 'partly' must name what is missing"),
        (Row("T6", "maybe", ("tests/test_a.py::test_x",)), "T6: the state 'maybe' must begin with one"),
        (Row("Z1", "not yet", ()), "Z1 is not a row of the specification"),
    ],
)
def test_a_coverage_row_without_matching_tests_is_refused(row: Row, problem: str) -> None:
    found = problems(table(row), THERE)
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_missing_and_repeated_coverage_rows_are_found() -> None:
    rows = table()
    assert problems([*rows[1:], rows[1]], THERE) == ["T1 is missing", "T2 is listed more than once"]


def test_coverage_rows_are_parsed_and_other_lines_ignored() -> None:
    text = "| row | what | state | tests |\n|---|---|---|---|\n| T6 | Auto | done | `a.py::test_x` `b.py::test_y` |\n"
    assert read_rows(text) == [Row("T6", "done", ("a.py::test_x", "b.py::test_y"))]


def test_test_names_are_found_in_modules_and_classes() -> None:
    source = "def test_x(): ...\nasync def test_y(): ...\ndef other(): ...\nclass TestZ:\n    def test_w(self): ...\n"
    assert names_of_tests(source) == {"test_x", "test_y", "TestZ::test_w"}


def test_a_test_is_proven_only_if_all_its_parameters_passed() -> None:
    outcomes = {"a::test_1": {"passed"}, "a::test_2": {"passed", "skipped"}, "a::test_3": {"failed"}}
    assert unproven(["a::test_1", "a::test_2", "a::test_3", "a::test_4"], outcomes) == [
        "a::test_2: passed, skipped",
        "a::test_3: failed",
        "a::test_4 did not run",
    ]
