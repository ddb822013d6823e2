"""Tests that docs/kafka-clients.md lists the abilities of each client, and the reasons for missing ones."""

import re
from pathlib import Path

import pytest

from interop.clients.ability import Ability
from interop.clients.every import CLIENTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kafka-clients.md").read_text(encoding="utf-8")
TESTS = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
PROVEN_BY_TABLES = {Ability.GZIP, Ability.SNAPPY, Ability.LZ4, Ability.ZSTD}


def matrix() -> str:
    """Return the table that the page must contain."""
    lines = ["| | " + " | ".join(CLIENTS) + " |", "|---" * (len(CLIENTS) + 1) + "|"]
    for ability in Ability:
        cells = ("–" if ability in client.cannot else "✓" for client in CLIENTS.values())
        lines.append(f"| {ability.value} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def test_the_page_contains_the_table_of_abilities() -> None:
    assert matrix() in PAGE, f"the page needs:\n{matrix()}"


@pytest.mark.parametrize("name", [name for name, client in CLIENTS.items() if client.cannot])
def test_the_page_gives_the_reasons_for_missing_abilities(name: str) -> None:
    told = re.search(rf"^- {re.escape(name)}: (.*?)(?=\n- |\n\n)", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert told
    text = " ".join(told[1].split())
    assert [reason for reason in CLIENTS[name].cannot.values() if reason not in text] == []


@pytest.mark.parametrize("ability", [ability for ability in Ability if ability not in PROVEN_BY_TABLES])
def test_every_ability_has_a_test(ability: Ability) -> None:
    source = TESTS + (Path(__file__).parent / "abilities.py").read_text(encoding="utf-8")
    assert f"Ability.{ability.name}" in source
