"""Queries from topic to topic, while either of them is changed, made anew or away: what is written then, and what is
said where nothing can be."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.model.names import TopicPartition
from spark.site import LONG_S, Site, forget_last_commit


class Copy:
    """A query that writes one topic's rows to another; each start of it goes on where the last one was."""

    def __init__(self, site: Site, *columns: str, **options: object) -> None:
        self._site = site
        self._options = options
        self._columns = columns or ("key", "value")
        self.topic = f"{site.topic}-copy"
        self.checkpoint = site.files / "copy"

    def _writer(self) -> DataStreamWriter:
        reader = self._site.spark.readStream.format("millstream").options(**self._site.stream(**self._options).options)
        writer = reader.load().selectExpr(*self._columns).writeStream.format("millstream")
        writer = writer.option("bootstrap", self._site.broker.bootstrap).option("topic", self.topic)
        return writer.option("checkpointLocation", str(self.checkpoint))

    def run(self) -> None:
        """Write what is there."""
        assert self._writer().trigger(availableNow=True).start().awaitTermination(LONG_S)

    @contextmanager
    def running(self) -> Iterator[StreamingQuery]:
        query = self._writer().start()
        try:
            yield query
        finally:
            query.stop()

    def values(self) -> list[int]:
        return self._site.values(topic=self.topic)


def test_a_running_query_writes_to_partitions_that_its_target_gets(site: Site) -> None:
    site.client.create_topic(site.topic)
    copy = Copy(site, "value AS key", "value")
    site.client.create_topic(copy.topic)
    with copy.running() as query:
        site.write(range(50))
        query.processAllAvailable()
        site.client.admin.create_partitions(copy.topic, 3)
        site.write(range(50, 100))
        query.processAllAvailable()
    assert copy.values() == list(range(100))
    rows = site.read(topic=copy.topic).collect()
    assert {row.partition for row in rows if int(bytes(row.value)) < 50} == {0}
    assert {row.partition for row in rows if int(bytes(row.value)) >= 50} == {0, 1, 2}


def test_a_running_query_writes_on_to_a_target_that_was_made_anew(site: Site) -> None:
    site.client.create_topic(site.topic)
    copy = Copy(site)
    with copy.running() as query:
        site.write(range(50))
        query.processAllAvailable()
        site.client.delete_topic(copy.topic)
        site.client.create_topic(copy.topic, partitions=2)
        site.write(range(50, 70))
        query.processAllAvailable()
    assert copy.values() == list(range(50, 70))


@pytest.mark.parametrize("policy", ["earliest", "skip"])
def test_a_running_query_goes_on_with_a_topic_that_was_made_anew(site: Site, policy: str) -> None:
    site.client.create_topic(site.topic)
    copy = Copy(site, dataLoss=policy)
    with copy.running() as query:
        site.write(range(20))
        query.processAllAvailable()
        site.client.delete_topic(site.topic)
        site.client.create_topic(site.topic)
        query.processAllAvailable()
        site.write(range(20, 40))
        query.processAllAvailable()
    assert copy.values() == list(range(40))


def test_a_running_query_fails_when_its_topic_is_made_anew(site: Site) -> None:
    site.client.create_topic(site.topic)
    with Copy(site).running() as query:
        site.write(range(20))
        query.processAllAvailable()
        site.client.delete_topic(site.topic)
        site.client.create_topic(site.topic)
        site.write(range(40))
        with pytest.raises(StreamingQueryException, match=f"topic '{site.topic}' was deleted"):
            query.awaitTermination(LONG_S)


@pytest.mark.parametrize("policy", ["earliest", "skip"])
def test_a_batch_whose_messages_have_expired_since_is_repeated_without_them(site: Site, policy: str) -> None:
    """What it has written stays, and nothing is doubled; what comes next is written."""
    copy = expired(site, policy)
    copy.run()
    assert copy.values() == list(range(30))


def test_a_batch_whose_messages_have_expired_since_is_not_repeated(site: Site) -> None:
    with pytest.raises(StreamingQueryException, match="-0: offsets 0 to 19 were to be read, but are gone"):
        expired(site, "fail").run()


def expired(site: Site, policy: str) -> Copy:
    """A query whose first batch is to be repeated, for messages that there are no more."""
    site.client.create_topic(site.topic)
    site.write(range(20))
    copy = Copy(site, dataLoss=policy)
    copy.run()
    forget_last_commit(copy.checkpoint)
    site.write(range(20, 30))
    site.client.admin.delete_records({TopicPartition(site.topic, 0): 20})
    return copy


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (("value", "offset"), "the rows have a column offset; what can be written are value, key"),
        (("offset AS value",), "the column value is of type bigint; it must be binary or string: cast it"),
        (("key",), "the rows have no column value; they have key"),
    ],
)
def test_rows_of_a_stream_that_cannot_be_written_are_refused_before_the_first_task(
    site: Site, columns: tuple[str, ...], told: str
) -> None:
    site.client.create_topic(site.topic)
    site.write(range(3))
    with pytest.raises(StreamingQueryException, match=f"INVALID_SETTING: {told}"):
        Copy(site, *columns).run()
    assert f"{site.topic}-copy" not in site.client.metadata().topics


def test_a_broker_that_is_not_there_is_named(site: Site) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{bound.getsockname()[1]}"
    with pytest.raises(PySparkException, match=f"NETWORK_EXCEPTION: .*{nobody}"):
        site.read(bootstrap=nobody).collect()
