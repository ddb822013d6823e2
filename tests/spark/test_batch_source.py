"""Tests a topic as a table: start and end offsets, columns, filters, and error messages."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException

from millstream.model.names import TopicPartition
from spark.site import Site


@pytest.fixture
def full(site: Site) -> Site:
    """A topic with three partitions of ten messages; partition 1 has the values from 10 to 19, and so on."""
    site.client.create_topic(site.topic, partitions=3)
    for partition in range(3):
        site.write(range(10 * partition, 10 * partition + 10), partition=partition)
    return site


def said(site: Site, schema: str | None = None, **options: object) -> str:
    """Returns the error text for the user, without stack traces."""
    with pytest.raises(PySparkException) as caught:
        site.read(schema, **options).collect()
    found = re.search(r"^millstream\.model\.errors\.\w+Error: (.*)", str(caught.value), flags=re.MULTILINE)
    assert found, caught.value
    return found[1]


def test_every_message_is_a_row_with_its_offset_and_timestamp(site: Site) -> None:
    site.client.create_topic(site.topic)
    moment = datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
    with site.client.producer() as producer:
        producer.put(site.topic, b"value", key=b"key", timestamp=moment, headers=[("a", b"1"), ("b", None)])
        producer.put_many(site.topic, [None], timestamps=[moment])
    frame = site.read(includeHeaders=True)
    first, second = frame.selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"key", b"value", site.topic)
    assert (first.partition, first.offset, first.ms) == (0, 0, int(moment.timestamp() * 1000))
    assert [(header.key, header.value and bytes(header.value)) for header in first.headers] == [
        ("a", b"1"),
        ("b", None),
    ]
    assert (second.key, second.value, second.headers, second.offset) == (None, None, [], 1)


def test_several_topics_are_read_completely(full: Site) -> None:
    other = f"{full.topic}-more"
    full.client.create_topic(other)
    full.write(range(30, 35), topic=other)
    assert full.values(topic=f"{full.topic},{other}") == list(range(35))
    assert full.values(topicPattern=f"{full.topic}-.*") == list(range(30, 35))


def test_selected_partitions_are_read(full: Site) -> None:
    assert full.values(partitions=f'{{"{full.topic}": [0, 2]}}') == [*range(10), *range(20, 30)]


def test_starting_and_ending_offsets_bound_the_table(full: Site) -> None:
    starting = f'{{"{full.topic}": {{"0": 8, "1": "latest"}}}}'
    ending = f'{{"{full.topic}": {{"2": 3}}}}'
    assert full.values(startingOffsets=starting, endingOffsets=ending) == [8, 9, 20, 21, 22]


def test_starting_and_ending_timestamps_bound_the_table(site: Site) -> None:
    site.client.create_topic(site.topic)
    begin = datetime(2026, 1, 31, 12, tzinfo=UTC)
    with site.client.producer() as producer:
        for number in range(10):
            producer.put(site.topic, str(number).encode(), timestamp=begin + timedelta(minutes=number))
    starting, ending = (begin + timedelta(minutes=number) for number in (3, 6))
    assert site.values(startingTimestamp=starting.isoformat(), endingTimestamp=ending.isoformat()) == [3, 4, 5]
    assert site.values(startingTimestamp=(begin + timedelta(days=1)).isoformat()) == []
    later = site.read().where(f"timestamp >= TIMESTAMP '{(begin + timedelta(minutes=8)).isoformat()}'")
    assert sorted(row.offset for row in later.collect()) == [8, 9]


def test_small_ranges_share_a_task_unless_min_partitions_is_higher(full: Site) -> None:
    assert full.read().rdd.getNumPartitions() == 1
    assert full.read(minPartitions=7).rdd.getNumPartitions() == 7
    assert full.values(minPartitions=7) == list(range(30))


def test_filters_on_topic_partition_and_offset_are_applied(full: Site) -> None:
    frame = full.read().where("partition = 1 AND offset >= 3 AND offset < 6")
    assert sorted(int(bytes(row.value)) for row in frame.collect()) == [13, 14, 15]
    assert full.read().where("partition IN (0, 2) AND offset = 9").count() == 2
    assert full.read().where(f"topic = '{full.topic}' AND NOT partition = 0").count() == 20
    assert full.read().where("topic = 'another'").count() == 0


def test_filters_are_applied_when_pushdown_is_disabled(full: Site) -> None:
    full.spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert full.read().where("partition = 1 AND offset < 6").count() == 6
    finally:
        full.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_only_the_columns_of_a_schema_are_read(full: Site) -> None:
    frame = full.read("offset BIGINT, topic STRING")
    assert frame.columns == ["offset", "topic"]
    assert sorted(set(frame.collect())) == [(number, full.topic) for number in range(10)]


def test_keys_and_values_can_be_read_as_strings(site: Site) -> None:
    site.client.create_topic(site.topic)
    with site.client.producer() as producer:
        producer.put(site.topic, "grün".encode(), key=b"k")
    (row,) = site.read("key STRING, value STRING", valueFormat="string").collect()
    assert (row.key, row.value) == ("k", "grün")
    assert site.read(valueFormat="string").schema["value"].dataType.simpleString() == "string"


def test_columns_that_every_message_has_are_not_nullable(full: Site) -> None:
    fields = full.read().schema.fields
    assert [field.name for field in fields if not field.nullable] == ["topic", "partition", "offset", "timestamp"]
    assert full.read().where("offset IS NULL OR topic IS NULL").count() == 0
    assert full.read("offset BIGINT NOT NULL, key BINARY").count() == full.read().count()


def test_an_empty_topic_is_an_empty_table(site: Site) -> None:
    site.client.create_topic(site.topic)
    assert site.values() == []


def test_a_table_starts_at_the_log_start_when_earlier_messages_were_deleted(full: Site) -> None:
    full.client.admin.delete_records({TopicPartition(full.topic, 0): 4})
    assert full.values() == list(range(4, 30))


@pytest.mark.parametrize(("policy", "first"), [("earliest", 4), ("skip", 10)])
def test_missing_messages_are_skipped_when_data_loss_is_allowed(full: Site, policy: str, first: int) -> None:
    full.client.admin.delete_records({TopicPartition(full.topic, 0): 4})
    assert full.values(startingOffsets=f'{{"{full.topic}": 0}}', dataLoss=policy) == list(range(first, 30))


def test_missing_messages_fail_the_query_by_default(full: Site) -> None:
    full.client.admin.delete_records({TopicPartition(full.topic, 0): 4})
    told = said(full, startingOffsets=f'{{"{full.topic}": 0}}')
    assert told.startswith(f"OFFSET_OUT_OF_RANGE: {full.topic}-0: offsets 0 to 3 no longer exist; ")


def test_a_missing_topic_is_named_in_the_error(site: Site) -> None:
    assert said(site).startswith(f"UNKNOWN_TOPIC_OR_PARTITION: topic '{site.topic}'")


def test_a_missing_partition_is_named_in_the_error(full: Site) -> None:
    told = said(full, partitions=f'{{"{full.topic}": [5]}}')
    assert told == f"UNKNOWN_TOPIC_OR_PARTITION: topic '{full.topic}' has no partition 5 (option partitions); it has 3"


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("value STRING", "schema: column value has type string; accepted: binary"),
        ("colour STRING", "schema: colour is not a column of topics (accepted: key, value, topic"),
        ("offset INT", "schema: column offset has type int; accepted: bigint"),
        (
            "key BINARY NOT NULL",
            "schema: column key, or a part of it, is NOT NULL, but messages may lack it",
        ),
        (
            "headers ARRAY<STRUCT<key: STRING, value: BINARY NOT NULL>>",
            "schema: column headers, or a part of it, is NOT NULL",
        ),
    ],
)
def test_a_schema_that_does_not_match_is_refused(full: Site, schema: str, told: str) -> None:
    assert said(full, schema).startswith(f"INVALID_SETTING: {told}")


@pytest.mark.parametrize(
    ("option", "places", "told"),
    [
        ("startingOffsets", {"0": 11}, "startingOffsets=11 is after the end of the partition (offset 10)"),
        ("endingOffsets", {"0": 12}, "endingOffsets=12 is after the end of the partition (offset 10)"),
        ("startingOffsets", {"7": 1}, "which the query does not read"),
    ],
)
def test_offsets_beyond_the_end_or_of_other_partitions_are_refused(
    full: Site, option: str, places: dict[str, int], told: str
) -> None:
    assert told in said(full, **{option: json.dumps({full.topic: places})})


def test_an_unknown_option_is_refused_when_the_reader_is_created(site: Site) -> None:
    with pytest.raises(PySparkException, match="INVALID_SETTING: unknown option colour"):
        site.read(colour="red")


def test_a_sql_view_reads_a_topic(full: Site) -> None:
    full.spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW seen USING millstream "
        f"OPTIONS (bootstrap '{full.broker.bootstrap}', topic '{full.topic}')"
    )
    assert full.spark.sql("SELECT count(*) FROM seen WHERE partition = 2").collect()[0][0] == 10
