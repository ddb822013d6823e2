"""Options of the format "millstream": what is understood, and what is said about what is not."""

import re
from pathlib import Path
from typing import Any

import pytest

from millstream.model.default_bootstrap import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
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


def test_names_are_understood_however_they_are_capitalised() -> None:
    assert options(MINPARTITIONS="3").min_tasks == 3


def test_a_batch_reads_everything_and_a_stream_what_comes_unless_told_otherwise() -> None:
    assert options().starting == PartitionBounds(OffsetBound.earliest())
    assert options().ending == PartitionBounds(OffsetBound.latest())
    assert options(streaming=True).starting == PartitionBounds(OffsetBound.latest())
    assert options(streaming=True).ending is None


def test_several_topics_are_named_with_commas_each_once() -> None:
    assert options(topic="a, b,a").topics == ("a", "b")


def test_partitions_name_their_topics() -> None:
    chosen = source_options(parse_options({"bootstrap": "b:1", "partitions": '{"orders": [2, 0, 2]}'}), streaming=False)
    assert (chosen.topics, chosen.partitions) == (("orders",), {"orders": (0, 2)})


@pytest.mark.parametrize("policy", DataLoss)
def test_every_policy_for_lost_data_is_understood(policy: DataLoss) -> None:
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
def test_a_value_that_cannot_be_is_refused_with_its_options_name(name: str, text: str) -> None:
    said = refused({**LEAST, name: text})
    assert said.startswith(f"option {name}={text!r}: ")


def test_an_unknown_option_is_refused_with_those_that_there_are() -> None:
    said = refused({**LEAST, "topics": "x"})
    assert all(row.name in said for row in TABLE)


@pytest.mark.parametrize(
    ("name", "ours"), [("subscribe", "topic"), ("failOnDataLoss", "dataLoss"), ("kafka.bootstrap.servers", "bootstrap")]
)
def test_who_knows_sparks_kafka_options_is_told_what_they_are_called_here(name: str, ours: str) -> None:
    assert refused({**LEAST, name: "x"}) == f"there is no option {name}; it is called {ours} here"


def test_brokers_that_no_option_names_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = parse_options({"topic": "orders"})
    monkeypatch.delenv(BOOTSTRAP_VARIABLE, raising=False)
    assert source_options(chosen, streaming=False).bootstrap == DEFAULT_BOOTSTRAP
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "elsewhere:9092")
    assert source_options(chosen, streaming=False).bootstrap == "elsewhere:9092"


def test_a_path_is_refused() -> None:
    assert "no path" in refused({**LEAST, "path": "/data"})


def test_sparks_own_options_are_not_looked_at() -> None:
    assert options(checkpointLocation="/somewhere") == options()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bootstrap": "b:1"}, "none of them was given"),
        ({"bootstrap": "b:1", "topic": "a", "topicPattern": "b"}, "not topic and topicPattern together"),
        ({**LEAST, "startingOffsets": "latest", "startingTimestamp": "0"}, "exclude each other"),
        ({**LEAST, "maxRowsPerTrigger": "5"}, "for streams"),
        ({**LEAST, "group": "g"}, "for streams"),
        ({**LEAST, "valueSchema": "a INT"}, "valueSchema is for values with types"),
        ({**LEAST, "valueFormat": "string", "badValues": "null"}, "badValues is for values with types"),
        ({**LEAST, "valueShape": "struct"}, "valueShape is for values with types"),
        ({**LEAST, "valueFormat": "json", "avroFraming": "confluent"}, "avroFraming is for valueFormat=avro"),
        ({**LEAST, "valueFormat": "avro"}, "needs the option valueSchema"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(given: dict[str, str], said: str) -> None:
    assert said in refused(given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", PartitionBounds(OffsetBound.earliest())),
        ("LATEST", PartitionBounds(OffsetBound.latest())),
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
def test_offsets_are_said_for_all_for_a_topic_or_for_a_partition(text: str, expected: PartitionBounds) -> None:
    assert offset_places(text) == expected


@pytest.mark.parametrize(
    "text", ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", str(MIDDAY_MS), f'{{"a": {{"0": {MIDDAY_MS}}}}}']
)
def test_times_are_said_in_several_ways(text: str) -> None:
    where = TopicPartition("a", 0)
    assert time_places(text).of(where, OffsetBound.latest()) == OffsetBound(BoundKind.TIME, MIDDAY_MS)


def test_what_is_said_of_a_partition_goes_before_what_is_said_of_its_topic() -> None:
    said = PartitionBounds(
        None, {"a": OffsetBound.earliest()}, {TopicPartition("a", 1): OffsetBound(BoundKind.OFFSET, 7)}
    )
    found: list[Any] = [
        said.of(TopicPartition(*where), OffsetBound.latest()) for where in (("a", 0), ("a", 1), ("b", 0))
    ]
    assert found == [OffsetBound.earliest(), OffsetBound(BoundKind.OFFSET, 7), OffsetBound.latest()]


def test_every_option_is_documented_and_no_other() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?`) \|", page.partition("## What to read")[2], flags=re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(row.name for row in TABLE)
