"""Checks docs/spec-coverage.md: every row must exist, and so must every test that it names.

Users rely on the table to see what works, so it must not claim anything without a test. This script runs in `make
check`. `make test` then fails if a named test was skipped or did not run (tests/conftest.py).
"""

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "spec-coverage.md"

ROWS_PER_AREA = {"T": 8, "W": 9, "R": 9, "L": 8, "C": 7, "I": 3, "P": 10, "S": 5, "O": 4}
STATES = ("done", "partly", "not yet")

_ROW = re.compile(r"^\| *([A-Z]\d+) *\|([^|]*)\|([^|]*)\|([^|]*)\|$")
_TEST = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """One row of the table."""

    id: str
    state: str
    tests: tuple[str, ...]


def read_rows(text: str) -> list[Row]:
    """Parse the rows of the table; other lines are ignored."""
    found = []
    for line in text.splitlines():
        if match := _ROW.match(line):
            found.append(Row(match[1], match[3].strip(), tuple(_TEST.findall(match[4]))))
    return found


def problems(rows: list[Row], tests_there: Mapping[str, set[str]]) -> list[str]:
    """Find the errors in the table; `tests_there` has the test names of each file."""
    expected = [f"{area}{number}" for area, count in ROWS_PER_AREA.items() for number in range(1, count + 1)]
    listed = [row.id for row in rows]
    found = [f"{id_} is missing" for id_ in expected if id_ not in listed]
    found += [f"{id_} is not a row of the specification" for id_ in listed if id_ not in expected]
    found += [f"{id_} is listed more than once" for id_ in sorted(set(listed)) if listed.count(id_) > 1]
    for row in rows:
        if not row.state.startswith(STATES):
            found.append(f"{row.id}: the state {row.state!r} must begin with one of {', '.join(STATES)}")
        if row.state.startswith("partly") and len(row.state) <= len("partly: "):
            found.append(f"{row.id}: 'partly' must name what is missing")
        if row.state.startswith("not yet") == bool(row.tests):
            found.append(
                f"{row.id}: {row.state!r} with {len(row.tests)} tests; only what works may and must have tests"
            )
        for test in row.tests:
            path, _, name = test.partition("::")
            if name not in tests_there.get(path, set()):
                found.append(f"{row.id}: the test {test} does not exist")
    return found


def names_of_tests(source: str) -> set[str]:
    """The names of the tests in a file: `test_x`, or `TestY::test_x` within a class."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = (sub for sub in node.body if isinstance(sub, ast.FunctionDef | ast.AsyncFunctionDef))
            names.update(f"{node.name}::{sub.name}" for sub in inner if sub.name.startswith("test"))
    return names


def unproven(named: Iterable[str], outcomes: Mapping[str, set[str]]) -> list[str]:
    """Find named tests that a run did not prove; `outcomes` has the results per test, without parameters."""
    found = []
    for test in sorted(set(named)):
        seen = outcomes.get(test, set())
        if not seen:
            found.append(f"{test} did not run")
        elif seen != {"passed"}:
            found.append(f"{test}: {', '.join(sorted(seen))}")
    return found


def named_tests() -> set[str]:
    """All tests that the table names."""
    return {test for row in read_rows(TABLE.read_text(encoding="utf-8")) for test in row.tests}


def main() -> int:
    rows = read_rows(TABLE.read_text(encoding="utf-8"))
    files = {test.partition("::")[0] for row in rows for test in row.tests}
    there = {
        name: names_of_tests((ROOT / name).read_text(encoding="utf-8")) for name in files if (ROOT / name).is_file()
    }
    found = problems(rows, there)
    for line in found:
        print(f"docs/spec-coverage.md: {line}", file=sys.stderr)
    if not found:
        proven = sum(1 for row in rows if row.tests)
        print(f"docs/spec-coverage.md: {len(rows)} rows, {proven} with tests, all of which exist.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
