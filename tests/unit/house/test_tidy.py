"""Holds counts of long files, long names and unclear docstrings to limits that may only fall.

A count above its limit fails and lists the locations. A count below its limit fails too: lower the limit in the same
commit.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from unit.house import tidy
from unit.house.tidy import Module

ROOT = Path(__file__).parents[3]
SOURCES, TESTS, BENCH, SCRIPTS = (tidy.modules(ROOT, folder) for folder in ("src", "tests", "bench", "scripts"))
EVERYTHING = [*SOURCES, *TESTS, *BENCH, *SCRIPTS]

FOLDER_MAX = 20
SHARED_CLASS_NAMES = {"CommittedOffset", "GroupDescription", "QueryResult"}
"""Class names that mean one concept on the two sides of the wire."""
CROWDED_FOLDERS = {"src/millstream/broker/handlers": 55, "bench": 28, "tests/interop": 23}
"""Handlers are exempt: the folder has one per API. The other limits may only fall."""

LIMITS = {
    "source files over 400 lines": (3, tidy.files(SOURCES, 400)),
    "source files over 800 lines": (1, tidy.files(SOURCES, 800)),
    "source functions over 40 lines": (22, tidy.functions(SOURCES, 40)),
    "source functions over 60 lines": (4, tidy.functions(SOURCES, 60)),
    "source functions over 85 lines": (0, tidy.functions(SOURCES, 85)),
    "source classes over 250 lines": (13, tidy.classes(SOURCES, 250)),
    "source classes over 350 lines": (0, tidy.classes(SOURCES, 350)),
    "test files over 400 lines": (14, tidy.files(TESTS, 400)),
    "test functions over 50 lines": (2, tidy.functions(TESTS, 50)),
    "bench files over 400 lines": (0, tidy.files(BENCH, 400)),
    "bench functions over 40 lines": (0, tidy.functions(BENCH, 40)),
    "module docstrings that open with a riddle": (0, tidy.riddles(SOURCES)),
    "other docstrings that open with a riddle": (0, tidy.all_riddles(SOURCES)),
    "test modules whose docstring opens with a riddle": (0, tidy.riddles(TESTS)),
    "assignments to attributes of another module's objects": (173, tidy.foreign_assignments(SOURCES)),
    "functions with two positional integers side by side": (10, tidy.adjacent_integers(SOURCES)),
    "modules that state an invariant and assert nothing": (0, tidy.unasserted_invariants(SOURCES)),
    f"test names over {tidy.TEST_NAME_MAX} characters": (0, tidy.long_test_names(TESTS)),
}


@pytest.mark.parametrize("what", LIMITS)
def test_the_count_of_each_tidy_rule_is_at_its_limit(what: str) -> None:
    limit, found = LIMITS[what]
    assert len(found) <= limit, f"{what}: {len(found)}, at most {limit} are allowed:\n" + "\n".join(found)
    assert len(found) == limit, f"{what}: only {len(found)} are left; lower the limit from {limit}"


def test_class_names_exist_in_one_module_or_mean_the_same_on_both_sides() -> None:
    shared = tidy.shared_class_names(SOURCES)
    assert {name: where for name, where in shared.items() if name not in SHARED_CLASS_NAMES} == {}
    assert set(shared) == SHARED_CLASS_NAMES, "remove the names that are unique now"


def test_folders_hold_at_most_twenty_modules() -> None:
    assert tidy.crowded_folders(EVERYTHING, FOLDER_MAX) == CROWDED_FOLDERS


def test_every_module_has_an_importer() -> None:
    settings = [ROOT / name for name in ("pyproject.toml", "Makefile", "setup.py")]
    assert tidy.dead_modules(SOURCES, [], [path.read_text(encoding="utf-8") for path in settings]) == []


def _modules(*sources: str) -> Sequence[Module]:
    return [Module(f"src/package/module{number}.py", source) for number, source in enumerate(sources)]


def test_files_classes_and_functions_over_a_number_of_lines_are_found() -> None:
    (module,) = _modules("class A:\n    def f(self):\n        return 1\n\n    async def g(self):\n        return 2\n")
    assert tidy.classes([module], 5) == ["src/package/module0.py:1 A: 6"]
    assert tidy.functions([module], 1) == ["src/package/module0.py:2 f: 2", "src/package/module0.py:5 g: 2"]
    assert tidy.functions([module], 2) == []
    assert tidy.files([module], 5) == ["src/package/module0.py: 6"]


def test_line_counts_exclude_docstrings() -> None:
    (module,) = _modules(
        '"""Text.\n\nMore.\n"""\nclass A:\n    """Text."""\n    a: int\n    """Text.\n\n    More."""\n'
    )
    assert tidy.files([module], 1) == ["src/package/module0.py: 2"]
    assert tidy.classes([module], 1) == ["src/package/module0.py:5 A: 2"]


def test_a_public_class_name_in_two_modules_is_found() -> None:
    found = _modules("class A: ...\nclass B: ...\nclass _C: ...\n", "class A: ...\nclass _C: ...\n")
    assert tidy.shared_class_names(found) == {"A": ["package.module0", "package.module1"]}


@pytest.mark.parametrize("opening", ["What it does.", "Whoever waits.", "Of all, the first.", "Is it there?"])
def test_a_docstring_without_a_leading_subject_is_found(opening: str) -> None:
    (module,) = _modules(f'"""{opening}"""\n\ndef f():\n    """{opening}"""\n')
    assert tidy.riddles([module]) == ["src/package/module0.py"]
    assert tidy.all_riddles([module]) == ["src/package/module0.py:3 f"]


@pytest.mark.parametrize("opening", ["Returns the offset.", "Whatsoever.", "Isolation levels.", "A row of the table."])
def test_a_docstring_with_a_leading_subject_passes(opening: str) -> None:
    assert tidy.riddles(_modules(f'"""{opening}"""\n')) == []


def test_a_test_name_over_the_maximum_is_found() -> None:
    name = "test_" + "a" * (tidy.TEST_NAME_MAX - 5)
    assert tidy.long_test_names(_modules(f"def {name}(): ...\n")) == []
    assert tidy.long_test_names(_modules(f"async def {name}a(): ...\n")) == [f"src/package/module0.py {name}a"]


@pytest.mark.parametrize("line", ["log.end = 1", "a, log.end = 1, 2", "log.end += 1", "self.log.end = 1"])
def test_an_assignment_to_an_attribute_of_another_object_is_found(line: str) -> None:
    (module,) = _modules(f"class A:\n    def f(self, log):\n        self.log = log\n        {line}\n")
    (found,) = tidy.foreign_assignments([module])
    assert found.startswith("src/package/module0.py:4 ")


@pytest.mark.parametrize("line", ["self.end = 1", "other.start = 1", "other.end = 1", "other['end'] = 1", "end = 1"])
def test_an_assignment_to_an_attribute_of_a_class_of_the_same_module_passes(line: str) -> None:
    source = f"class A:\n    start: int\n    def f(self, other):\n        self.end = 0\n        {line}\n"
    assert tidy.foreign_assignments(_modules(source)) == []


def test_an_invariant_that_is_not_asserted_is_found() -> None:
    stated = _modules(
        '"""Invariant: a < b."""\n',
        'class A:\n    """Invariants: a < b."""\n    def f(self):\n        assert self.a < self.b\n',
        '"""Guarantees: a comes before b."""\n',
    )
    assert tidy.unasserted_invariants(stated) == ["src/package/module0.py"]


@pytest.mark.parametrize("narrowing", ["isinstance(a, int)", "a is not None"])
def test_an_assertion_that_only_narrows_a_type_states_no_invariant(narrowing: str) -> None:
    found = _modules(f'"""Counts. Invariant: a > 0."""\na = 1\nassert {narrowing}\n')
    assert tidy.unasserted_invariants(found) == ["src/package/module0.py"]


@pytest.mark.parametrize(
    "arguments", ["a: int, b: int", "self, a: str, b: int, c: int = 0", "a: int, b: int, /", "a: int, b: int | None"]
)
def test_two_positional_integers_side_by_side_are_found(arguments: str) -> None:
    assert tidy.adjacent_integers(_modules(f"def f({arguments}): ...\n")) == ["src/package/module0.py:1 f"]


@pytest.mark.parametrize(
    "arguments", ["a: int, *, b: int", "a: int, b: str, c: int", "a: int, b: Offset", "a: int, b: str | None"]
)
def test_integers_that_cannot_be_swapped_positionally_are_accepted(arguments: str) -> None:
    assert tidy.adjacent_integers(_modules(f"def f({arguments}): ...\n")) == []


def test_a_module_that_nothing_imports_is_found() -> None:
    found = _modules(
        "from package import module1\n",
        "x = 'package.module2'\n",
        "",
        "import package.module4\n",
        "import package.module3\n",
    )
    assert tidy.dead_modules(found, [], ["entry = package.module0:main", "package.module3x"]) == [
        "package.module3",
        "package.module4",
    ]
