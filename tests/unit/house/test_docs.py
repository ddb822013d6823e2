"""Checks that the documentation matches the code."""

import re
from pathlib import Path
from typing import Any

import pytest

from millstream.cli import failures, main
from millstream.gateway.settings import TABLE as GATEWAY_TABLE
from millstream.node.settings import TABLE, load
from millstream.process import exit_codes
from millstream.process.settings import SettingsTable

ROOT = Path(__file__).parents[3]
SERVE = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
GATEWAY = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")


def rows(text: str) -> dict[str, str]:
    """The documented settings and their defaults."""
    return dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", text, flags=re.MULTILINE))


TABLES = [
    pytest.param(TABLE, rows(SERVE.partition("## Delivery guarantees")[0]), id="broker"),
    pytest.param(GATEWAY_TABLE, rows(GATEWAY.partition("## Settings")[2].partition("\n## ")[0]), id="gateway"),
]


@pytest.mark.parametrize(("table", "documented"), TABLES)
def test_the_documented_settings_are_those_of_the_table(table: SettingsTable[Any], documented: dict[str, str]) -> None:
    assert list(documented) == list(table.fields)


@pytest.mark.parametrize(("table", "documented"), TABLES)
def test_a_documented_default_is_that_of_the_table(table: SettingsTable[Any], documented: dict[str, str]) -> None:
    told = {name: default.strip("`") for name, default in documented.items() if default.startswith("`")}
    settings = table.load(told, {})
    assert {name: getattr(settings, name) for name in told} == {name: table.fields[name].default for name in told}


def test_the_example_settings_file_is_valid() -> None:
    example = re.search(r"```toml\n(.*?)```", SERVE, flags=re.DOTALL)
    assert example
    assert load({}, {}, ("broker.toml", example[1])).advertised_host == "broker.example.org"


def codes_of(page: str) -> set[int]:
    return {int(code) for code in re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE)}


def test_every_exit_code_is_documented() -> None:
    used = {value for name, value in vars(exit_codes).items() if name.startswith("EXIT_")}
    assert codes_of(SERVE) == used - {exit_codes.EXIT_NOT_INSTALLED}
    assert codes_of(GATEWAY) == used - {exit_codes.EXIT_DATA_IN_USE}


def test_every_command_exit_code_is_documented() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert codes_of(page) == {
        value
        for module in (main, failures, exit_codes)
        for name, value in vars(module).items()
        if name.startswith("EXIT_")
    }


def test_log_lines_quoted_in_the_disk_errors_section_exist() -> None:
    trouble = SERVE.partition("## Disk errors and recovery")[2].partition("\n## ")[0]
    quoted = set(re.findall(r"`((?:checkpoint|log|partition|reads?|writes?) [a-z ]+)`", trouble))
    storage = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/millstream/storage").rglob("*.py"))
    assert len(quoted) > 5
    assert [text for text in sorted(quoted) if f'"{text}' not in storage] == []


def test_the_documented_simulated_program_runs() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    (example,) = [
        each for each in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL) if "SimulatedLoop()" in each
    ]
    exec(example, {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_have_existing_targets(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if not target.startswith(("http://", "https://", "#")):
            path, _, _ = target.partition("#")
            assert (page.parent / path).exists(), f"{page.name} links to {target}"


def test_the_documented_sdk_metrics_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "sdk.md").read_text(encoding="utf-8").partition("## Logs and metrics")[2]
    rows = re.findall(r"^\| (`.+?`) \|", page, flags=re.MULTILINE)
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/millstream/sdk").rglob("*.py"))
    used = set(re.findall(r'"((?:connections|requests|messages|bytes)_[a-z]+|request_seconds|retries)"', sources))
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == used


def test_the_index_of_guides_lists_every_page_and_example() -> None:
    page = ROOT / "docs" / "README.md"
    targets = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
    linked = {(page.parent / target).resolve() for target in targets}
    pages = {*page.parent.glob("*.md"), *page.parent.glob("*/README.md")} - {page}
    examples = {path for path in (ROOT / "examples").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert [str(path) for path in sorted((pages | examples) - linked) if path.name != "__pycache__"] == []


def test_the_documented_apis_and_versions_are_those_of_the_table() -> None:
    page = (ROOT / "docs" / "kafka-clients.md").read_text(encoding="utf-8")
    dispatch = ROOT / "src" / "millstream" / "broker" / "dispatch"
    source = "".join(path.read_text(encoding="utf-8") for path in sorted(dispatch.glob("*apis.py")))
    documented = set(re.findall(r"^\| (\w+) \| (\d+)–(\d+)", page, flags=re.MULTILINE))
    kafkas = re.findall(r'Row\(\s*(\d{1,3}), "(\w+)", (\d+), (\d+)', source)
    assert documented == {(api, first, last) for _, api, first, last in kafkas}
    assert len(documented) > 5


def test_the_folder_map_of_the_readme_lists_each_folder_once() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Source tree")[2].partition("```text\n")[2]
    mapped = re.findall(r"^  (\w+)/ ", page.partition("```")[0], flags=re.MULTILINE)
    package = ROOT / "src" / "millstream"
    assert sorted(mapped) == sorted(path.parent.name for path in package.glob("*/__init__.py"))


def test_the_figures_of_the_performance_page_are_those_of_the_benchmarks() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    quoted = page.partition("## Measured results")[2].partition("Other interfaces:")[0]
    results = (ROOT / "bench" / "RESULTS.md").read_text(encoding="utf-8").splitlines()
    rows = re.findall(r"^\| [^|]+ \| ([\d.,]+) [^|]+ \| ([\d.]+)(?: \([^|]+)? \|", quoted, flags=re.MULTILINE)
    assert len(rows) > 20
    for figure, ratio in rows:
        found = [
            line for line in results if f" {figure} (" in line and re.search(rf" {re.escape(ratio)} (?:\(|\|)", line)
        ]
        assert found, f"no benchmark has the figure {figure} with the ratio {ratio}"


def test_the_code_named_in_the_glossary_exists() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    named = {
        path
        for row in page.splitlines()
        if row.startswith("| ")
        for path in re.findall(r"`([\w/]+(?:/|\.py))`", row.rpartition(" | ")[2])
    }
    assert len(named) > 50
    roots = {path: ROOT if path.startswith("tests/") else ROOT / "src" / "millstream" for path in named}
    assert [path for path, root in sorted(roots.items()) if not (root / path).exists()] == []


def test_the_glossary_defines_each_term_once() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| ([^|]+) \|", page, flags=re.MULTILINE)
    assert sorted({term for term in terms if terms.count(term) > 1}) == []


def test_each_documented_log_event_is_logged_somewhere() -> None:
    table = SERVE.partition("## Logs")[2]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    events = [event for cell in cells for event in re.findall(r"`([^`]+)`", cell)]
    assert len(events) > 20
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "millstream").rglob("*.py"))
    assert [event for event in events if f'"{event}"' not in sources] == []
