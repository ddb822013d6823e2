"""The page about topics says what the table of settings says."""

import re
from pathlib import Path

from millstream.topics.setting_table import TABLE

PAGE = (Path(__file__).parents[3] / "docs" / "topics.md").read_text(encoding="utf-8")


def test_every_setting_of_a_topic_is_documented_with_its_type_default_and_meaning() -> None:
    documented = re.findall(
        r"^\| `([a-z0-9.]+)` \| (\w+) \| (?:`(.+?)`|\(none\)) \| (.+) \|$", PAGE, flags=re.MULTILINE
    )
    assert documented == [(name, str(row.kind), row.default, row.doc) for name, row in TABLE.items()]


def test_a_setting_without_an_effect_says_so() -> None:
    for row in TABLE.values():
        assert row.effect != ("without an effect" in row.doc or "can only be false" in row.doc)
