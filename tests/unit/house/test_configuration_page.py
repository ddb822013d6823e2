"""Checks that the configuration page matches the settings tables."""

import configuration_page
from millstream.gateway.settings import TABLE as GATEWAY
from millstream.node.settings import TABLE as BROKER
from millstream.process.settings import CLIENT_VARIABLES
from millstream.topics.setting_table import TABLE as TOPICS


def test_the_configuration_page_is_up_to_date() -> None:
    assert configuration_page.PAGE.read_text(encoding="utf-8") == configuration_page.written()


def test_every_setting_and_client_variable_is_on_the_page() -> None:
    page = configuration_page.written()
    names = [*BROKER.fields, *GATEWAY.fields, *TOPICS]
    assert [name for name in [*names, *CLIENT_VARIABLES] if f"| `{name}` |" not in page] == []
