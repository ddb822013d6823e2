"""Tests AlterConfigs and IncrementalAlterConfigs: each topic changes separately."""

from pathlib import Path
from typing import Any

import pytest

from builders.loops import for_each
from builders.requests import RawPeer
from builders.served import ServedBroker, produce, serve
from millstream.model.errors import ErrorCode

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def replacing(name: str, *settings: tuple[str, str | None], kind: int = TOPIC) -> dict[str, Any]:
    rows = [{"name": each, "value": value} for each, value in settings]
    return {"resource_type": kind, "resource_name": name, "configs": rows}


def step_by_step(name: str, *steps: tuple[str, int, str | None], kind: int = TOPIC) -> dict[str, Any]:
    rows = [{"name": each, "config_operation": operation, "value": value} for each, operation, value in steps]
    return {"resource_type": kind, "resource_name": name, "configs": rows}


async def alter(peer: RawPeer, *resources: dict[str, Any], version: int = 1, validate_only: bool = False) -> list[Any]:
    fields = {"resources": list(resources), "validate_only": validate_only}
    api = "AlterConfigs" if "config_operation" not in str(resources) else "IncrementalAlterConfigs"
    rows: list[Any] = (await peer.ask(api, version, fields))["responses"]
    return rows


def settings_of(broker: ServedBroker, name: str = "events") -> dict[str, str]:
    topic = broker.partitions.image.topic(name)
    assert topic is not None
    return dict(topic.settings)


@for_each("version", range(3))
def test_alter_configs_replaces_all_settings_of_a_topic(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(retention_ms="60000", segment_ms="5000")
        peer = await broker.peer()
        wanted = replacing("events", ("retention.ms", "70000"), ("retention.bytes", "5"))
        for validate_only in (True, False):
            (row,) = await alter(peer, wanted, version=version, validate_only=validate_only)
            assert (row["error_code"], row["error_message"]) == (0, None)
            assert (row["resource_type"], row["resource_name"]) == (TOPIC, "events")
            before = {"retention.ms": "60000", "segment.ms": "5000"}
            after = {"retention.ms": "70000", "retention.bytes": "5"}
            assert settings_of(broker) == (before if validate_only else after)

    serve(tmp_path, story)


@for_each("version", range(2))
@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ([("retention.ms", SET, "70000")], {"retention.ms": "70000", "cleanup.policy": "compact"}),
        ([("retention.ms", DELETE, None)], {"cleanup.policy": "compact"}),
        ([("cleanup.policy", APPEND, "delete")], {"retention.ms": "60000", "cleanup.policy": "compact,delete"}),
        ([("cleanup.policy", APPEND, "compact")], {"retention.ms": "60000", "cleanup.policy": "compact"}),
        (
            [("cleanup.policy", DELETE, None), ("segment.ms", SET, "5000")],
            {"retention.ms": "60000", "segment.ms": "5000"},
        ),
        ([("nope", DELETE, None)], {"retention.ms": "60000", "cleanup.policy": "compact"}),
        (
            [("leader.replication.throttled.replicas", APPEND, "0:1,1:1")],
            {
                "retention.ms": "60000",
                "cleanup.policy": "compact",
                "leader.replication.throttled.replicas": "0:1,1:1",
            },
        ),
        ([], {"retention.ms": "60000", "cleanup.policy": "compact"}),
    ],
)
def test_incremental_alter_configs_changes_only_named_settings(
    steps: list[tuple[str, int, str | None]], left: dict[str, str], version: int, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(retention_ms="60000", cleanup_policy="compact")
        answer = await (await broker.peer()).ask(
            "IncrementalAlterConfigs", version, {"resources": [step_by_step("events", *steps)], "validate_only": False}
        )
        assert [row["error_code"] for row in answer["responses"]] == [0]
        assert settings_of(broker) == left

    serve(tmp_path, story)


def test_append_and_subtract_start_from_the_default_of_an_unset_list_setting(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        await alter(peer, step_by_step("events", ("cleanup.policy", APPEND, " compact ")))
        assert settings_of(broker) == {"cleanup.policy": "delete,compact"}
        await alter(peer, step_by_step("events", ("cleanup.policy", SUBTRACT, "delete")))
        assert settings_of(broker) == {"cleanup.policy": "compact"}
        await alter(peer, step_by_step("events", ("cleanup.policy", SUBTRACT, "compact")))
        assert settings_of(broker) == {"cleanup.policy": ""}

    serve(tmp_path, story)


BAD_STEPS = [
    ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
    ([("colour", SET, "blue")], ErrorCode.INVALID_CONFIG),
    ([("colour", APPEND, "blue")], ErrorCode.INVALID_CONFIG),
    ([("", SET, "1")], ErrorCode.INVALID_CONFIG),
    ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
    ([("cleanup.policy", SET, "compact,")], ErrorCode.INVALID_CONFIG),
    ([("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "9")], ErrorCode.INVALID_CONFIG),
    ([("remote.storage.enable", SET, "true")], ErrorCode.INVALID_CONFIG),
    ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
    ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
    ([("retention.ms", 7, "1")], ErrorCode.INVALID_REQUEST),
    ([("retention.ms", -1, "1")], ErrorCode.INVALID_REQUEST),
    ([("retention.ms", SET, "1"), ("retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(("steps", "code"), BAD_STEPS)
def test_an_invalid_operation_refuses_all_changes_of_its_topic_only(
    steps: list[tuple[str, int, str | None]], code: ErrorCode, validate_only: bool, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("bad")
        await broker.topic("good")
        wanted = (
            step_by_step("bad", ("segment.ms", SET, "5000"), *steps),
            step_by_step("good", ("segment.ms", SET, "5")),
        )
        bad, good = await alter(await broker.peer(), *wanted, validate_only=validate_only)
        assert bad["error_code"] == code.number
        assert steps[0][0] in bad["error_message"]
        assert good["error_code"] == 0
        assert settings_of(broker, "bad") == {}
        assert settings_of(broker, "good") == ({} if validate_only else {"segment.ms": "5"})

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ([("retention.ms", "soon")], ErrorCode.INVALID_CONFIG),
        ([("colour", "blue")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", "1"), ("retention.ms", "1")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_settings_change_nothing(
    settings: list[tuple[str, str | None]], code: ErrorCode, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(segment_ms="5000")
        (row,) = await alter(await broker.peer(), replacing("events", *settings))
        assert row["error_code"] == code.number
        assert settings_of(broker) == {"segment.ms": "5000"}

    serve(tmp_path, story)


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ((TOPIC, "unknown"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, "no spaces"), ErrorCode.INVALID_TOPIC),
        ((BROKER, "7"), ErrorCode.INVALID_REQUEST),
        ((BROKER, "one"), ErrorCode.INVALID_REQUEST),
        ((LOGGER, "7"), ErrorCode.INVALID_REQUEST),
        ((LOGGER, ""), ErrorCode.INVALID_REQUEST),
        ((GROUP, ""), ErrorCode.INVALID_REQUEST),
        ((METRICS, ""), ErrorCode.INVALID_REQUEST),
        ((0, "x"), ErrorCode.INVALID_REQUEST),
        ((3, "x"), ErrorCode.INVALID_REQUEST),
        ((-1, "x"), ErrorCode.INVALID_REQUEST),
        ((BROKER, "1"), ErrorCode.INVALID_REQUEST),
        ((BROKER, ""), ErrorCode.INVALID_REQUEST),
        ((LOGGER, "1"), ErrorCode.INVALID_REQUEST),
        ((METRICS, "any"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_only_settings_of_topics_and_groups_can_be_changed(
    resource: tuple[int, str], code: ErrorCode, incremental: bool, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        kind, name = resource
        if incremental:
            wanted = step_by_step(name, ("message.max.bytes", SET, "5"), kind=kind)
        else:
            wanted = replacing(name, ("message.max.bytes", "5"), kind=kind)
        (row,) = await alter(await broker.peer(), wanted)
        assert row["error_code"] == code.number
        assert row["error_message"]

    serve(tmp_path, story)


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        ("consumer.session.timeout.ms", "44999", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", "60001", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", "9" * 5000, ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", "soon", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", "50s", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", "", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", None, ErrorCode.INVALID_REQUEST),
        ("consumer.heartbeat.interval.ms", "4999", ErrorCode.INVALID_CONFIG),
        ("consumer.heartbeat.interval.ms", "15001", ErrorCode.INVALID_CONFIG),
        ("consumer.assignment.interval.ms", "1000", ErrorCode.INVALID_CONFIG),
        ("share.session.timeout.ms", "50000", ErrorCode.INVALID_CONFIG),
        ("retention.ms", "50000", ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_bad_group_setting_is_refused_and_named(
    setting: str, value: str | None, code: ErrorCode, incremental: bool, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        if incremental:
            wanted = step_by_step("readers", (setting, SET, value), kind=GROUP)
        else:
            wanted = replacing("readers", (setting, value), kind=GROUP)
        (row,) = await alter(await broker.peer(), wanted)
        assert row["error_code"] == code.number
        assert setting in row["error_message"]
        assert len(row["error_message"]) < 1_000
        assert broker.group_configs.own("readers") == {}

    serve(tmp_path, story)


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_a_list_operation_on_a_group_setting_is_refused(operation: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        step = ("consumer.session.timeout.ms", operation, "50000")
        (row,) = await alter(await broker.peer(), step_by_step("readers", step, kind=GROUP))
        assert row["error_code"] == ErrorCode.INVALID_CONFIG.number

    serve(tmp_path, story)


def test_settings_of_a_group_are_set_described_listed_and_removed(tmp_path: Path) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

    async def described(peer: RawPeer) -> dict[str, tuple[str, int]]:
        wanted = {"resource_type": GROUP, "resource_name": "readers", "configuration_keys": [session, heartbeat]}
        (answer,) = (await peer.ask("DescribeConfigs", 4, {"resources": [wanted]}))["results"]
        assert not any(row["read_only"] for row in answer["configs"])
        return {row["name"]: (row["value"], row["config_source"]) for row in answer["configs"]}

    async def listed(peer: RawPeer) -> list[str]:
        answer = await peer.ask("ListConfigResources", 1, {"resource_types": [GROUP]})
        return [row["resource_name"] for row in answer["config_resources"]]

    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        await alter(peer, step_by_step("readers", (session, SET, " 50000 "), kind=GROUP), validate_only=True)
        assert await listed(peer) == []
        (row,) = await alter(peer, step_by_step("readers", (session, SET, " 50000 "), kind=GROUP))
        assert row["error_code"] == 0
        await alter(peer, step_by_step("readers", (heartbeat, SET, "10000"), kind=GROUP))
        assert await described(peer) == {session: ("50000", 8), heartbeat: ("10000", 8)}
        assert await listed(peer) == ["readers"]
        await alter(peer, replacing("readers", (session, "46000"), kind=GROUP))
        assert await described(peer) == {session: ("46000", 8), heartbeat: ("5000", 5)}
        await alter(peer, step_by_step("readers", (session, DELETE, None), ("nope", DELETE, None), kind=GROUP))
        assert await described(peer) == {session: ("45000", 5), heartbeat: ("5000", 5)}
        assert await listed(peer) == []

    serve(tmp_path, story)


def test_a_resource_named_twice_is_not_changed(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        rows = await alter(await broker.peer(), *[step_by_step("events", ("segment.ms", SET, "5"))] * 2)
        assert [row["error_code"] for row in rows] == [ErrorCode.INVALID_REQUEST.number] * 2
        assert settings_of(broker) == {}

    serve(tmp_path, story)


def test_too_many_resources_in_one_request_are_refused(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        wanted = [step_by_step(f"topic-{number}", ("segment.ms", SET, "5")) for number in range(1_001)]
        rows = await alter(await broker.peer(), *wanted)
        assert {row["error_code"] for row in rows} == {ErrorCode.POLICY_VIOLATION.number}

    serve(tmp_path, story)


def test_a_changed_setting_applies_to_the_next_message(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        assert (await produce(peer, "events")).error == 0
        await alter(peer, step_by_step("events", ("max.message.bytes", SET, "10")))
        assert (await produce(peer, "events")).error == ErrorCode.MESSAGE_TOO_LARGE.number
        await alter(peer, step_by_step("events", ("max.message.bytes", DELETE, None)))
        assert (await produce(peer, "events")).error == 0

    serve(tmp_path, story)
