"""Runs Spark's Kafka connector for `connector`, in its environment.

That environment has PySpark only, so this module imports nothing else, except modules of ours without dependencies.

python -m bench.spark.connector_program JAR...
"""

import base64
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bench.servant import serve
from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
ROW = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, partition INT"

Options = Mapping[str, str]


def read(spark: SparkSession, options: Options) -> list[Mapping[str, Any]]:
    """Returns the rows of a table."""
    return [_told(row) for row in _table(spark, options).collect()]


def write(spark: SparkSession, options: Options, rows: Sequence[Sequence[Any]]) -> None:
    """Writes rows of key, value, headers and partition."""
    given = [
        (_bytes(key), _bytes(value), headers and [(name, _bytes(content)) for name, content in headers], partition)
        for key, value, headers, partition in rows
    ]
    spark.createDataFrame(given, ROW).write.format("kafka").options(**options).save()


def copy(spark: SparkSession, options: Options, to: Options, checkpoint: str) -> int:
    """Copies the available messages of a topic to another as a stream; returns the number of rows."""
    rows = spark.readStream.format("kafka").options(**options).load().select("key", "value", "headers")
    writer = rows.writeStream.format("kafka").options(**to).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(int(each["numInputRows"]) for each in query.recentProgress)


def time_read(spark: SparkSession, options: Options) -> float:
    """Returns the seconds that it takes to read a table and discard it."""
    begin_s = time.perf_counter()
    _table(spark, options).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin_s


def time_write(spark: SparkSession, options: Options, files: str) -> float:
    """Returns the seconds that it takes to write keys and values from Parquet files to a topic."""
    begin_s = time.perf_counter()
    spark.read.parquet(files).select("key", "value").write.format("kafka").options(**options).save()
    return time.perf_counter() - begin_s


def main(jars: Sequence[str]) -> Mapping[str, Callable[..., Any]]:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(jars))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return {order.__name__: partial(order, spark) for order in (read, write, copy, time_read, time_write)}


def _table(spark: SparkSession, options: Options) -> DataFrame:
    return spark.read.format("kafka").options(**options).load()


def _told(row: Any) -> Mapping[str, Any]:
    told = row.asDict(recursive=True)
    headers = told.get("headers")
    return {
        **told,
        "key": _text(told["key"]),
        "value": _text(told["value"]),
        "timestamp": round(told["timestamp"].timestamp() * 1000),
        "headers": headers and [(each["key"], _text(each["value"])) for each in headers],
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _bytes(text: str | None) -> bytearray | None:
    return None if text is None else bytearray(base64.b64decode(text))


if __name__ == "__main__":
    serve(partial(main, sys.argv[1:]))
