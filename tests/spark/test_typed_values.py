"""Tests typed values as columns, in tables and in streams, and the errors for bad values."""

import json
import re
from datetime import datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from millstream.model.names import TopicPartition
from spark.site import LONG_S, Site

SCHEMA = "id BIGINT, name STRING, price DECIMAL(10, 2), at TIMESTAMP, tags ARRAY<STRUCT<t: STRING, on: DATE>>"
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "marks", "type": {"type": "map", "values": "int"}},
    ],
}


@pytest.fixture
def orders(site: Site) -> Site:
    """A topic with JSON messages: one on a line, one on several lines, one without a value, and a broken one."""
    site.client.create_topic(site.topic)
    first = {
        "id": 1,
        "name": "tea",
        "price": 2.5,
        "at": "2026-01-31T12:00:00Z",
        "tags": [{"t": "x", "on": "2026-01-31"}],
    }
    with site.client.producer() as producer:
        producer.put(site.topic, json.dumps(first).encode(), key=b"k")
        producer.put(site.topic, json.dumps({"id": 2, "more": [1]}, indent=1).encode())
        producer.put_many(site.topic, [None])
        producer.put(site.topic, b'{"id": "three"}')
    return site


def typed(site: Site, schema: str | None = None, **options: object) -> DataFrame:
    chosen = {"valueFormat": "json", "valueSchema": SCHEMA, "badValues": "null", **options}
    return site.read(schema, **{name: value for name, value in chosen.items() if value is not None})


def said(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    return told(caught.value)


def told(error: BaseException) -> str:
    found = re.search(r"^millstream\.model\.errors\.\w+Error: (.*)", str(error), flags=re.MULTILINE)
    assert found, error
    return found[1]


def test_json_fields_are_columns_beside_the_topics_own(orders: Site) -> None:
    frame = typed(orders)
    assert frame.columns == ["key", "topic", "partition", "offset", "timestamp", "id", "name", "price", "at", "tags"]
    rows = frame.selectExpr("offset", "id", "name", "price", "unix_seconds(at) AS at", "tags[0].on AS on").collect()
    moment = datetime.fromisoformat("2026-01-31T12:00:00Z")
    assert tuple(rows[0]) == (0, 1, "tea", Decimal("2.50"), moment.timestamp(), moment.date())
    assert [tuple(row)[:3] for row in rows[1:]] == [(1, 2, None), (2, None, None), (3, None, None)]


def test_a_bad_value_fails_with_its_partition_and_offset(orders: Site) -> None:
    assert said(typed(orders, badValues="fail")).startswith(
        f"UNDECODABLE_VALUE: the value of {orders.topic}-0 at offset 3 cannot be decoded: "
        "JSON parse error: Column(/id) changed from number to string; set badValues=null"
    )


def test_a_schema_selects_fields_and_optionally_the_raw_value(orders: Site) -> None:
    rows = typed(orders, "id BIGINT, value BINARY", valueSchema=None).where("id IS NULL").collect()
    assert [row.value and bytes(row.value) for row in rows] == [None, b'{"id": "three"}']
    assert typed(orders, "offset BIGINT", valueSchema=None, badValues="fail").count() == 4


def test_value_shape_struct_puts_all_fields_into_one_column(orders: Site) -> None:
    frame = typed(orders, valueShape="struct", valueSchema="id BIGINT, timestamp TIMESTAMP")
    assert frame.columns == ["key", "topic", "partition", "offset", "timestamp", "value"]
    assert [row.id for row in frame.select("value.*").collect()] == [1, 2, None, None]


def test_types_are_inferred_from_the_newest_messages(orders: Site) -> None:
    with pytest.raises(
        PySparkException, match=r"cannot be inferred from the newest messages: .*; set the option valueSchema"
    ):
        typed(orders, valueSchema=None)
    orders.client.admin.delete_records({TopicPartition(orders.topic, 0): 4})
    with pytest.raises(PySparkException, match="there are no messages"):
        typed(orders, valueSchema=None)
    orders.write(['{"id": 7, "tags": ["x"]}', '{"id": 7.5}', "broken"])
    frame = typed(orders, valueSchema=None)
    assert frame.schema.simpleString().endswith(",id:double,tags:array<string>>")
    assert [(row.id, row.tags) for row in frame.collect()] == [(7.0, ["x"]), (7.5, None), (None, None)]


@pytest.mark.parametrize(
    ("options", "schema", "says"),
    [
        ({"valueSchema": "id BIGINT, Timestamp STRING"}, None, "values have a field Timestamp, which is also a column"),
        ({"valueSchema": "id BIGINT NOT NULL"}, None, "the column id, or a part of it, is NOT NULL"),
        ({"valueSchema": "id BIGINT, m MAP<STRING, INT>"}, None, "m has type map<string,int>, which cannot be read"),
        ({}, "tags ARRAY<STRUCT<t: BINARY>>", r"tags\[\].t has type binary"),
        ({"valueFormat": "avro", "valueSchema": json.dumps(AVRO)}, "id STRING", "its type there is bigint"),
        ({"valueFormat": "avro", "valueSchema": "{"}, None, "not an Avro schema"),
        ({"valueSchema": "id BIGINTS"}, None, 'Unsupported data type "BIGINTS"'),
        ({"valueSchema": "id BIGINT,, name STRING"}, None, "at or near ','"),
        ({"valueFormat": "string", "badValues": None}, None, "valueSchema applies only to valueFormat="),
        ({"valueShape": "struct"}, "value STRING", "accepted: a struct of fields"),
    ],
)
def test_invalid_columns_are_refused_before_anything_is_read(
    orders: Site, options: dict[str, object], schema: str | None, says: str
) -> None:
    with pytest.raises(PySparkException, match=says):
        typed(orders, schema, **options).collect()


def test_avro_fields_are_columns(site: Site) -> None:
    site.client.create_topic(site.topic)
    with site.client.producer() as producer:
        for number in range(3):
            at = datetime.fromisoformat("2026-01-31T12:00:00Z")
            row = {"id": number, "name": None if number else "tea", "at": at, "marks": {"a": number}}
            producer.put(site.topic, b"\0\0\0\0\7" + datum(row))
    avro = {"valueFormat": "avro", "valueSchema": json.dumps(AVRO), "avroFraming": "confluent", "badValues": "fail"}
    frame = typed(site, **avro).selectExpr("id", "name", "unix_seconds(at) AS at", "marks['a'] AS mark")
    second = int(datetime.fromisoformat("2026-01-31T12:00:00Z").timestamp())
    assert [tuple(row) for row in frame.collect()] == [
        (0, "tea", second, 0),
        (1, None, second, 1),
        (2, None, second, 2),
    ]
    assert [row.id for row in typed(site, "id BIGINT", **avro).collect()] == [0, 1, 2]


def datum(row: dict[str, Any]) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), row)
    return stream.getvalue()


def test_each_row_of_an_arrow_value_becomes_a_table_row(site: Site) -> None:
    site.client.create_topic(site.topic)
    with site.client.producer() as producer:
        for ids in ([1, 2, 3], [], [4]):
            names = pa.array(map(str, ids), pa.string()).dictionary_encode()
            table = pa.table({"id": pa.array(ids, pa.int64()), "name": names})
            stream = BytesIO()
            with pa.ipc.new_stream(stream, table.schema) as writer:
                writer.write_table(table)
            producer.put(site.topic, stream.getvalue())
    frame = typed(site, valueFormat="arrow", valueSchema=None)
    rows = [tuple(row) for row in frame.select("offset", "id", "name").collect()]
    assert rows == [(0, 1, "1"), (0, 2, "2"), (0, 3, "3"), (2, 4, "4")]


def test_a_stream_has_the_same_columns_as_a_table(orders: Site) -> None:
    options = orders.stream(valueFormat="json", valueSchema="id BIGINT", badValues="null").options
    frame = orders.spark.readStream.format("millstream").options(**options).load()
    files = orders.files / "typed"
    writer = frame.select("offset", "id").writeStream.option("checkpointLocation", str(orders.files / "checkpoint"))
    assert writer.trigger(availableNow=True).start(str(files)).awaitTermination(LONG_S)
    rows = orders.spark.read.parquet(str(files)).orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(0, 1), (1, 2), (2, None), (3, None)]
