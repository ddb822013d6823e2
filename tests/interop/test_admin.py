"""Tests topic administration by each client, and the errors that each of them reports."""

from collections.abc import Callable, Mapping

import pytest

from interop.clients.client import AdminClient, Message, RefusedError, SettingsClient, ToldSetting

ADMINS = ("confluent-kafka", "aiokafka", "kafka-python", "java", "millstream")
KEEPERS = ("confluent-kafka", "aiokafka", "kafka-python")

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40


@pytest.mark.parametrize("admin", ADMINS)
def test_a_created_topic_is_visible_to_all_clients_and_can_be_deleted(
    admins: Mapping[str, AdminClient], new_name: Callable[[], str], admin: str
) -> None:
    topic = new_name()
    admins[admin].create_topic(topic, 3, settings={"retention.ms": "3600000"})
    assert {name: client.topics().get(topic) for name, client in admins.items()} == dict.fromkeys(admins, 3)
    admins[admin].delete_topic(topic)
    assert {name: client.topics().get(topic) for name, client in admins.items()} == dict.fromkeys(admins)


@pytest.mark.parametrize("admin", ADMINS)
def test_a_recreated_topic_is_empty(admins: Mapping[str, AdminClient], new_name: Callable[[], str], admin: str) -> None:
    topic = new_name()
    client = admins[admin]
    client.create_topic(topic, 1)
    client.write(topic, 0, [Message(b"old"), Message(b"old")])
    client.delete_topic(topic)
    client.create_topic(topic, 1)
    assert client.ends(topic, 0) == (0, 0)
    client.write(topic, 0, [Message(b"new")])
    assert [stored.message.value for stored in client.read(topic, 0, 0, 1)] == [b"new"]


@pytest.mark.parametrize("admin", ADMINS)
def test_creating_an_existing_topic_is_refused(
    admins: Mapping[str, AdminClient], new_topic: Callable[..., str], admin: str
) -> None:
    topic = new_topic()
    with pytest.raises(RefusedError) as refused:
        admins[admin].create_topic(topic, 1)
    assert refused.value.number == TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("admin", ADMINS)
def test_deleting_a_missing_topic_is_refused(
    admins: Mapping[str, AdminClient], new_name: Callable[[], str], admin: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        admins[admin].delete_topic(new_name())
    assert refused.value.number == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("admin", ADMINS)
@pytest.mark.parametrize(
    ("name", "partitions", "replication_factor", "settings", "number"),
    [
        ("no spaces, no commas".replace(" ", "~"), 1, 1, {}, INVALID_TOPIC),
        ("ok", 0, 1, {}, INVALID_PARTITIONS),
        ("ok", 1, 3, {}, INVALID_REPLICATION_FACTOR),
        ("ok", 1, 1, {"retention.ms": "soon"}, INVALID_CONFIG),
        ("ok", 1, 1, {"no.such.setting": "1"}, INVALID_CONFIG),
    ],
    ids=["name", "partitions", "replication factor", "value", "unknown setting"],
)
def test_creating_an_invalid_topic_is_refused(
    admins: Mapping[str, AdminClient],
    new_name: Callable[[], str],
    admin: str,
    name: str,
    partitions: int,
    replication_factor: int,
    settings: Mapping[str, str],
    number: int,
) -> None:
    topic = f"{new_name()}-{name}"
    with pytest.raises(RefusedError) as refused:
        admins[admin].create_topic(topic, partitions, replication_factor=replication_factor, settings=settings)
    assert refused.value.number == number
    assert topic not in admins["confluent-kafka"].topics()


@pytest.mark.parametrize("client", ADMINS)
def test_a_too_large_message_is_refused_and_later_writes_succeed(
    admins: Mapping[str, AdminClient], new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic(settings={"max.message.bytes": "20000"})
    with pytest.raises(RefusedError) as refused:
        admins[client].write(topic, 0, [Message(b"x" * 50_000)])
    assert refused.value.number == MESSAGE_TOO_LARGE
    assert admins[client].ends(topic, 0) == (0, 0)
    admins[client].write(topic, 0, [Message(b"x" * 5_000)])
    assert admins[client].ends(topic, 0) == (0, 1)


@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka", "kafka-python", "java"])
def test_an_offset_far_after_the_log_end_is_out_of_range(
    admins: Mapping[str, AdminClient], new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic()
    admins[client].write(topic, 0, [Message(b"only")])
    with pytest.raises(RefusedError) as refused:
        admins[client].read(topic, 0, 1_000_000, 1)
    # librdkafka reports its own error for a failed offset reset.
    assert refused.value.number in (OFFSET_OUT_OF_RANGE, -140)


@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_topic_is_described_with_its_settings_and_all_defaults(
    keepers: Mapping[str, SettingsClient], new_topic: Callable[..., str], keeper: str
) -> None:
    topic = new_topic(settings={"retention.ms": "3600000", "cleanup.policy": "compact,delete"})
    settings = keepers[keeper].settings(topic)
    assert settings["retention.ms"] == ToldSetting("3600000", True)
    assert settings["cleanup.policy"] == ToldSetting("compact,delete", True)
    assert settings["compression.type"] == ToldSetting("producer", False)
    assert settings["max.message.bytes"] == ToldSetting("1048588", False)
    assert len(settings) >= 33


@pytest.mark.parametrize("keeper", KEEPERS)
def test_settings_are_replaced_completely_and_apply_at_once(
    keepers: Mapping[str, SettingsClient], new_topic: Callable[..., str], keeper: str
) -> None:
    topic = new_topic(settings={"retention.ms": "3600000"})
    client = keepers[keeper]
    client.replace_settings(topic, {"max.message.bytes": "20000", "segment.bytes": "2000000"})
    # kafka-python itself adds the existing settings, so that none is lost by accident.
    own = {name: setting.value for name, setting in client.settings(topic).items() if setting.is_own}
    assert own.items() >= {"max.message.bytes": "20000", "segment.bytes": "2000000"}.items()
    assert ("retention.ms" in own) == (keeper == "kafka-python")
    with pytest.raises(RefusedError) as refused:
        client.write(topic, 0, [Message(b"x" * 50_000)])
    assert refused.value.number == MESSAGE_TOO_LARGE


@pytest.mark.parametrize("keeper", [name for name in KEEPERS if name != "aiokafka"])
def test_single_settings_are_changed_and_reset(
    keepers: Mapping[str, SettingsClient], new_topic: Callable[..., str], keeper: str
) -> None:
    topic = new_topic(settings={"retention.ms": "3600000", "segment.ms": "5000"})
    client = keepers[keeper]
    client.change_settings(topic, {"retention.ms": None, "retention.bytes": "77"})
    own = {name: setting.value for name, setting in client.settings(topic).items() if setting.is_own}
    assert own == {"segment.ms": "5000", "retention.bytes": "77"}


@pytest.mark.parametrize("keeper", KEEPERS)
def test_an_invalid_setting_is_refused_and_changes_nothing(
    keepers: Mapping[str, SettingsClient], new_topic: Callable[..., str], keeper: str
) -> None:
    topic = new_topic(settings={"retention.ms": "3600000"})
    client = keepers[keeper]
    change = client.change_settings if client.incremental else client.replace_settings
    for bad in ({"retention.ms": "soon"}, {"no.such.setting": "1"}):
        with pytest.raises(RefusedError) as refused:
            change(topic, bad)
        assert refused.value.number == INVALID_CONFIG
    assert client.settings(topic)["retention.ms"] == ToldSetting("3600000", True)


@pytest.mark.parametrize("keeper", KEEPERS)
def test_all_clients_see_partitions_added_to_a_topic(
    keepers: Mapping[str, SettingsClient], new_topic: Callable[..., str], keeper: str
) -> None:
    topic = new_topic(partitions=2)
    client = keepers[keeper]
    client.write(topic, 1, [Message(b"old")])
    client.grow(topic, 5)
    assert {name: each.topics().get(topic) for name, each in keepers.items()} == dict.fromkeys(keepers, 5)
    client.write(topic, 4, [Message(b"new")])
    assert [stored.message.value for stored in client.read(topic, 4, 0, 1)] == [b"new"]
    assert [stored.message.value for stored in client.read(topic, 1, 0, 1)] == [b"old"]
    for count in (5, 4):
        with pytest.raises(RefusedError) as refused:
            client.grow(topic, count)
        assert refused.value.number == INVALID_PARTITIONS


@pytest.mark.parametrize("keeper", KEEPERS)
def test_records_before_an_offset_are_deleted(
    keepers: Mapping[str, SettingsClient], new_topic: Callable[..., str], keeper: str
) -> None:
    topic = new_topic()
    client = keepers[keeper]
    client.write(topic, 0, [Message(b"%d" % number) for number in range(10)])
    assert client.delete_records(topic, 0, 4) == 4
    assert client.ends(topic, 0) == (4, 10)
    assert [stored.offset for stored in client.read(topic, 0, 4, 6)] == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("keeper", KEEPERS)
def test_the_cluster_is_described(keepers: Mapping[str, SettingsClient], bootstrap: str, keeper: str) -> None:
    cluster = keepers[keeper].cluster()
    host, _, port = bootstrap.rpartition(":")
    assert cluster.brokers == {1: (host, int(port))}
    assert cluster.controller == 1
    assert len(cluster.cluster_id) == 22
