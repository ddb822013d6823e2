"""The page about topics says what the table of settings says."""

import re
from pathlib import Path

from penstock.node.node import topic_defaults
from penstock.node.settings import Settings
from penstock.partition.setting_table import TABLE
from penstock.partition.settings import effective

PAGE = (Path(__file__).parents[3] / "docs" / "topics.md").read_text(encoding="utf-8")


def test_every_setting_of_a_topic_is_documented_with_the_default_of_a_broker_that_was_told_nothing() -> None:
    documented = re.findall(
        r"^\| `([a-z0-9.]+)` \| (\w+) \| (?:`(.+?)`|\(none\)) \| (.+) \|$", PAGE, flags=re.MULTILINE
    )
    defaults = topic_defaults(Settings())
    assert documented == [(name, str(row.kind), effective(name, {}, defaults), row.doc) for name, row in TABLE.items()]


def test_a_setting_without_an_effect_says_so() -> None:
    for row in TABLE.values():
        assert row.effect != ("without an effect" in row.doc or "can only be false" in row.doc)
