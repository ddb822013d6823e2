"""Tests the table of topic settings: accepted values, refused values and effective values."""

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.topics.setting_table import TABLE
from millstream.topics.settings import TopicSettings, check


@pytest.mark.parametrize("name", TABLE)
def test_every_default_is_valid(name: str) -> None:
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
        ("cleanup.policy", " , "),
        ("cleanup.policy", "compact,"),
        ("cleanup.policy", "compact,remove"),
        ("compression.type", "brotli"),
        ("compression.type", "none"),
        ("compression.gzip.level", "10"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "0.5f"),
        ("max.compaction.lag.ms", "0"),
        ("min.compaction.lag.ms", "-1"),
        ("preallocate", "yes"),
        ("remote.storage.enable", "true"),
        ("leader.replication.throttled.replicas", "1:x"),
        ("message.timestamp.type", "createtime"),
        ("flush.messages", "0"),
        ("internal.segment.bytes", "1000"),
        ("no.such.setting", "1"),
    ],
)
def test_an_invalid_setting_is_refused_and_named(name: str, value: str | None) -> None:
    with pytest.raises(MillstreamError, match=name) as error:
        check({"retention.bytes": "5", name: value})
    assert error.value.code is ErrorCode.INVALID_CONFIG
    assert len(str(error.value)) < 1000


def test_topic_settings_override_broker_defaults_and_table_defaults() -> None:
    effective = TopicSettings.of({"retention.ms": "1000000"}, {"retention.ms": "5", "retention.bytes": " 77 "})
    assert (effective.retention_ms, effective.retention_bytes) == (1_000_000, 77)
    assert effective.max_message_bytes == int(TABLE["max.message.bytes"].default)
    assert not effective.log_append_time


@pytest.mark.parametrize(
    ("policy", "compact", "delete"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
        (" delete , compact ", True, True),
        ("compact,compact", True, False),
        ("", False, False),
        (" ", False, False),
    ],
)
def test_the_cleanup_policy_is_a_list_in_any_order(policy: str, compact: bool, delete: bool) -> None:
    settings = TopicSettings.of(check({"cleanup.policy": policy}))
    assert (settings.compact, settings.delete) == (compact, delete)


@pytest.mark.parametrize(
    ("name", "value", "plain"),
    [
        ("min.cleanable.dirty.ratio", " 0.250 ", "0.25"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", ".5", "0.5"),
        ("min.cleanable.dirty.ratio", "25e-2", "0.25"),
        ("compression.gzip.level", "09", "9"),
        ("retention.ms", "+5", "5"),
        ("preallocate", "TRUE", "true"),
        ("cleanup.policy", "delete, compact,delete", "delete,compact"),
        ("leader.replication.throttled.replicas", "0:1, 1:1", "0:1,1:1"),
        ("follower.replication.throttled.replicas", "*", "*"),
        ("follower.replication.throttled.replicas", " ", ""),
        ("retention.ms", " 0077 ", "77"),
    ],
)
def test_a_value_is_stored_in_canonical_form(name: str, value: str, plain: str) -> None:
    assert check({name: value}) == {name: plain}


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({}, None),
        ({"compression.type": "snappy"}, None),
        ({"compression.type": "uncompressed", "compression.gzip.level": "3"}, None),
        ({"compression.type": "gzip"}, None),
        ({"compression.type": "gzip", "compression.gzip.level": "3"}, 3),
        ({"compression.type": "lz4"}, 9),
        ({"compression.type": "zstd", "compression.zstd.level": "-1"}, -1),
    ],
)
def test_the_compression_level_belongs_to_the_compression_in_use(settings: dict[str, str], level: int | None) -> None:
    assert TopicSettings.of(settings).compression_level == level


@pytest.mark.parametrize(
    ("settings", "defaults"),
    [
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}, {}),
        ({"min.compaction.lag.ms": "10"}, {"max.compaction.lag.ms": "9"}),
        ({"max.compaction.lag.ms": "9"}, {"min.compaction.lag.ms": "10"}),
    ],
)
def test_min_compaction_lag_may_not_exceed_max_compaction_lag(
    settings: dict[str, str], defaults: dict[str, str]
) -> None:
    with pytest.raises(MillstreamError, match=r"min\.compaction\.lag\.ms: 10 is greater than max\.compaction\.lag\.ms"):
        check(settings, defaults)


@pytest.mark.parametrize(
    ("retention_ms", "segment_ms", "effective"),
    [("-1", "5000", 5000), ("60000", "5000", 5000), ("60000", "604800000", 60000), ("0", "604800000", 1000)],
)
def test_a_segment_ends_after_the_retention_time(retention_ms: str, segment_ms: str, effective: int) -> None:
    assert TopicSettings.of({"retention.ms": retention_ms, "segment.ms": segment_ms}).segment_ms == effective


def test_retention_does_not_limit_segments_of_policy_compact() -> None:
    settings = {"cleanup.policy": "compact", "retention.ms": "1000", "segment.ms": "5000"}
    assert TopicSettings.of(settings).segment_ms == 5000
