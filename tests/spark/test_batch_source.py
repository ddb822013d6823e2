"""A topic as a table: what is read, of which places, in which columns, and what is said when that cannot be."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException

from millstream.model.names import TopicPartition
from spark.site import Site


@pytest.fixture
def full(site: Site) -> Site:
    """Three partitions with ten messages each, those of partition 1 from 10 on, and so forth."""
    site.client.create_topic(site.topic, partitions=3)
    for partition in range(3):
        site.write(range(10 * partition, 10 * partition + 10), partition=partition)
    return site


def said(site: Site, schema: str | None = None, **options: object) -> str:
    """What a person is told, without the way it came."""
    with pytest.raises(PySparkException) as caught:
        site.read(schema, **options).collect()
    found = re.search(r"^millstream\.model\.errors\.MillstreamError: (.*)", str(caught.value), flags=re.MULTILINE)
    assert found, caught.value
    return found[1]


def test_every_message_is_a_row_with_its_place_and_its_time(site: Site) -> None:
    site.client.create_topic(site.topic)
    moment = datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
    with site.client.producer() as producer:
        producer.put(site.topic, b"value", key=b"key", timestamp=moment, headers=[("a", b"1"), ("b", None)])
        producer.put(site.topic, None, timestamp=moment)
    frame = site.read(includeHeaders=True)
    first, second = frame.selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"key", b"value", site.topic)
    assert (first.partition, first.offset, first.ms) == (0, 0, int(moment.timestamp() * 1000))
    assert [(header.key, header.value and bytes(header.value)) for header in first.headers] == [
        ("a", b"1"),
        ("b", None),
    ]
    assert (second.key, second.value, second.headers, second.offset) == (None, None, [], 1)


def test_all_of_several_topics_is_read(full: Site) -> None:
    other = f"{full.topic}-more"
    full.client.create_topic(other)
    full.write(range(30, 35), topic=other)
    assert full.values(topic=f"{full.topic},{other}") == list(range(35))
    assert full.values(topicPattern=f"{full.topic}-.*") == list(range(30, 35))


def test_some_partitions_are_read(full: Site) -> None:
    assert full.values(partitions=f'{{"{full.topic}": [0, 2]}}') == [*range(10), *range(20, 30)]


def test_offsets_say_where_to_begin_and_to_end(full: Site) -> None:
    starting = f'{{"{full.topic}": {{"0": 8, "1": "latest"}}}}'
    ending = f'{{"{full.topic}": {{"2": 3}}}}'
    assert full.values(startingOffsets=starting, endingOffsets=ending) == [8, 9, 20, 21, 22]


def test_times_say_where_to_begin_and_to_end(site: Site) -> None:
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


def test_small_ranges_share_a_task_unless_more_are_asked_for(full: Site) -> None:
    assert full.read().rdd.getNumPartitions() == 1
    assert full.read(minPartitions=7).rdd.getNumPartitions() == 7
    assert full.values(minPartitions=7) == list(range(30))


def test_filters_on_places_are_kept(full: Site) -> None:
    frame = full.read().where("partition = 1 AND offset >= 3 AND offset < 6")
    assert sorted(int(bytes(row.value)) for row in frame.collect()) == [13, 14, 15]
    assert full.read().where("partition IN (0, 2) AND offset = 9").count() == 2
    assert full.read().where(f"topic = '{full.topic}' AND NOT partition = 0").count() == 20
    assert full.read().where("topic = 'another'").count() == 0


def test_filters_are_kept_where_spark_hands_none_down(full: Site) -> None:
    full.spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert full.read().where("partition = 1 AND offset < 6").count() == 6
    finally:
        full.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_only_the_columns_of_a_schema_are_read(full: Site) -> None:
    frame = full.read("offset BIGINT, topic STRING")
    assert frame.columns == ["offset", "topic"]
    assert sorted(set(frame.collect())) == [(number, full.topic) for number in range(10)]


def test_keys_and_values_are_read_as_text(site: Site) -> None:
    site.client.create_topic(site.topic)
    with site.client.producer() as producer:
        producer.put(site.topic, "grün".encode(), key=b"k")
    (row,) = site.read("key STRING, value STRING", valueFormat="string").collect()
    assert (row.key, row.value) == ("k", "grün")
    assert site.read(valueFormat="string").schema["value"].dataType.simpleString() == "string"


def test_what_every_message_has_is_never_null(full: Site) -> None:
    fields = full.read().schema.fields
    assert [field.name for field in fields if not field.nullable] == ["topic", "partition", "offset", "timestamp"]
    assert full.read().where("offset IS NULL OR topic IS NULL").count() == 0
    assert full.read("offset BIGINT NOT NULL, key BINARY").count() == full.read().count()


def test_an_empty_topic_is_an_empty_table(site: Site) -> None:
    site.client.create_topic(site.topic)
    assert site.values() == []


def test_what_was_deleted_before_does_not_belong_to_all_of_a_topic(full: Site) -> None:
    full.client.admin.delete_records({TopicPartition(full.topic, 0): 4})
    assert full.values() == list(range(4, 30))


@pytest.mark.parametrize(("policy", "first"), [("earliest", 4), ("skip", 10)])
def test_what_is_gone_is_left_out_where_that_is_wanted(full: Site, policy: str, first: int) -> None:
    full.client.admin.delete_records({TopicPartition(full.topic, 0): 4})
    assert full.values(startingOffsets=f'{{"{full.topic}": 0}}', dataLoss=policy) == list(range(first, 30))


def test_what_is_gone_is_a_failure(full: Site) -> None:
    full.client.admin.delete_records({TopicPartition(full.topic, 0): 4})
    told = said(full, startingOffsets=f'{{"{full.topic}": 0}}')
    assert told.startswith(f"OFFSET_OUT_OF_RANGE: {full.topic}-0: offsets 0 to 3 were to be read, but are gone; ")


def test_a_topic_that_is_not_there_is_named(site: Site) -> None:
    assert said(site).startswith(f"UNKNOWN_TOPIC_OR_PARTITION: topic '{site.topic}'")


def test_a_partition_that_is_not_there_is_named(full: Site) -> None:
    told = said(full, partitions=f'{{"{full.topic}": [5]}}')
    assert told == f"UNKNOWN_TOPIC_OR_PARTITION: topic '{full.topic}' has no partition 5; it has 3, from 0 on"


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("value STRING", "the schema has a column value of type string; its type is binary"),
        ("colour STRING", "the schema has a column colour; the columns of topics are key, value, topic"),
        ("offset INT", "the schema has a column offset of type int; its type is bigint"),
        (
            "key BINARY NOT NULL",
            "the column key, or a part of it, is NOT NULL, but it is null where a message has none",
        ),
        (
            "headers ARRAY<STRUCT<key: STRING, value: BINARY NOT NULL>>",
            "the column headers, or a part of it, is NOT NULL",
        ),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(full: Site, schema: str, told: str) -> None:
    assert said(full, schema).startswith(f"INVALID_SETTING: {told}")


@pytest.mark.parametrize(
    ("option", "places", "told"),
    [
        ("startingOffsets", {"0": 11}, "startingOffsets says 11, but it ends at 10"),
        ("endingOffsets", {"0": 12}, "endingOffsets says 12, but it ends at 10"),
        ("startingOffsets", {"7": 1}, "which is not among what is read"),
    ],
)
def test_places_that_are_not_there_are_refused(full: Site, option: str, places: dict[str, int], told: str) -> None:
    assert told in said(full, **{option: json.dumps({full.topic: places})})


def test_a_wrong_option_is_refused_where_it_is_given(site: Site) -> None:
    with pytest.raises(PySparkException, match="INVALID_SETTING: there is no option colour"):
        site.read(colour="red")


def test_a_view_of_sql_reads_a_topic(full: Site) -> None:
    full.spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW seen USING millstream "
        f"OPTIONS (bootstrap '{full.broker.bootstrap}', topic '{full.topic}')"
    )
    assert full.spark.sql("SELECT count(*) FROM seen WHERE partition = 2").collect()[0][0] == 10
