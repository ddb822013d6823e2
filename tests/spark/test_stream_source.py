"""A topic as a stream: each message once over restarts, in batches of a wanted size, whatever becomes of the topic."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from builders.command import Command
from millstream.model.names import TopicPartition
from spark.site import LONG_S, Site, Stream, batch_sizes


@contextmanager
def running(stream: Stream) -> Iterator[StreamingQuery]:
    query = stream.start()
    try:
        yield query
    finally:
        query.stop()


def failure(stream: Stream) -> str:
    """What the query says that reads what is there."""
    query = stream.start(now=True)
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(LONG_S)
    return str(caught.value)


def test_a_stream_goes_on_where_it_was_in_batches_of_the_limit_of_each_start(site: Site) -> None:
    site.client.create_topic(site.topic, partitions=2)
    site.write(range(60), partition=0)
    site.write(range(60, 90), partition=1)
    stream = site.stream(maxRowsPerTrigger=40)
    assert batch_sizes(stream.run()) == [40, 40, 10]
    assert stream.values() == list(range(90))
    site.write(range(90, 100))
    stream.options["maxRowsPerTrigger"] = 6
    assert batch_sizes(stream.run()) == [6, 4]
    assert stream.values() == list(range(100))


def test_a_batch_has_about_as_many_bytes_as_allowed(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(f"{number:01000}" for number in range(100))
    sizes = batch_sizes(site.stream(maxBytesPerTrigger=40_000).run())
    assert sum(sizes) == 100
    assert len(sizes) == 3


def test_a_running_query_reads_what_comes_and_partitions_that_come(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    stream = site.stream()
    with running(stream) as query:
        query.processAllAvailable()
        assert stream.values() == list(range(5))
        site.write(range(5, 10))
        query.processAllAvailable()
        site.client.admin.create_partitions(site.topic, 3)
        site.write(range(10, 20), partition=2)
        query.processAllAvailable()
        assert stream.values() == list(range(20))
    assert stream.rows().where("partition = 2").count() == 10


def test_a_query_without_news_makes_no_batches(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    with running(site.stream()) as query:
        query.processAllAvailable()
        query.processAllAvailable()
        assert batch_sizes(query) == [5]
        assert {each["batchId"] for each in query.recentProgress} <= {0, 1}


def test_topics_that_fit_a_pattern_are_read_when_they_come(site: Site) -> None:
    stream = site.stream(topicPattern=f"{site.topic}-.*")
    site.client.create_topic(f"{site.topic}-a")
    site.write(range(5), topic=f"{site.topic}-a")
    stream.run()
    site.client.create_topic(f"{site.topic}-b")
    site.write(range(5, 8), topic=f"{site.topic}-b")
    stream.run()
    assert stream.values() == list(range(8))


def test_a_stream_begins_with_what_comes_unless_told_otherwise(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    stream = site.stream(startingOffsets="latest")
    stream.run()
    site.write(range(5, 7))
    stream.run()
    assert stream.values() == [5, 6]


def test_a_stream_ends_where_it_is_told_to(site: Site) -> None:
    site.client.create_topic(site.topic, partitions=2)
    for partition in range(2):
        site.write(range(10 * partition, 10 * partition + 10), partition=partition)
    ends = {site.topic: {"0": 4, "1": 2}}
    stream = site.stream(endingOffsets=json.dumps(ends), maxRowsPerTrigger=4)
    stream.run()
    assert stream.values() == [0, 1, 2, 3, 10, 11]
    site.write(range(20, 25))
    with running(stream) as query:
        query.processAllAvailable()
    assert stream.values() == [0, 1, 2, 3, 10, 11]


def test_messages_that_went_before_they_were_read_are_a_failure(site: Site) -> None:
    stream = expired(site, "fail")
    assert f"{site.topic}-0: offsets 5 to 7 were to be read, but are gone; choose with" in failure(stream)


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [8, 9]), ("skip", [])])
def test_messages_that_went_before_they_were_read_are_left_out_where_that_is_wanted(
    site: Site, policy: str, expected: list[int]
) -> None:
    stream = expired(site, policy)
    stream.run()
    site.write(range(10, 12))
    stream.run()
    assert stream.values() == [*range(5), *expected, 10, 11]


def expired(site: Site, policy: str) -> Stream:
    """A stream that has read 5 of 10 messages, of which 8 are gone by now."""
    site.client.create_topic(site.topic)
    site.write(range(5))
    stream = site.stream(dataLoss=policy)
    stream.run()
    site.write(range(5, 10))
    site.client.admin.delete_records({TopicPartition(site.topic, 0): 8})
    return stream


def test_a_topic_that_was_made_anew_is_a_failure_also_where_it_is_further_by_now(site: Site) -> None:
    stream = recreated(site, "fail")
    assert f"topic '{site.topic}' was deleted and made anew" in failure(stream)


@pytest.mark.parametrize(("policy", "expected"), [("earliest", list(range(100, 120))), ("skip", [])])
def test_a_topic_that_was_made_anew_is_read_from_its_beginning_or_from_now_on(
    site: Site, policy: str, expected: list[int]
) -> None:
    stream = recreated(site, policy)
    stream.run()
    site.write([500])
    stream.run()
    assert stream.values() == [*range(5), *expected, 500]


@pytest.mark.parametrize(("first", "before"), [("earliest", list(range(5))), ("latest", [])])
def test_a_topic_that_was_made_anew_and_is_as_far_as_the_old_one_is_read(
    site: Site, first: str, before: list[int]
) -> None:
    stream = recreated(site, "earliest", messages=5, startingOffsets=first)
    stream.run()
    assert stream.values() == [*before, *range(100, 105)]


def recreated(site: Site, policy: str, messages: int = 20, **options: str) -> Stream:
    """A stream that is behind 5 messages of a topic that there is no more, but another of its name with these."""
    site.client.create_topic(site.topic)
    site.write(range(5))
    stream = site.stream(dataLoss=policy, **options)
    stream.run()
    site.client.delete_topic(site.topic)
    site.client.create_topic(site.topic)
    site.write(range(100, 100 + messages))
    return stream


def test_a_topic_that_was_deleted_is_a_failure(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    with running(site.stream()) as query:
        query.processAllAvailable()
        site.client.delete_topic(site.topic)
        with pytest.raises(StreamingQueryException, match=f"topic '{site.topic}' was deleted while it was read"):
            query.awaitTermination(LONG_S)


def test_a_group_is_told_how_far_the_query_is(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(20))
    group = f"{site.topic}-readers"
    stream = site.stream(group=group, maxRowsPerTrigger=15)
    query = stream.run()
    assert lag(site, group) == 0
    site.write(range(20, 25))
    assert lag(site, group) == 5
    stream.run()
    assert lag(site, group) == 0
    assert query.lastProgress is not None
    latest = json.loads(query.lastProgress["sources"][0]["latestOffset"])
    assert latest[site.topic]["offsets"] == {"0": 20}


def lag(site: Site, group: str) -> int:
    """As operators see it."""
    (described,) = Command(site.broker.bootstrap).succeed("group", "describe", group, "--json").documents
    total: int = described["lag"]
    return total


def test_a_stream_survives_a_broker_that_is_killed_and_comes_back(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    stream = site.stream()
    with running(stream) as query:
        query.processAllAvailable()
        site.broker.kill()
        site.broker.start()
        site.write(range(5, 10))
        query.processAllAvailable()
    assert stream.values() == list(range(10))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "nowhere"}, "UNKNOWN_TOPIC_OR_PARTITION: topic 'nowhere'"),
        ({"topic": "nowhere", "minPartitions": "x"}, "option minPartitions='x'"),
    ],
)
def test_what_cannot_be_read_is_said_where_the_query_was_started(
    site: Site, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        site.stream(**options).run()
