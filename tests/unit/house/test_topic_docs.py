"""Checks that the page about topics matches the table of settings."""

import re
from pathlib import Path

from millstream.topics.setting_table import TABLE

PAGE = (Path(__file__).parents[3] / "docs" / "topics.md").read_text(encoding="utf-8")


def test_every_topic_setting_is_documented_with_type_and_meaning() -> None:
    documented = re.findall(r"^\| `([a-z0-9.]+)` \| (\w+) \| (?:`.+?`.*?|–) \| (.+) \|$", PAGE, flags=re.MULTILINE)
    assert documented == [(name, str(row.kind), row.doc) for name, row in TABLE.items()]


def test_a_topic_setting_without_an_effect_is_documented_as_such() -> None:
    for row in TABLE.values():
        assert row.effect != ("No effect" in row.doc or "must be false" in row.doc)
