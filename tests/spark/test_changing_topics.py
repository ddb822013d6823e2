"""Tests queries from topic to topic while either topic is altered, recreated or missing."""

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
    """A query that writes one topic's rows to another. Each start continues where the previous one ended."""

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
        """Writes the available messages."""
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


def test_a_running_query_writes_to_new_partitions_of_its_target(site: Site) -> None:
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


def test_a_running_query_writes_to_a_recreated_target(site: Site) -> None:
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
def test_a_running_query_continues_with_a_recreated_source_when_loss_is_allowed(site: Site, policy: str) -> None:
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


def test_a_running_query_fails_when_its_source_is_recreated(site: Site) -> None:
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
def test_a_repeated_batch_skips_messages_that_expired_since(site: Site, policy: str) -> None:
    """The rows that the batch had written stay and are not duplicated; new messages are written."""
    copy = expired(site, policy)
    copy.run()
    assert copy.values() == list(range(30))


def test_a_repeated_batch_fails_when_its_messages_expired_since(site: Site) -> None:
    with pytest.raises(StreamingQueryException, match="-0: offsets 0 to 19 no longer exist"):
        expired(site, "fail").run()


def expired(site: Site, policy: str) -> Copy:
    """Returns a query whose first batch must be repeated, but whose messages have expired."""
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
        (("value", "offset"), r"the rows have a column offset, which cannot be written \(accepted: value, key"),
        (("offset AS value",), "the column value has type bigint; cast it to binary or string"),
        (("key",), r"the rows have no column value \(found: key\)"),
    ],
)
def test_invalid_rows_of_a_stream_are_refused_before_the_first_task(
    site: Site, columns: tuple[str, ...], told: str
) -> None:
    site.client.create_topic(site.topic)
    site.write(range(3))
    with pytest.raises(StreamingQueryException, match=f"INVALID_SETTING: {told}"):
        Copy(site, *columns).run()
    assert f"{site.topic}-copy" not in site.client.metadata().topics


def test_an_unreachable_broker_is_named_in_the_error(site: Site) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{bound.getsockname()[1]}"
    with pytest.raises(PySparkException, match=f"NETWORK_EXCEPTION: .*{nobody}"):
        site.read(bootstrap=nobody).collect()
