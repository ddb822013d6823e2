"""Tests writing DataFrames to topics: columns, exactly-once behaviour, and error messages."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from spark.site import LONG_S, Site, forget_last_commit

ROWS = 5000


def write(site: Site, frame: DataFrame, **options: object) -> None:
    where = {"bootstrap": site.broker.bootstrap, "topic": site.topic, **options}
    chosen = {name: value for name, value in where.items() if value is not None}
    frame.write.format("millstream").options(**chosen).mode("append").save()  # type: ignore[arg-type]


def said(site: Site, frame: DataFrame, **options: object) -> str:
    with pytest.raises(PySparkException) as caught:
        write(site, frame, **options)
    found = re.search(r"^millstream\.model\.errors\.\w+Error: (.*)", str(caught.value), flags=re.MULTILINE)
    assert found, caught.value
    return found[1]


def numbered(site: Site, tasks: int = 2) -> DataFrame:
    return site.spark.range(0, ROWS, numPartitions=tasks).selectExpr("CAST(id AS STRING) AS value")


def test_every_column_of_a_row_is_stored(site: Site) -> None:
    # The row's timestamp is old, so retention would delete it.
    site.client.create_topic(site.topic, partitions=3, settings={"retention.ms": "-1"})
    frame = site.spark.sql(
        "SELECT 'k' AS key, CAST('v' AS BINARY) AS value, 2 AS partition, "
        "timestamp_millis(1769860800123) AS timestamp, "
        "array(struct('a' AS key, CAST('1' AS BINARY) AS value)) AS headers"
    )
    write(site, frame)
    (message,) = site.client.read(site.topic, 2, 0).messages
    assert (message.key, message.value, message.timestamp) == (b"k", b"v", 1769860800123)
    assert list(message.headers) == [("a", b"1")]


def test_rows_are_written_to_the_topic_of_their_topic_column_which_is_created(site: Site) -> None:
    frame = numbered(site).selectExpr("value", f"concat('{site.topic}-', value % 3) AS topic")
    write(site, frame, topic=None)
    for each in range(3):
        assert site.values(topic=f"{site.topic}-{each}") == list(range(each, ROWS, 3))


def test_rows_of_a_task_keep_their_order_and_are_partitioned_by_key(site: Site) -> None:
    site.client.create_topic(site.topic, partitions=4)
    write(site, numbered(site, 1).selectExpr("value", "CAST(value % 50 AS STRING) AS key"), compression="lz4")
    with site.client.producer() as producer:
        place = producer.put(site.topic, b"-1", key=b"17").result()
    rows = site.read().collect()
    assert {row.partition for row in rows if row.key == b"17"} == {place.partition}
    for partition in range(4):
        values = [int(row.value) for row in rows if row.partition == partition and int(row.value) >= 0]
        assert values == sorted(values)
    assert len(rows) == ROWS + 1


def test_repeated_writes_store_rows_once_when_they_have_a_txn_id(site: Site) -> None:
    site.client.create_topic(site.topic, partitions=2)
    for _ in range(2):
        write(site, numbered(site), txnId="load 7")
    assert site.values() == list(range(ROWS))
    write(site, numbered(site), txnId="load 8")
    write(site, numbered(site))
    assert site.values() == sorted(3 * list(range(ROWS)))


def test_a_repeated_task_stores_only_the_rows_that_were_missing(site: Site) -> None:
    """Some rows are stored before the task fails; the next job with the same txnId stores the others."""
    site.client.create_topic(site.topic, partitions=2)
    broken = numbered(site, 1).selectExpr("IF(value = '4321', raise_error('broken'), value) AS value")
    site.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        with pytest.raises(PySparkException, match="broken"):
            write(site, broken, txnId="load")
    finally:
        site.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    write(site, numbered(site, 1), txnId="load")
    assert site.values() == list(range(ROWS))


@pytest.mark.parametrize("threads", [None, 1], ids=["its own thread", "another thread"])
def test_a_txn_id_in_foreach_batch_identifies_one_write_of_each_batch(site: Site, threads: int | None) -> None:
    site.client.create_topic(site.topic)
    site.write(range(100))
    copies = f"{site.topic}-copies"

    def copy(frame: DataFrame, name: str) -> None:
        write(site, frame.select("value"), topic=copies, txnId=name)

    def copy_twice(frame: DataFrame, batch: int) -> None:
        for name in ("first", "second", "first"):
            if threads is None:
                copy(frame, name)
            else:
                pool.submit(copy, frame, name).result()

    stream = site.stream(maxRowsPerTrigger=30)
    reader = site.spark.readStream.format("millstream").options(**stream.options).load()
    query = reader.writeStream.foreachBatch(copy_twice).trigger(availableNow=True)
    query = query.option("checkpointLocation", str(site.files / "each"))
    with ThreadPoolExecutor(threads) as pool:
        assert query.start().awaitTermination(LONG_S)
    assert site.values(topic=copies) == sorted(2 * list(range(100)))


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ("1 AS a, 'v' AS value", {}, "a column a"),
        ("'k' AS key", {}, "no column value"),
        ("1.5 AS value", {}, "value has type decimal"),
        ("'v' AS value, 'p' AS partition", {}, "partition has type string"),
        ("'v' AS value, 't' AS topic", {}, "use only one of them"),
        ("'v' AS value", {"topic": None}, "no topic to write to"),
        ("'v' AS value", {"topic": "a,b"}, "one topic"),
        ("'v' AS value", {"topic": "no spaces"}, "no spaces"),
        ("'v' AS value", {"startingOffsets": "latest"}, "startingOffsets is for reading only"),
        ("'v' AS value", {"compression": "brotli"}, "option compression="),
        ("'v' AS value", {"rowOrder": "any"}, "given, sorted"),
        ("'v' AS value, 9 AS partition", {}, "partition 9; the partitions are 0 to 0"),
    ],
)
def test_invalid_rows_and_options_are_refused_with_a_reason(
    site: Site, columns: str, options: dict[str, object], says: str
) -> None:
    site.client.create_topic(site.topic)
    assert says in said(site, site.spark.sql(f"SELECT {columns}"), **options)


def test_mode_overwrite_is_refused(site: Site) -> None:
    writer = numbered(site).write.format("millstream").option("bootstrap", site.broker.bootstrap)
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.option("topic", site.topic).mode("overwrite").save()


# Streams.


def copying(site: Site, checkpoint: Path, **options: object) -> StreamingQuery:
    """Starts a query that copies the available messages of this topic to another."""
    stream = site.stream(maxRowsPerTrigger=400)
    frame = site.spark.readStream.format("millstream").options(**stream.options).load().select("key", "value")
    writer = frame.writeStream.format("millstream").option("bootstrap", site.broker.bootstrap)
    writer = writer.option("topic", f"{site.topic}-copy").options(**options)  # type: ignore[arg-type]
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def test_a_stream_from_topic_to_topic_continues_where_it_ended(site: Site) -> None:
    site.client.create_topic(site.topic, partitions=3)
    for at in range(2):
        for partition in range(3):
            site.write(range(900 * at + 300 * partition, 900 * at + 300 * partition + 300), partition=partition)
        assert copying(site, site.files / "copy").awaitTermination(LONG_S)
    assert site.values(topic=f"{site.topic}-copy") == list(range(1800))


def test_a_repeated_batch_stores_nothing_twice(site: Site) -> None:
    site.client.create_topic(site.topic, partitions=3)
    for partition in range(3):
        site.write(range(300 * partition, 300 * partition + 300), partition=partition)
    checkpoint = site.files / "copy"
    assert copying(site, checkpoint).awaitTermination(LONG_S)
    forget_last_commit(checkpoint)
    site.write(range(900, 1000))
    assert copying(site, checkpoint).awaitTermination(LONG_S)
    assert site.values(topic=f"{site.topic}-copy") == list(range(1000))


def test_sorted_rows_are_stored_once_in_whatever_order_they_arrive(site: Site) -> None:
    site.client.create_topic(site.topic, partitions=2)
    frame = numbered(site, 1).selectExpr("value", "CAST(value % 7 AS STRING) AS key")
    for order in ("value", "hash(value)", "reverse(value)"):
        write(site, frame.orderBy(expr(order)).coalesce(1), txnId="load", rowOrder="sorted")
    assert Counter(site.values()) == Counter(range(ROWS))


def test_a_stream_with_a_txn_id_is_refused(site: Site) -> None:
    site.client.create_topic(site.topic)
    with pytest.raises(PySparkException, match="a stream is identified by its checkpoint"):
        copying(site, site.files / "copy", txnId="x").awaitTermination(LONG_S)
