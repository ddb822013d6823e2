"""Describes the broker's settings to clients, under Kafka's name where Kafka has the setting."""

from collections.abc import Iterator

from millstream.broker.config_entries import ConfigEntry, ConfigSource, ConfigSynonym
from millstream.groups.settings import GroupSettings
from millstream.model.limits import REQUEST_BYTES_MAX
from millstream.node.settings import FIELDS, BrokerSettings
from millstream.topics.setting_table import SettingKind

_KAFKA_NAMES = {
    "data": "log.dirs",
    "node_id": "node.id",
    "auto_create": "auto.create.topics.enable",
    "default_partitions": "num.partitions",
    "cleaner_interval_ms": "log.cleaner.backoff.ms",
    "cleaner_bytes_per_s": "log.cleaner.io.max.bytes.per.second",
    "cleaner_memory_bytes": "log.cleaner.dedupe.buffer.size",
    "request_memory_bytes": "queued.max.request.bytes",
    "group_session_timeout_min_ms": "group.min.session.timeout.ms",
    "group_session_timeout_max_ms": "group.max.session.timeout.ms",
    "group_initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "group_max_size": "group.max.size",
    "offsets_partitions": "offsets.topic.num.partitions",
    "consumer_session_timeout_ms": "group.consumer.session.timeout.ms",
    "consumer_session_timeout_min_ms": "group.consumer.min.session.timeout.ms",
    "consumer_session_timeout_max_ms": "group.consumer.max.session.timeout.ms",
    "consumer_heartbeat_interval_min_ms": "group.consumer.min.heartbeat.interval.ms",
    "consumer_heartbeat_interval_max_ms": "group.consumer.max.heartbeat.interval.ms",
    "consumer_heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
    "consumer_assignment_interval_ms": "group.consumer.assignment.interval.ms",
}
_TOPIC_DEFAULTS = frozenset({"retention_ms", "retention_bytes", "segment_bytes", "segment_ms"})
"""Settings that are described with the defaults of topics instead."""

_KINDS = {
    "truth": SettingKind.BOOLEAN,
    "whole": SettingKind.INT,
    "port": SettingKind.INT,
    "duration": SettingKind.LONG,
    "size": SettingKind.LONG,
}


def shown_settings(settings: BrokerSettings, groups: GroupSettings) -> Iterator[ConfigEntry]:
    """Yields all settings of the broker, except the defaults of topics."""
    for name, field in FIELDS.items():
        if name not in _TOPIC_DEFAULTS:
            kind = SettingKind.LIST if field.kind == "list" else _KINDS.get(field.kind, SettingKind.STRING)
            value, default = _text(getattr(settings, name)), _text(field.default)
            yield _shown(_KAFKA_NAMES.get(name, name), kind, value, default, field.help)
    yield from _addresses(settings)
    yield from _fixed(settings, groups)


def _addresses(settings: BrokerSettings) -> Iterator[ConfigEntry]:
    addresses = {
        "listeners": (settings.host, "Address that this broker listens on."),
        "advertised.listeners": (settings.advertised_host or settings.host, "Address that clients connect to."),
    }
    for name, (host, doc) in addresses.items():
        default = _address(FIELDS["host"].default, FIELDS["kafka_port"].default)
        yield _shown(name, SettingKind.LIST, _address(host, settings.kafka_port), default, doc)


def _address(host: str, port: int) -> str:
    return f"PLAINTEXT://{host}:{port}"


def _fixed(settings: BrokerSettings, groups: GroupSettings) -> Iterator[ConfigEntry]:
    """Yields settings that Kafka's tools expect and that cannot be changed here."""
    rows = (
        ("broker.id", settings.node_id, "Id of this broker."),
        ("default.replication.factor", 1, "Copies of each partition; always 1 with a single broker."),
        ("socket.request.max.bytes", REQUEST_BYTES_MAX, "Maximum size of a request."),
        (
            "offset.metadata.max.bytes",
            groups.offset_metadata_bytes_max,
            "Maximum size of a committed offset's metadata.",
        ),
        (
            "offsets.retention.minutes",
            groups.offsets_retention_ms // 60_000,
            "How long an empty group's offsets are kept.",
        ),
    )
    for name, value, doc in rows:
        yield ConfigEntry(name, SettingKind.INT, str(value), ConfigSource.DEFAULT, doc)


def _shown(name: str, kind: SettingKind, value: str, default: str, doc: str) -> ConfigEntry:
    synonyms = (
        ConfigSynonym(name, value, ConfigSource.BROKER_AT_START),
        ConfigSynonym(name, default, ConfigSource.DEFAULT),
    )
    first = 0 if value != default else 1
    return ConfigEntry(name, kind, value, synonyms[first].source, doc, synonyms=synonyms[first:])


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
