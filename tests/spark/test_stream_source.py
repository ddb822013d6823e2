"""Tests a topic as a stream: each message once across restarts, batch sizes, and changes of the topic."""

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
    """Runs the query over the available messages and returns its error text."""
    query = stream.start(now=True)
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(LONG_S)
    return str(caught.value)


def test_a_restarted_stream_continues_with_its_new_batch_size(site: Site) -> None:
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


def test_a_batch_has_about_the_maximum_number_of_bytes(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(f"{number:01000}" for number in range(100))
    sizes = batch_sizes(site.stream(maxBytesPerTrigger=40_000).run())
    assert sum(sizes) == 100
    assert len(sizes) == 3


def test_a_running_query_reads_new_messages_and_new_partitions(site: Site) -> None:
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


def test_a_query_without_new_messages_runs_no_batches(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    with running(site.stream()) as query:
        query.processAllAvailable()
        query.processAllAvailable()
        assert batch_sizes(query) == [5]
        assert {each["batchId"] for each in query.recentProgress} <= {0, 1}


def test_new_topics_that_match_the_pattern_are_read(site: Site) -> None:
    stream = site.stream(topicPattern=f"{site.topic}-.*")
    site.client.create_topic(f"{site.topic}-a")
    site.write(range(5), topic=f"{site.topic}-a")
    stream.run()
    site.client.create_topic(f"{site.topic}-b")
    site.write(range(5, 8), topic=f"{site.topic}-b")
    stream.run()
    assert stream.values() == list(range(8))


def test_a_stream_that_starts_at_latest_reads_only_new_messages(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    stream = site.stream(startingOffsets="latest")
    stream.run()
    site.write(range(5, 7))
    stream.run()
    assert stream.values() == [5, 6]


def test_a_stream_ends_at_its_ending_offsets(site: Site) -> None:
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


def test_messages_that_expired_unread_fail_the_query_by_default(site: Site) -> None:
    stream = expired(site, "fail")
    assert f"{site.topic}-0: offsets 5 to 7 no longer exist; set the option dataLoss=earliest" in failure(stream)


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [8, 9]), ("skip", [])])
def test_messages_that_expired_unread_are_skipped_when_data_loss_is_allowed(
    site: Site, policy: str, expected: list[int]
) -> None:
    stream = expired(site, policy)
    stream.run()
    site.write(range(10, 12))
    stream.run()
    assert stream.values() == [*range(5), *expected, 10, 11]


def expired(site: Site, policy: str) -> Stream:
    """Returns a stream that has read 5 of 10 messages, of which 8 have expired."""
    site.client.create_topic(site.topic)
    site.write(range(5))
    stream = site.stream(dataLoss=policy)
    stream.run()
    site.write(range(5, 10))
    site.client.admin.delete_records({TopicPartition(site.topic, 0): 8})
    return stream


def test_a_recreated_topic_fails_the_query_even_when_its_offsets_are_higher(site: Site) -> None:
    stream = recreated(site, "fail")
    assert f"topic '{site.topic}' was deleted and recreated" in failure(stream)


@pytest.mark.parametrize(("policy", "expected"), [("earliest", list(range(100, 120))), ("skip", [])])
def test_a_recreated_topic_is_read_from_its_beginning_or_its_end(site: Site, policy: str, expected: list[int]) -> None:
    stream = recreated(site, policy)
    stream.run()
    site.write([500])
    stream.run()
    assert stream.values() == [*range(5), *expected, 500]


@pytest.mark.parametrize(("first", "before"), [("earliest", list(range(5))), ("latest", [])])
def test_a_recreated_topic_with_the_same_end_offset_is_read(site: Site, first: str, before: list[int]) -> None:
    stream = recreated(site, "earliest", messages=5, startingOffsets=first)
    stream.run()
    assert stream.values() == [*before, *range(100, 105)]


def recreated(site: Site, policy: str, messages: int = 20, **options: str) -> Stream:
    """Returns a stream that has read 5 messages of a topic which was then recreated with `messages` others."""
    site.client.create_topic(site.topic)
    site.write(range(5))
    stream = site.stream(dataLoss=policy, **options)
    stream.run()
    site.client.delete_topic(site.topic)
    site.client.create_topic(site.topic)
    site.write(range(100, 100 + messages))
    return stream


def test_a_deleted_topic_fails_the_query(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(5))
    with running(site.stream()) as query:
        query.processAllAvailable()
        site.client.delete_topic(site.topic)
        with pytest.raises(StreamingQueryException, match=f"topic '{site.topic}' was deleted while it was read"):
            query.awaitTermination(LONG_S)


def test_a_querys_offsets_are_committed_to_its_group(site: Site) -> None:
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
    """Returns the group's lag, as the command line shows it."""
    (described,) = Command(site.broker.bootstrap).succeed("group", "describe", group, "--json").documents
    total: int = described["lag"]
    return total


def test_a_stream_survives_the_kill_and_restart_of_a_broker(site: Site) -> None:
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
def test_source_errors_are_raised_by_the_query(site: Site, options: dict[str, str], told: str) -> None:
    with pytest.raises(Exception, match=told):
        site.stream(**options).run()
