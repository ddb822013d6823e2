"""Lists settings in the form of DescribeConfigs and CreateTopics: value, type, source and documentation."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from millstream.groups.group_configs import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from millstream.groups.settings import GroupSettings
from millstream.topics.setting_table import TABLE, SettingKind, TopicSetting
from millstream.topics.settings import effective


class ConfigSource(IntEnum):
    """Kafka's numbers for the source of a value."""

    TOPIC = 1
    BROKER_AT_START = 4
    DEFAULT = 5
    LOGGER = 6
    GROUP = 8


TYPES: Mapping[SettingKind, int] = {
    SettingKind.BOOLEAN: 1,
    SettingKind.STRING: 2,
    SettingKind.INT: 3,
    SettingKind.LONG: 5,
    SettingKind.DOUBLE: 6,
    SettingKind.LIST: 7,
}
"""Kafka's numbers for the types of settings."""


class ConfigSynonym(NamedTuple):
    """One source that defines a setting, and the value that it gives."""

    name: str
    value: str
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    kind: SettingKind
    value: str
    source: ConfigSource
    doc: str = ""
    is_read_only: bool = True
    synonyms: tuple[ConfigSynonym, ...] = ()
    """In order of precedence; the first one is in force."""


def topic_settings(own: Mapping[str, str], defaults: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Yield all settings of a topic, by name. `own` holds the topic's settings, `defaults` those of the broker."""
    for row in TABLE.values():
        source = ConfigSource.TOPIC if row.name in own else _brokers_source(row, defaults)
        value = effective(row.name, own, defaults)
        yield ConfigEntry(row.name, row.kind, value, source, row.doc, False, tuple(_synonyms(row, own, defaults)))


def topic_defaults_of_broker(defaults: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Yield the broker settings that are defaults of topics, under Kafka's names for them."""
    for row in TABLE.values():
        if row.broker_name:
            value = effective(row.name, {}, defaults)
            synonyms = tuple(_synonyms(row, {}, defaults))
            yield ConfigEntry(
                row.broker_name, row.kind, value, _brokers_source(row, defaults), row.doc, synonyms=synonyms
            )


def group_settings(broker: GroupSettings, own: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Yield the settings of a group. `own` holds those that were set for the group, `broker` those of the broker."""
    yield _default_int(
        "consumer.assignment.interval.ms",
        broker.consumer_assignment_interval_ms,
        "Minimum time between two assignments of a group with the consumer protocol (KIP-848).",
    )
    yield _group_int(
        HEARTBEAT_INTERVAL,
        broker.consumer_heartbeat_interval_ms,
        own,
        "Interval at which members with the consumer protocol (KIP-848) send heartbeats.",
    )
    yield _group_int(
        SESSION_TIMEOUT,
        broker.consumer_session_timeout_ms,
        own,
        "Time without a heartbeat after which a member with the consumer protocol (KIP-848) is removed.",
    )


def client_metrics_settings() -> Iterator[ConfigEntry]:
    """Yield the settings of a client metrics subscription. This broker collects no client metrics."""
    yield _default_int("interval.ms", 300_000, "Interval at which clients would send metrics. None are collected.")
    for name, what in (("match", "Which clients would send metrics"), ("metrics", "Which metrics would be sent")):
        yield ConfigEntry(name, SettingKind.LIST, "", ConfigSource.DEFAULT, f"{what}. None are collected.")


def _default_int(name: str, value: int, doc: str) -> ConfigEntry:
    return ConfigEntry(name, SettingKind.INT, str(value), ConfigSource.DEFAULT, doc)


def _group_int(name: str, default: int, own: Mapping[str, str], doc: str) -> ConfigEntry:
    synonyms = [ConfigSynonym(name, own[name], ConfigSource.GROUP)] if name in own else []
    synonyms.append(ConfigSynonym(f"group.{name}", str(default), ConfigSource.DEFAULT))
    first = synonyms[0]
    return ConfigEntry(name, SettingKind.INT, first.value, first.source, doc, False, tuple(synonyms))


def _brokers_source(row: TopicSetting, defaults: Mapping[str, str]) -> ConfigSource:
    return ConfigSource.BROKER_AT_START if row.name in defaults else ConfigSource.DEFAULT


def _synonyms(row: TopicSetting, own: Mapping[str, str], defaults: Mapping[str, str]) -> Iterator[ConfigSynonym]:
    if row.name in own:
        yield ConfigSynonym(row.name, own[row.name], ConfigSource.TOPIC)
    if row.name in defaults:
        yield ConfigSynonym(row.broker_name, defaults[row.name], ConfigSource.BROKER_AT_START)
    if row.broker_name:
        yield ConfigSynonym(row.broker_name, row.default, ConfigSource.DEFAULT)
