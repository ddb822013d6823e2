"""Tests the options of the format "millstream": accepted values, defaults, and error messages."""

import re
from pathlib import Path
from typing import Any

import pytest

from millstream.model.default_bootstrap import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.start_words import BEGINNING, START_WORDS, start_word
from millstream.spark.options import TABLE, DataLoss, SourceOptions, parse_options, source_options
from millstream.spark.reading.offset_bounds import BoundKind, OffsetBound, PartitionBounds, offset_places, time_places

LEAST = {"bootstrap": "localhost:9092", "topic": "orders"}
MIDDAY_MS = 1_769_860_800_000


def options(*, streaming: bool = False, **given: str) -> SourceOptions:
    return source_options(parse_options(LEAST | given), streaming=streaming)


def refused(given: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(MillstreamError) as caught:
        source_options(parse_options(given), streaming=streaming)
    assert caught.value.code is ErrorCode.INVALID_SETTING
    return caught.value.detail


def test_option_names_are_case_insensitive() -> None:
    assert options(MINPARTITIONS="3").min_tasks == 3


def test_by_default_a_batch_reads_everything_and_a_stream_new_messages() -> None:
    assert options().starting == PartitionBounds(OffsetBound.earliest())
    assert options().ending == PartitionBounds(OffsetBound.latest())
    assert options(streaming=True).starting == PartitionBounds(OffsetBound.latest())
    assert options(streaming=True).ending is None


def test_topics_are_separated_by_commas_and_deduplicated() -> None:
    assert options(topic="a, b,a").topics == ("a", "b")


def test_the_option_partitions_also_selects_the_topics() -> None:
    chosen = source_options(parse_options({"bootstrap": "b:1", "partitions": '{"orders": [2, 0, 2]}'}), streaming=False)
    assert (chosen.topics, chosen.partitions) == (("orders",), {"orders": (0, 2)})


@pytest.mark.parametrize(("text", "size_bytes"), [("64MiB", 64 * 2**20), ("1000", 1000), ("1.5kb", 1500)])
def test_the_rate_limit_in_bytes_takes_a_unit(text: str, size_bytes: int) -> None:
    assert options(streaming=True, maxBytesPerTrigger=text).max_bytes == size_bytes


def test_a_data_loss_policy_takes_every_word_for_the_beginning() -> None:
    assert options(dataLoss="beginning").data_loss is DataLoss.EARLIEST


def test_a_time_in_seconds_is_refused_with_the_milliseconds() -> None:
    detail = refused({**LEAST, "startingTimestamp": "1738324800"})
    assert "looks like seconds; give milliseconds (1738324800000)" in detail


@pytest.mark.parametrize("policy", DataLoss)
def test_every_data_loss_policy_is_accepted(policy: DataLoss) -> None:
    assert options(dataLoss=policy.value.upper()).data_loss is policy


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bootstrap", "localhost:port"),
        ("topic", ""),
        ("topic", "a/b"),
        ("topicPattern", "("),
        ("topicPattern", " "),
        ("partitions", "orders"),
        ("partitions", "[]"),
        ("partitions", '{"orders": []}'),
        ("partitions", '{"orders": [-1]}'),
        ("partitions", '{"orders": [true]}'),
        ("startingOffsets", "first"),
        ("startingOffsets", '{"orders": {"0": -3}}'),
        ("startingOffsets", '{"orders": {"x": 3}}'),
        ("endingOffsets", "{}"),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "2026-01-31T12:00:00"),
        ("endingTimestamp", "-5"),
        ("minPartitions", "0"),
        ("maxRowsPerTrigger", "many"),
        ("maxBytesPerTrigger", "1k"),
        ("dataLoss", "ignore"),
        ("includeHeaders", "yes"),
        ("valueFormat", "xml"),
        ("valueSchema", " "),
        ("valueShape", "map"),
        ("badValues", "skip"),
        ("avroFraming", "none"),
        ("group", ""),
    ],
)
def test_an_invalid_value_is_refused_with_the_options_name(name: str, text: str) -> None:
    said = refused({**LEAST, name: text})
    assert said.startswith(f"option {name}={text!r}: ")


def test_an_unknown_option_is_refused_with_a_list_of_valid_ones() -> None:
    said = refused({**LEAST, "topics": "x"})
    assert all(row.name in said for row in TABLE)


@pytest.mark.parametrize(
    ("name", "ours"), [("subscribe", "topic"), ("failOnDataLoss", "dataLoss"), ("kafka.bootstrap.servers", "bootstrap")]
)
def test_options_of_the_kafka_connector_are_refused_with_our_names(name: str, ours: str) -> None:
    assert refused({**LEAST, name: "x"}) == f"unknown option {name}; use {ours} instead"


def test_bootstrap_defaults_to_the_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = parse_options({"topic": "orders"})
    monkeypatch.delenv(BOOTSTRAP_VARIABLE, raising=False)
    assert source_options(chosen, streaming=False).bootstrap == DEFAULT_BOOTSTRAP
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "elsewhere:9092")
    assert source_options(chosen, streaming=False).bootstrap == "elsewhere:9092"


def test_the_option_path_is_refused() -> None:
    assert "no path" in refused({**LEAST, "path": "/data"})


def test_sparks_own_options_are_ignored() -> None:
    assert options(checkpointLocation="/somewhere") == options()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bootstrap": "b:1"}, "found none"),
        ({"bootstrap": "b:1", "topic": "a", "topicPattern": "b"}, "found topic and topicPattern"),
        ({**LEAST, "startingOffsets": "latest", "startingTimestamp": "0"}, "exclude each other"),
        ({**LEAST, "maxRowsPerTrigger": "5"}, "to streams only"),
        ({**LEAST, "group": "g"}, "to streams only"),
        ({**LEAST, "valueSchema": "a INT"}, "valueSchema applies only to valueFormat=json, avro and arrow"),
        ({**LEAST, "valueFormat": "string", "badValues": "null"}, "badValues applies only to valueFormat="),
        ({**LEAST, "valueShape": "struct"}, "valueShape applies only to valueFormat="),
        ({**LEAST, "valueFormat": "json", "avroFraming": "confluent"}, "avroFraming applies only to valueFormat=avro"),
        ({**LEAST, "valueFormat": "avro"}, "needs the option valueSchema"),
    ],
)
def test_conflicting_or_missing_options_are_refused(given: dict[str, str], said: str) -> None:
    assert said in refused(given)


@pytest.mark.parametrize("word", START_WORDS)
def test_spark_accepts_every_start_word(word: str) -> None:
    bound = OffsetBound.earliest() if start_word(word) == BEGINNING else OffsetBound.latest()
    assert offset_places(word) == PartitionBounds(bound)
    where = TopicPartition("orders", 0)
    assert offset_places(f'{{"orders": {{"0": "{word}"}}}}') == PartitionBounds(None, {}, {where: bound})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", PartitionBounds(OffsetBound.earliest())),
        ("LATEST", PartitionBounds(OffsetBound.latest())),
        ("beginning", PartitionBounds(OffsetBound.earliest())),
        ("End", PartitionBounds(OffsetBound.latest())),
        (
            '{"a": "Beginning", "b": "end"}',
            PartitionBounds(None, {"a": OffsetBound.earliest(), "b": OffsetBound.latest()}),
        ),
        ('{"a": "earliest"}', PartitionBounds(None, {"a": OffsetBound.earliest()})),
        (
            '{"a": {"0": 23, "1": -1, "2": -2}}',
            PartitionBounds(
                None,
                {},
                {
                    TopicPartition("a", 0): OffsetBound(BoundKind.OFFSET, 23),
                    TopicPartition("a", 1): OffsetBound.latest(),
                    TopicPartition("a", 2): OffsetBound.earliest(),
                },
            ),
        ),
    ],
)
def test_offsets_are_given_globally_per_topic_or_per_partition(text: str, expected: PartitionBounds) -> None:
    assert offset_places(text) == expected


@pytest.mark.parametrize(
    "text", ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", str(MIDDAY_MS), f'{{"a": {{"0": {MIDDAY_MS}}}}}']
)
def test_times_are_accepted_in_several_formats(text: str) -> None:
    where = TopicPartition("a", 0)
    assert time_places(text).of(where, OffsetBound.latest()) == OffsetBound(BoundKind.TIME, MIDDAY_MS)


def test_a_partitions_bound_overrides_its_topics_bound() -> None:
    said = PartitionBounds(
        None, {"a": OffsetBound.earliest()}, {TopicPartition("a", 1): OffsetBound(BoundKind.OFFSET, 7)}
    )
    found: list[Any] = [
        said.of(TopicPartition(*where), OffsetBound.latest()) for where in (("a", 0), ("a", 1), ("b", 0))
    ]
    assert found == [OffsetBound.earliest(), OffsetBound(BoundKind.OFFSET, 7), OffsetBound.latest()]


def test_the_documentation_lists_exactly_the_options() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| option \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, flags=re.MULTILINE)
    rows = [row for table in tables for row in re.findall(r"^\| (`.+?`) \|", table, flags=re.MULTILINE)]
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(row.name for row in TABLE)
