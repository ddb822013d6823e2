"""Tests DescribeConfigs and ListConfigResources."""

from pathlib import Path
from typing import Any

import pytest

from builders.loops import for_each
from builders.requests import RawPeer
from builders.served import ServedBroker, serve
from millstream.broker.config_entries import ConfigEntry, ConfigSource
from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode
from millstream.topics.setting_table import TABLE, SettingKind

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
AT_START = (
    ConfigEntry("node.id", SettingKind.INT, "1", ConfigSource.DEFAULT),
    ConfigEntry("log.dirs", SettingKind.LIST, "/data", ConfigSource.BROKER_AT_START),
)


async def describe(
    peer: RawPeer, *resources: tuple[int, str], names: list[str] | None = None, version: int = 4, **options: bool
) -> list[dict[str, Any]]:
    wanted = [{"resource_type": kind, "resource_name": name, "configuration_keys": names} for kind, name in resources]
    answer = await peer.ask("DescribeConfigs", version, {"resources": wanted, **options})
    rows: list[dict[str, Any]] = answer["results"]
    return rows


async def shown(peer: RawPeer, kind: int, name: str, **options: Any) -> dict[str, dict[str, Any]]:
    (row,) = await describe(peer, (kind, name), **options)
    assert row["error_code"] == 0
    return {each["name"]: each for each in row["configs"]}


@for_each("version", range(1, 5))
def test_a_topic_is_described_with_every_setting_and_its_source(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(retention_ms="60000")
        settings = await shown(await broker.peer(), TOPIC, "events", version=version, include_synonyms=True)
        assert settings.keys() == TABLE.keys()
        for name, row in settings.items():
            assert row["value"] == ("60000" if name == "retention.ms" else TABLE[name].default)
            assert row["config_source"] == (1 if name == "retention.ms" else 5)
            assert not row["read_only"]
            assert not row["is_sensitive"]
        assert [tuple(row.values()) for row in settings["retention.ms"]["synonyms"]] == [
            ("retention.ms", "60000", 1),
            ("log.retention.ms", "604800000", 5),
        ]
        assert settings["leader.replication.throttled.replicas"]["synonyms"] == []

    serve(tmp_path, story)


@for_each("version", [3, 4])
def test_types_are_always_described_and_documentation_on_request(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        types = {"preallocate": 1, "compression.type": 2, "segment.bytes": 3, "retention.ms": 5}
        types |= {"min.cleanable.dirty.ratio": 6, "cleanup.policy": 7}
        for documented in (True, False):
            options = {"version": version, "include_documentation": documented}
            settings = await shown(peer, TOPIC, "events", **options)
            assert {name: settings[name]["config_type"] for name in types} == types
            docs = {name: row["documentation"] for name, row in settings.items()}
            assert docs == {name: TABLE[name].doc if documented else None for name in TABLE}
            assert all(row["synonyms"] == [] for row in settings.values())

    serve(tmp_path, story)


def test_a_broker_default_is_described_with_the_broker_as_its_source(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(retention_bytes="5")
        peer = await broker.peer()
        settings = await shown(peer, TOPIC, "events", include_synonyms=True)
        assert [(row["source"], row["value"]) for row in settings["segment.ms"]["synonyms"]] == [
            (4, "5000"),
            (5, "86400000"),
        ]
        assert (settings["segment.ms"]["value"], settings["segment.ms"]["config_source"]) == ("5000", 4)
        brokers = await shown(peer, BROKER, "1")
        assert (brokers["log.roll.ms"]["value"], brokers["log.roll.ms"]["config_source"]) == ("5000", 4)

    serve(tmp_path, story, defaults={"segment.ms": "5000"})


@pytest.mark.parametrize(
    ("names", "told"), [(["retention.ms", "nope"], ["retention.ms"]), (["nope"], []), ([], [*TABLE])]
)
def test_only_named_settings_are_described(names: list[str], told: list[str], tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        assert [*await shown(await broker.peer(), TOPIC, "events", names=names)] == told

    serve(tmp_path, story)


def test_broker_settings_have_kafkas_names_and_are_read_only(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        settings = await shown(peer, BROKER, "1")
        assert all(row["read_only"] for row in settings.values())
        values = {name: settings[name]["value"] for name in ("node.id", "log.dirs", "message.max.bytes")}
        assert values == {"node.id": "1", "log.dirs": "/data", "message.max.bytes": "1048588"}
        assert settings["log.dirs"]["config_source"] == 4
        # An empty name asks for settings that were altered for all brokers. There are none.
        assert await shown(peer, BROKER, "") == {}

    serve(tmp_path, story, at_start=AT_START)


def test_loggers_groups_and_client_metrics_are_described(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        loggers = await shown(peer, LOGGER, "1")
        assert [(name, row["config_source"]) for name, row in loggers.items()] == [("root", 6)]
        groups = await shown(peer, GROUP, "readers", include_documentation=True)
        assert {name: row["value"] for name, row in groups.items()} == {
            "consumer.assignment.interval.ms": "200",
            "consumer.heartbeat.interval.ms": "7",
            "consumer.session.timeout.ms": "45000",
        }
        assert {name: row["value"] for name, row in (await shown(peer, METRICS, "any")).items()} == {
            "interval.ms": "300000",
            "match": "",
            "metrics": "",
        }

    serve(tmp_path, story, groups=GroupSettings(consumer_heartbeat_interval_ms=7))


UNKNOWN = [
    ((TOPIC, "unknown"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ((BROKER, "7"), ErrorCode.INVALID_REQUEST),
    ((BROKER, "one"), ErrorCode.INVALID_REQUEST),
    ((LOGGER, "7"), ErrorCode.INVALID_REQUEST),
    ((LOGGER, ""), ErrorCode.INVALID_REQUEST),
    ((GROUP, ""), ErrorCode.INVALID_REQUEST),
    ((METRICS, ""), ErrorCode.INVALID_REQUEST),
    ((0, "x"), ErrorCode.INVALID_REQUEST),
    ((3, "x"), ErrorCode.INVALID_REQUEST),
    ((-1, "x"), ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(
    ("resource", "code"),
    [*UNKNOWN, ((TOPIC, "no spaces"), ErrorCode.INVALID_TOPIC), ((TOPIC, ""), ErrorCode.INVALID_TOPIC)],
)
def test_missing_resources_cannot_be_described(resource: tuple[int, str], code: ErrorCode, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        bad, good = await describe(await broker.peer(), resource, (TOPIC, "events"))
        assert (bad["error_code"], bad["configs"]) == (code.number, [])
        assert bad["error_message"]
        assert (good["error_code"], len(good["configs"])) == (0, len(TABLE))

    serve(tmp_path, story)


def test_many_topics_are_described_once_each_in_one_response(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        names = [f"topic-{number:03}" for number in range(120)]
        for name in names:
            await broker.topic(name)
        wanted = [(TOPIC, name) for name in [*names, *names]]
        rows = await describe(await broker.peer(), *wanted, names=["retention.ms"])
        assert [row["resource_name"] for row in rows] == names
        assert all(len(row["configs"]) == 1 for row in rows)

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("version", "kinds", "found"),
    [
        (0, None, []),
        (1, [], [(LOGGER, "1"), (BROKER, "1"), (TOPIC, "bills"), (TOPIC, "orders")]),
        (1, [TOPIC], [(TOPIC, "bills"), (TOPIC, "orders")]),
        (1, [BROKER, GROUP, METRICS, BROKER], [(BROKER, "1")]),
    ],
)
def test_resources_are_listed_by_kind(
    version: int, kinds: list[int] | None, found: list[tuple[int, str]], tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        for name in ("orders", "bills"):
            await broker.topic(name)
        fields = {} if kinds is None else {"resource_types": kinds}
        answer = await (await broker.peer()).ask("ListConfigResources", version, fields)
        assert answer["error_code"] == 0
        assert [(row["resource_type"], row["resource_name"]) for row in answer["config_resources"]] == found

    serve(tmp_path, story)


def test_an_unknown_resource_type_cannot_be_listed(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        answer = await (await broker.peer()).ask("ListConfigResources", 1, {"resource_types": [2, 3]})
        assert (answer["error_code"], answer["config_resources"]) == (ErrorCode.UNSUPPORTED_VERSION.number, [])

    serve(tmp_path, story)
