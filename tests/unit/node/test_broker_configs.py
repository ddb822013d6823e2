"""Tests how a broker's settings are described to clients."""

from millstream.broker.config_entries import ConfigEntry, ConfigSource
from millstream.groups.settings import GroupSettings
from millstream.node.broker_configs import shown_settings
from millstream.node.settings import FIELDS, BrokerSettings
from millstream.topics.setting_table import TABLE, SettingKind


def _shown(settings: BrokerSettings) -> dict[str, ConfigEntry]:
    rows = list(shown_settings(settings, GroupSettings()))
    by_name = {row.name: row for row in rows}
    assert len(by_name) == len(rows)
    return by_name


def test_a_broker_without_settings_shows_its_defaults() -> None:
    shown = _shown(BrokerSettings())
    assert {row.source for row in shown.values()} == {ConfigSource.DEFAULT}
    assert (shown["num.partitions"].value, shown["num.partitions"].kind) == ("1", SettingKind.INT)
    assert (shown["auto.create.topics.enable"].value, shown["auto.create.topics.enable"].kind) == (
        "true",
        SettingKind.BOOLEAN,
    )
    assert shown["listeners"].value == shown["advertised.listeners"].value == "PLAINTEXT://127.0.0.1:9092"
    assert all(row.is_read_only and row.doc for row in shown.values())


def test_a_configured_setting_is_shown_with_its_source_and_its_default() -> None:
    told = BrokerSettings(
        data=("/a", "/b"), default_partitions=3, auto_create=False, host="10.0.0.1", advertised_host="b.org"
    )
    shown = _shown(told)
    assert (shown["log.dirs"].value, shown["log.dirs"].kind) == ("/a,/b", SettingKind.LIST)
    assert [(each.value, each.source) for each in shown["num.partitions"].synonyms] == [
        ("3", ConfigSource.BROKER_AT_START),
        ("1", ConfigSource.DEFAULT),
    ]
    assert (shown["auto.create.topics.enable"].value, shown["auto.create.topics.enable"].source) == (
        "false",
        ConfigSource.BROKER_AT_START,
    )
    assert shown["listeners"].value == "PLAINTEXT://10.0.0.1:9092"
    assert shown["advertised.listeners"].value == "PLAINTEXT://b.org:9092"


def test_broker_configs_show_every_setting_except_the_defaults_of_topics() -> None:
    of_topics = {"retention_ms", "retention_bytes", "segment_bytes", "segment_ms"}
    shown = _shown(BrokerSettings())
    docs = {row.doc for row in shown.values()}
    assert {name for name, field in FIELDS.items() if field.help not in docs} == of_topics
    assert not shown.keys() & {row.broker_name for row in TABLE.values()}
