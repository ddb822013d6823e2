"""Settings as people write them, and as brokers take them."""

import pytest

from millstream.cli.setting_values import read_settings
from millstream.model.errors import ErrorCode, MillstreamError


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("retention.ms=7d", "retention.ms", "604800000"),
        ("retention.ms=1000", "retention.ms", "1000"),
        ("retention.ms=none", "retention.ms", "-1"),
        ("retention.ms=-1", "retention.ms", "-1"),
        ("segment.bytes=64MiB", "segment.bytes", "67108864"),
        ("max.message.bytes=1MB", "max.message.bytes", "1000000"),
        ("cleanup.policy=compact,delete", "cleanup.policy", "compact,delete"),
        ("min.insync.replicas=2", "min.insync.replicas", "2"),
        ("leader.replication.throttled.replicas=", "leader.replication.throttled.replicas", ""),
        ("x=a=b", "x", "a=b"),
    ],
)
def test_durations_and_sizes_become_plain_numbers(text: str, name: str, value: str) -> None:
    assert read_settings([text], "--setting") == {name: value}


@pytest.mark.parametrize(
    "texts", [["retention.ms"], ["=1"], ["retention.ms=soon"], ["segment.bytes=1 gallon"], ["a=1", "a=2"], ["a=\n"]]
)
def test_what_cannot_be_a_setting_is_named(texts: list[str]) -> None:
    with pytest.raises(MillstreamError) as caught:
        read_settings(texts, "--setting")
    assert caught.value.code is ErrorCode.INVALID_SETTING
    assert "--setting" in caught.value.detail
