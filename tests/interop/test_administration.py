"""Tests the administration of topics and settings by each client."""

from collections.abc import Callable, Mapping

from interop.abilities import each_that_can
from interop.clients.ability import Ability
from interop.clients.client import AdminClient, Client, Message, ToldSetting
from interop.waiting import eventually


@each_that_can(Ability.CREATE, Ability.DESCRIBE, Ability.DELETE)
def test_a_topic_is_created_with_settings_described_and_deleted(
    admins: Mapping[str, AdminClient], new_name: Callable[[], str], client: Client
) -> None:
    topic, admin = new_name(), admins[client.name]
    admin.create_topic(topic, 3, settings={"retention.ms": "7200000", "cleanup.policy": "compact,delete"})
    assert eventually(admin.topics, lambda seen: topic in seen, "the topic is there")[topic] == 3
    settings = admin.settings(topic)
    assert settings["retention.ms"] == ToldSetting("7200000", True)
    assert settings["cleanup.policy"] == ToldSetting("compact,delete", True)
    # Settings that were not set are reported with their defaults.
    assert settings["max.message.bytes"] == ToldSetting("1048588", False)
    assert settings["min.insync.replicas"] == ToldSetting("1", False)
    admin.delete_topic(topic)
    eventually(admin.topics, lambda seen: topic not in seen, "the topic is gone")


@each_that_can(Ability.ALTER)
def test_altered_settings_leave_others_unchanged(
    admins: Mapping[str, AdminClient], new_topic: Callable[..., str], client: Client
) -> None:
    topic = new_topic(settings={"segment.bytes": "16777216"})
    admin = admins[client.name]
    altered = {"retention.ms": "5400000", "max.message.bytes": "2000000"}
    # The old AlterConfigs request, which some clients use, replaces all settings.
    admin.alter(topic, altered | {"segment.bytes": "16777216"})
    wanted = altered | {"segment.bytes": "16777216"}
    eventually(
        lambda: {name: admin.settings(topic)[name].value for name in wanted},
        lambda seen: seen == wanted,
        "the settings are as altered",
    )


@each_that_can(Ability.GROW)
def test_partitions_are_added_to_a_topic(
    clients: Mapping[str, Client], admins: Mapping[str, AdminClient], new_topic: Callable[..., str], client: Client
) -> None:
    topic, admin = new_topic(1), admins[client.name]
    clients["confluent-kafka"].write(topic, 0, [Message(b"before")])
    admin.grow(topic, 4)
    eventually(lambda: admin.topics()[topic], lambda seen: seen == 4, "the topic has four partitions")
    for partition in (1, 2, 3):
        clients["confluent-kafka"].write(topic, partition, [Message(b"after")])
    assert [admin.ends(topic, partition) for partition in range(4)] == [(0, 1)] * 4


@each_that_can(Ability.TRIM)
def test_records_before_an_offset_are_deleted(
    clients: Mapping[str, Client], admins: Mapping[str, AdminClient], new_topic: Callable[..., str], client: Client
) -> None:
    topic, admin = new_topic(1), admins[client.name]
    clients["confluent-kafka"].write(topic, 0, [Message(b"%d" % number) for number in range(10)])
    assert admin.delete_records(topic, 0, 6) in (6, None)  # None: the client does not report it.
    assert admin.ends(topic, 0) == (6, 10)
    assert [stored.offset for stored in client.read(topic, 0, 6, 4)] == [6, 7, 8, 9]
