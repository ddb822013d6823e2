"""The table of topic settings: what is accepted, what is refused by name, what holds in the end."""

import pytest

from penstock.model.errors import ErrorCode, PenstockError
from penstock.partition.settings import TABLE, TopicSettings, check


@pytest.mark.parametrize("name", TABLE)
def test_every_default_is_legal(name: str) -> None:
    assert check({name: TABLE[name].default}) == {name: TABLE[name].default}
    assert TABLE[name].doc.endswith(".")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1e3"),
        ("retention.ms", "1_000"),
        ("retention.ms", "٣"),
        ("retention.ms", ""),
        ("retention.ms", None),
        ("retention.ms", str(2**63)),
        ("retention.ms", "9" * 5000),
        ("segment.bytes", "14"),
        ("segment.bytes", str(2**31)),
        ("segment.ms", "0"),
        ("max.message.bytes", "-1"),
        ("min.insync.replicas", "0"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("compression.type", "zstd"),
        ("message.timestamp.type", "createtime"),
        ("flush.messages", "1"),
        ("no.such.setting", "1"),
    ],
)
def test_a_bad_setting_is_refused_by_its_name(name: str, value: str | None) -> None:
    with pytest.raises(PenstockError, match=name) as error:
        check({"retention.bytes": "5", name: value})
    assert error.value.code is ErrorCode.INVALID_CONFIG
    assert len(str(error.value)) < 1000


def test_the_topics_own_settings_come_before_the_brokers_and_those_before_the_tables() -> None:
    effective = TopicSettings.of({"retention.ms": "1000000"}, {"retention.ms": "5", "retention.bytes": " 77 "})
    assert (effective.retention_ms, effective.retention_bytes) == (1_000_000, 77)
    assert effective.max_message_bytes == int(TABLE["max.message.bytes"].default)
    assert not effective.log_append_time


@pytest.mark.parametrize(
    ("retention_ms", "segment_ms", "effective"),
    [("-1", "5000", 5000), ("60000", "5000", 5000), ("60000", "604800000", 60000), ("0", "604800000", 1000)],
)
def test_a_segment_takes_messages_no_longer_than_they_are_kept(
    retention_ms: str, segment_ms: str, effective: int
) -> None:
    assert TopicSettings.of({"retention.ms": retention_ms, "segment.ms": segment_ms}).segment_ms == effective
