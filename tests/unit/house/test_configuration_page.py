"""Checks that the configuration page matches the settings tables."""

import pytest

import configuration_page
from millstream.gateway.settings import TABLE as GATEWAY
from millstream.node.settings import TABLE as BROKER
from millstream.process.settings import CLIENT_VARIABLES
from millstream.topics.setting_table import TABLE as TOPICS


def test_the_configuration_page_and_the_tables_in_other_guides_are_up_to_date() -> None:
    assert list(configuration_page.outdated()) == []


def test_every_setting_and_client_variable_is_on_the_page() -> None:
    page = configuration_page.written()
    names = [*BROKER.fields, *GATEWAY.fields, *TOPICS, *CLIENT_VARIABLES]
    names += [BROKER.config_variable, GATEWAY.config_variable, "consumer.session.timeout.ms"]
    assert [name for name in names if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize(("page", "name"), [("serve", "broker"), ("gateway", "gateway"), ("topics", "topics")])
def test_a_guide_has_its_generated_table(page: str, name: str) -> None:
    text = (configuration_page.DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert f"<!-- {name}: written by" in text
    outdated = text.replace("\n<!-- end -->", "| outdated |\n<!-- end -->")
    assert configuration_page.with_tables(outdated) == text != outdated
