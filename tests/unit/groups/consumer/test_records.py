"""Tests the records of the consumer protocol, byte by byte where Kafka and its tools read them."""

import pytest

from builders.groups.consumers import Consumer, describe
from builders.groups.machine import Driver
from builders.groups.topics import Topics
from millstream.coordination.effects import LogRecord
from millstream.groups.commands import OfferedProtocol
from millstream.groups.consumer import records
from millstream.groups.consumer.members import ClassicTerms, MemberAssignment, MemberState, MemberSubscription
from millstream.groups.consumer.records import GroupEpoch, Key, ResolvedRegex, TargetEpoch, Value
from millstream.model.errors import MillstreamError
from millstream.model.ids import TopicIdBytes

TOPIC = TopicIdBytes(bytes(range(16)))
TWO_PARTITIONS = b"\x02" + TOPIC + b"\x03\x00\x00\x00\x00\x00\x00\x00\x02" + b"\x00"
"""One topic with two partitions and no tags."""

LAYOUTS: dict[str, tuple[LogRecord, str, bytes]] = {
    "group": (
        records.group_record("g", GroupEpoch(3, 5)),
        "0003 0001 67",
        b"\x00\x00" + b"\x00\x00\x00\x03" + b"\x01\x00\x08" + b"\x00\x00\x00\x00\x00\x00\x00\x05",
    ),
    "group without a hash": (
        records.group_record("g", GroupEpoch(3, 0)),
        "0003 0001 67",
        b"\x00\x00" + b"\x00\x00\x00\x03" + b"\x00",
    ),
    "member": (
        records.member_record("g", "m", MemberSubscription("i", None, "c", "/h", ("t",), "", 9, "range")),
        "0005 0001 67 0001 6d",
        b"\x00\x00" + b"\x02i\x00\x02c\x03/h" + b"\x02\x02t" + b"\x01" + b"\x00\x00\x00\x09" + b"\x06range" + b"\x00",
    ),
    "classic member": (
        records.member_record("g", "m", MemberSubscription(classic=ClassicTerms(7, (OfferedProtocol("r", b"x"),)))),
        "0005 0001 67 0001 6d",
        b"\x00\x00" + b"\x00\x00\x01\x01" + b"\x01" + b"\x01" + b"\xff\xff\xff\xff" + b"\x00"
        b"\x01\x00\x0c" + b"\x01" + b"\x00\x00\x00\x07" + b"\x02\x02r\x02x\x00" + b"\x00",
    ),
    "target epoch": (
        records.target_epoch_record("g", TargetEpoch(4, 0)),
        "0006 0001 67",
        b"\x00\x00" + b"\x00\x00\x00\x04" + b"\x00",
    ),
    "target": (
        records.target_record("g", "m", {TOPIC: frozenset({2, 0})}),
        "0007 0001 67 0001 6d",
        b"\x00\x00" + TWO_PARTITIONS + b"\x00",
    ),
    "holding": (
        records.holding_record("g", "m", MemberAssignment(5, 4, MemberState.UNREVOKED, {}, {TOPIC: frozenset({0, 2})})),
        "0008 0001 67 0001 6d",
        b"\x00\x00" + b"\x00\x00\x00\x05\x00\x00\x00\x04\x01" + b"\x01" + TWO_PARTITIONS + b"\x00",
    ),
    "expression": (
        records.regex_record("g", "a.*", ResolvedRegex(("ab",), 6, 7)),
        "0010 0001 67 0003 612e2a",
        b"\x00\x00" + b"\x02\x03ab" + (6).to_bytes(8) + (7).to_bytes(8) + b"\x00",
    ),
}


@pytest.mark.parametrize(("record", "key", "value"), LAYOUTS.values(), ids=LAYOUTS)
def test_records_have_the_layout_of_kafka(record: LogRecord, key: str, value: bytes) -> None:
    assert record == LogRecord(bytes.fromhex(key), value)


@pytest.mark.parametrize(
    ("version", "name", "value", "record"),
    [
        (records.GROUP, "", GroupEpoch(3, -5), records.group_record("g", GroupEpoch(3, -5))),
        (records.TARGET_EPOCH, "", TargetEpoch(4, 9), records.target_epoch_record("g", TargetEpoch(4, 9))),
        (
            records.MEMBER,
            "m",
            told := MemberSubscription("i", "r", "c", "h", ("a", "b"), "x", 5, "range", ClassicTerms(7, ())),
            records.member_record("g", "m", told),
        ),
        (
            records.HOLDING,
            "m",
            held := MemberAssignment(
                5, 4, MemberState.UNRELEASED, {TOPIC: frozenset({1})}, {TopicIdBytes(bytes(16)): frozenset({0})}
            ),
            records.holding_record("g", "m", held),
        ),
    ],
)
def test_encoded_records_are_decoded_to_the_same_values(
    version: int, name: str, value: Value, record: LogRecord
) -> None:
    assert record.value is not None
    assert records.read_key(record.key, version) == Key(version, "g", name)
    assert records.read_value(version, record.value) == value


def test_a_record_with_an_unknown_member_state_is_refused() -> None:
    record = records.holding_record("g", "m", MemberAssignment())
    assert record.value is not None
    with pytest.raises(MillstreamError):
        records.read_value(records.HOLDING, record.value[:10] + b"\x07" + record.value[11:])


def test_records_can_be_replayed_in_any_order_after_compaction() -> None:
    driver = Driver(topics=Topics(orders=4))
    members = [Consumer(driver, name) for name in "ab"]
    for _ in range(4):
        for member in members:
            member.beat()
    backwards = Driver(list(reversed(list(driver.machine.dump()))), topics=driver.topics)
    assert sorted(backwards.machine.dump()) == sorted(driver.machine.dump())
    assert describe(backwards).state == describe(driver).state == "Stable"


def test_replay_ignores_tombstones_of_unknown_groups() -> None:
    driver = Driver([records.tombstone(version, "g", "m") for version in sorted(records.KEYS)])
    assert list(driver.machine.group_ids()) == []


def test_replay_ignores_partition_metadata_of_older_brokers() -> None:
    driver = Driver([LogRecord(bytes.fromhex("0004 0001 67"), b"\x00\x00\x01\x00")])
    assert list(driver.machine.group_ids()) == []
