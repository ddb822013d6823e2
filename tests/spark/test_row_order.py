"""Tests the row order that a session derives from a query, and the output modes that it adds."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

from millstream.model.errors import MillstreamError
from millstream.spark.options import RowOrder
from millstream.spark.writing.row_order import row_order_of
from spark.site import LONG_S, Site, forget_last_commit

GIVEN, SORTED = RowOrder.GIVEN, RowOrder.SORTED


@pytest.fixture
def frame(site: Site) -> DataFrame:
    """A stream of a topic with 20 messages and 10 different keys."""
    site.client.create_topic(site.topic, partitions=2)
    with site.client.producer() as producer:
        for number in range(20):
            producer.put(site.topic, b"%d" % number, key=b"%d" % (number % 10), headers=[("n", b"%d" % number)])
    return site.spark.readStream.format("millstream").options(**site.stream(includeHeaders=True).options).load()


Changed = Callable[[DataFrame], DataFrame]


@pytest.mark.parametrize(
    ("changed", "order"),
    [
        (lambda frame: frame, GIVEN),
        (lambda frame: frame.where("offset > 3").selectExpr("upper(CAST(value AS STRING)) AS value"), GIVEN),
        (lambda frame: frame.alias("a").select("a.key").withColumn("value", udf(str, useArrow=False)("key")), GIVEN),
        (lambda frame: frame.selectExpr("explode(headers) AS header").withColumnRenamed("header", "value"), GIVEN),
        (lambda frame: frame.withWatermark("timestamp", "1 minute").union(frame), GIVEN),
        (lambda frame: frame.mapInArrow(lambda batches: batches, frame.schema), GIVEN),
        (lambda frame: frame.groupBy("key").count(), SORTED),
        (lambda frame: frame.select("key").dropDuplicates(), SORTED),
        (lambda frame: frame.repartition(3), SORTED),
        (lambda frame: frame.coalesce(1).select("value"), SORTED),
        (lambda frame: frame.union(frame.repartition(2)), SORTED),
        (lambda frame: frame.join(frame.sparkSession.range(9).withColumnRenamed("id", "offset"), "offset"), SORTED),
    ],
)
def test_row_order_is_detected_only_for_order_preserving_plans(
    frame: DataFrame, changed: Changed, order: RowOrder
) -> None:
    assert row_order_of(changed(frame)._jdf.queryExecution().analyzed()) is order


def test_a_shuffled_table_with_a_txn_id_is_sorted(site: Site) -> None:
    """Writes the same rows in two different orders. Rows that the query has sorted are refused without `rowOrder`."""
    site.client.create_topic(site.topic)
    rows = site.spark.range(2000).selectExpr("CAST(id AS STRING) AS value")
    named = {"bootstrap": site.broker.bootstrap, "topic": site.topic, "txnId": "load"}
    for keys in ("value", "reverse(value)"):
        frame = rows.selectExpr("value", f"{keys} AS by").repartition(3, "by").select("value").coalesce(1)
        frame.write.save(format="millstream", mode="append", **named)
    assert site.values() == list(range(2000))
    with pytest.raises(MillstreamError, match="set the option rowOrder=given if no two rows"):
        rows.orderBy("value").write.format("millstream").options(**named).mode("append").save()


def test_shuffled_rows_with_headers_are_stored_once_when_a_batch_is_repeated(site: Site, frame: DataFrame) -> None:
    copy, checkpoint = f"{site.topic}-copy", site.files / "copy"
    for _ in range(2):
        writer = frame.select("value", "headers").repartition(2).writeStream.format("millstream")
        writer = writer.option("bootstrap", site.broker.bootstrap).option("topic", copy).trigger(availableNow=True)
        assert writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(LONG_S)
        forget_last_commit(checkpoint)
    rows = site.read(topic=copy, includeHeaders=True).collect()
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(20))
    assert all(bytes(row.headers[0].value) == bytes(row.value) for row in rows)


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ("CAST(count AS STRING) AS text", {}, "a column text"),
        ("CAST(count AS STRING) AS value", {"txnId": "x"}, "a stream is identified by its checkpoint"),
        ("CAST(count AS STRING) AS value", {"colour": "red"}, "unknown option colour"),
    ],
)
def test_errors_of_a_query_in_mode_update_are_raised_at_its_start(
    site: Site, frame: DataFrame, columns: str, options: dict[str, str], says: str
) -> None:
    counts = frame.groupBy("key").count().selectExpr("key", columns)
    where = {"bootstrap": site.broker.bootstrap, "topic": site.topic, **options}
    with pytest.raises(MillstreamError, match=says):
        counts.writeStream.start(None, "millstream", "update", checkpointLocation=str(site.files / "none"), **where)
