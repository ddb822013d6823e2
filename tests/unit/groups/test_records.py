"""Tests the records of offsets and classic groups, byte for byte as Kafka's own tools expect them."""

from struct import pack

import pytest

from builders.groups.machine import Driver
from builders.loops import for_each
from millstream.coordination.effects import LogRecord
from millstream.groups.records import (
    NO_TOPIC,
    OffsetKey,
    StoredGroup,
    StoredMember,
    group_key,
    group_value,
    key_version,
    offset_record,
    offset_tombstone,
    read_group,
    read_group_key,
    read_offset,
    read_offset_key,
    subscribed_topics,
)
from millstream.groups.responses import CommittedOffset
from millstream.model.ids import LeaderEpoch, Offset, TopicIdBytes
from millstream.wire.malformed import MalformedMessageError

KEY = OffsetKey("billing", "orders", 3)
COMMITTED = CommittedOffset(Offset(42), LeaderEpoch(7), "note", 1_700_000_000_000)
GROUP = StoredGroup(
    protocol_type="consumer",
    generation=5,
    protocol_name="range",
    leader="m-1",
    since_ms=1_700_000_000_123,
    members=(
        StoredMember("m-1", None, "rdkafka", "/10.0.0.1", 300_000, 45_000, b"\x00\x01", b"\x00\x00"),
        StoredMember("m-2", "static", "java", "/10.0.0.2", 60_000, 10_000, b"sub", b""),
    ),
)


FROM_KAFKA = {
    "offset key": "0001000762696c6c696e6700066f726465727300000003",
    "offset value": "0003000000000000002a0000000700046e6f74650000018bcfe56800",
    "group key": "0002000762696c6c696e67",
    "group value": "00030008636f6e73756d657200000005000572616e676500036d2d310000018bcfe5687b0000000200036d2d31ffff0007"
    "72646b61666b6100092f31302e302e302e31000493e00000afc800000002000100000002000000036d2d32000673746174696300046a6176"
    "6100092f31302e302e302e320000ea60000027100000000373756200000000",
}
"""The same records, encoded by Apache Kafka 4.3's own code."""


def text(value: str | None) -> bytes:
    return pack(">h", -1) if value is None else pack(">h", len(value)) + value.encode()


def data(value: bytes) -> bytes:
    return pack(">i", len(value)) + value


def test_the_key_of_an_offset_contains_group_topic_and_partition() -> None:
    expected = pack(">h", 1) + text("billing") + text("orders") + pack(">i", 3)
    assert offset_record(KEY, COMMITTED).key == offset_tombstone(KEY).key == expected
    assert offset_tombstone(KEY).value is None
    assert read_offset_key(expected) == KEY


def test_an_offset_record_without_a_topic_id_has_value_version_3() -> None:
    expected = pack(">hqi", 3, 42, 7) + text("note") + pack(">q", 1_700_000_000_000)
    assert offset_record(KEY, COMMITTED).value == expected
    assert read_offset(expected) == (COMMITTED, NO_TOPIC)


def test_an_offset_record_with_a_topic_id_has_value_version_4_and_an_id_tag() -> None:
    topic_id = TopicIdBytes(bytes(range(16)))
    expected = pack(">hqi", 4, 42, 7) + b"\x05note" + pack(">q", 1_700_000_000_000) + b"\x01\x00\x10" + topic_id
    assert offset_record(KEY, COMMITTED, topic_id).value == expected
    assert read_offset(expected) == (COMMITTED, topic_id)


@pytest.mark.parametrize(
    ("value", "leader_epoch"),
    [
        (pack(">hq", 0, 42) + text("note") + pack(">q", 1_700_000_000_000), -1),
        (pack(">hq", 1, 42) + text("note") + pack(">qq", 1_700_000_000_000, 1_800_000_000_000), -1),
        (pack(">hq", 2, 42) + text("note") + pack(">q", 1_700_000_000_000), -1),
        (pack(">hqi", 4, 42, 7) + b"\x05note" + pack(">q", 1_700_000_000_000) + b"\x00", 7),
    ],
)
def test_offsets_of_other_versions_are_decoded(value: bytes, leader_epoch: int) -> None:
    assert read_offset(value) == (COMMITTED._replace(leader_epoch=LeaderEpoch(leader_epoch)), NO_TOPIC)


def test_a_group_is_encoded_in_version_3() -> None:
    members = (
        text("m-1") + text(None) + text("rdkafka") + text("/10.0.0.1") + pack(">ii", 300_000, 45_000)
        + data(b"\x00\x01") + data(b"\x00\x00")
        + text("m-2") + text("static") + text("java") + text("/10.0.0.2") + pack(">ii", 60_000, 10_000)
        + data(b"sub") + data(b"")
    )  # fmt: skip
    expected = (
        pack(">h", 3) + text("consumer") + pack(">i", 5) + text("range") + text("m-1")
        + pack(">q", 1_700_000_000_123) + pack(">i", 2) + members
    )  # fmt: skip
    assert group_value(GROUP) == expected
    assert read_group(expected) == GROUP
    assert group_key("billing") == pack(">h", 2) + text("billing")
    assert read_group_key(group_key("billing")) == "billing"


def test_the_encoded_bytes_equal_those_of_kafka() -> None:
    offset = offset_record(KEY, COMMITTED)
    written = {
        "offset key": offset.key,
        "offset value": offset.value or b"",
        "group key": group_key("billing"),
        "group value": group_value(GROUP),
    }
    assert {name: data.hex() for name, data in written.items()} == FROM_KAFKA


def test_an_empty_group_is_encoded_without_protocol_and_leader() -> None:
    empty = StoredGroup("consumer", 6, None, None, 1, ())
    value = pack(">h", 3) + text("consumer") + pack(">i", 6) + text(None) + text(None) + pack(">qi", 1, 0)
    assert group_value(empty) == value
    assert read_group(value) == empty


def test_a_version_0_group_record_gets_its_session_timeout_as_rebalance_timeout() -> None:
    member = text("m") + text("c") + text("/h") + pack(">i", 9_000) + data(b"s") + data(b"a")
    value = pack(">h", 0) + text("consumer") + pack(">i", 5) + text("range") + text("m") + pack(">i", 1) + member
    read = read_group(value)
    assert read.since_ms == -1
    assert read.members == (StoredMember("m", None, "c", "/h", 9_000, 9_000, b"s", b"a"),)


def test_the_machine_writes_decodable_group_and_offset_records() -> None:
    driver = Driver()
    (member,) = driver.stable()
    driver.commit(("orders", 0, 5), by=member)
    group, offset = driver.log
    assert read_group_key(group.key) == "g"
    assert group.value is not None
    stored = read_group(group.value)
    assert (stored.generation, stored.leader, stored.protocol_type) == (1, member.member_id, "consumer")
    assert stored.members[0].assignment == member.member_id.encode()
    assert read_offset_key(offset.key) == OffsetKey("g", "orders", 0)


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x63", b"\x7f\xffrest", b"\xff\xff"])
def test_replay_ignores_keys_of_unknown_kinds(key: bytes) -> None:
    driver = Driver([LogRecord(key, b"whatever"), LogRecord(key, None)])
    assert list(driver.machine.dump()) == []


@pytest.mark.parametrize("record", [LogRecord(group_key("g"), b"\x00\x03"), LogRecord(b"\x00\x01\x00\x09abc", b"")])
def test_replay_raises_for_a_record_that_does_not_match_its_layout(record: LogRecord) -> None:
    with pytest.raises(MalformedMessageError):
        Driver([record])


def test_the_first_two_bytes_of_a_key_are_its_version() -> None:
    assert (key_version(b"\x00\x02..."), key_version(b"\xff\xfe"), key_version(b"\x00")) == (2, -2, -1)


@pytest.mark.parametrize("tail", [b"", b"more that a newer version has"])
@for_each("version", [0, 1, 2, 3, 9])
def test_consumer_subscriptions_are_decoded_in_all_versions(version: int, tail: bytes) -> None:
    told = pack(">hi", version, 2) + text("orders") + text("other") + pack(">i", -1)
    told += (pack(">i", 0) if version >= 1 else b"") + (pack(">i", 5) if version >= 2 else b"")
    told += text("rack") if version >= 3 else b""
    assert subscribed_topics(told + tail) == ("orders", "other")
