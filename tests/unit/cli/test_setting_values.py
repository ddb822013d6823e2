"""Tests that settings with units become the plain numbers that brokers accept."""

import pytest

from millstream.cli.setting_values import read_settings
from millstream.model.errors import ErrorCode, MillstreamError


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("retention.ms=7d", "retention.ms", "604800000"),
        ("segment.bytes=64MiB", "segment.bytes", "67108864"),
        ("cleanup.policy=compact,delete", "cleanup.policy", "compact,delete"),
        ("leader.replication.throttled.replicas=", "leader.replication.throttled.replicas", ""),
        ("x=a=b", "x", "a=b"),
    ],
)
def test_durations_and_sizes_become_plain_numbers(text: str, name: str, value: str) -> None:
    assert read_settings([text], "--setting") == {name: value}


@pytest.mark.parametrize("texts", [["retention.ms"], ["=1"], ["a=1", "a=2"], ["a=\n"]])
def test_a_malformed_setting_argument_is_invalid_setting_and_names_the_flag(texts: list[str]) -> None:
    with pytest.raises(MillstreamError) as caught:
        read_settings(texts, "--setting")
    assert caught.value.code is ErrorCode.INVALID_SETTING
    assert "--setting" in caught.value.detail


@pytest.mark.parametrize(("name", "value"), [("retention.ms", "soon"), ("segment.bytes", "1 gallon")])
def test_an_invalid_value_raises_invalid_config_as_a_broker_does(name: str, value: str) -> None:
    with pytest.raises(MillstreamError) as caught:
        read_settings([f"{name}={value}"], "--setting")
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.detail.startswith(f'{name}: "{value}" is not a ')
