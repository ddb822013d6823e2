"""Tests that the values of settings become the plain texts that brokers accept."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.setting_values import plain_setting, plain_settings, readable_setting


@pytest.mark.parametrize(
    ("name", "value", "plain"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1000", "1000"),
        ("retention.ms", 600_000, "600000"),
        ("retention.ms", 600_000.0, "600000"),
        ("retention.ms", timedelta(days=7), "604800000"),
        ("retention.ms", "none", "-1"),
        ("retention.ms", -1, "-1"),
        ("local.retention.ms", "-2", "-2"),
        ("max.compaction.lag.ms", str(2**63 - 1), str(2**63 - 1)),
        ("segment.bytes", "64MiB", "67108864"),
        ("segment.bytes", 2**20, "1048576"),
        ("max.message.bytes", "1MB", "1000000"),
        ("retention_ms", "7d", "604800000"),
        ("min.insync.replicas", 2, "2"),
        ("preallocate", True, "true"),
        ("preallocate", False, "false"),
        ("min.cleanable.dirty.ratio", 0.5, "0.5"),
        ("cleanup.policy", "compact,delete", "compact,delete"),
        ("no.such.setting", "7d", "7d"),
    ],
)
def test_values_become_plain_text(name: str, value: Any, plain: str) -> None:
    assert plain_settings({name: value}) == {name: plain}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retention.ms", "abc", 'retention.ms: "abc" is not a duration (examples: 7d, 36h, 600000)'),
        ("segment.bytes", "1 gallon", 'segment.bytes: "1 gallon" is not a size (examples: 1GiB, 64KiB, 500MB, 4096)'),
        ("retention.ms", None, "retention.ms: None is not the value of a setting"),
        ("cleanup.policy", ["compact", 1], "cleanup.policy: ['compact', 1] is not the value of a setting"),
        ("segment.bytes", timedelta(1), "segment.bytes: datetime.timedelta(days=1) is not the value of a setting"),
        (7, "1", "7 is not the name of a setting"),
    ],
)
def test_a_bad_value_is_invalid_config_with_the_name_of_the_setting(name: Any, value: Any, text: str) -> None:
    with pytest.raises(MillstreamError) as caught:
        plain_settings({name: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.detail.startswith(text)


def test_settings_that_are_no_mapping_are_an_invalid_argument() -> None:
    with pytest.raises(MillstreamError, match="is not a mapping") as caught:
        plain_settings("retention.ms=7d")  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_SETTING


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("retention.ms", "129600000", "36h"),
        ("retention.ms", "-1", "none"),
        ("local.retention.ms", "-2", "-2"),
        ("segment.ms", "1500", "1500ms"),
        ("segment.bytes", "67108864", "64MiB"),
        ("flush.ms", "9223372036854775807", "none"),
        ("log_retention_ms", "0", "0"),
        ("segment.bytes", "", ""),
        ("min.insync.replicas", "1000", "1000"),
        ("cleanup.policy", "delete", "delete"),
    ],
)
def test_a_setting_is_shown_with_units(name: str, value: str, expected: str) -> None:
    assert readable_setting(name, value) == expected


@pytest.mark.parametrize("policies", [["compact", "delete"], ("compact", "delete")])
def test_a_list_is_sent_as_text_with_commas(policies: Sequence[str]) -> None:
    assert plain_setting("cleanup.policy", policies) == "compact,delete"
