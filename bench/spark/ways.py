"""Defines the ways to read, write and archive the same rows."""

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from bench.spark.connector import Connector
from bench.spark.floor import Floor
from pyspark.sql import DataFrame, SparkSession

import millstream
from millstream.model.names import TopicPartition
from millstream.spark.archive import archive

TOPIC = "rows"
PARTITIONS = 4
KEYS = 1000
KEY_BYTES = 16
VALUE_BYTES = 100
NUMBER_BYTES = 10
CHUNK = 100_000


class Extent(NamedTuple):
    """Amount of work."""

    rows: int
    written: int
    """Number of rows that are written, of all rows."""
    warm: int
    """Number of warm-up rounds: Java compiles hot code, and is slower until then."""
    rounds: int
    batches: int
    idle_s: float


@dataclass(frozen=True, slots=True)
class Place:
    """The environment of all ways."""

    spark: SparkSession
    connector: Connector
    client: millstream.Client
    bootstrap: str
    directory: Path
    extent: Extent

    @property
    def files(self) -> str:
        """Directory with all rows."""
        return str(self.directory / "parquet")

    @property
    def some_files(self) -> str:
        """Directory with the rows to write."""
        return str(self.directory / "some")

    def topic(self, schema: str | None = None) -> DataFrame:
        reader = self.spark.read.format("millstream").options(bootstrap=self.bootstrap, topic=TOPIC)
        return (reader if schema is None else reader.schema(schema)).load()

    def parquet(self) -> DataFrame:
        return self.spark.read.parquet(self.files)


class Way(NamedTuple):
    """One way to read, write or archive the rows."""

    title: str
    run: Callable[[Place, int], float]
    """Runs the round of that number and returns its seconds."""
    writes: bool = False

    def rows(self, extent: Extent) -> int:
        return extent.written if self.writes else extent.rows


def prepare(place: Place) -> None:
    """Writes the rows to a topic and to files."""
    place.client.create_topic(TOPIC, partitions=PARTITIONS)
    chance = random.Random(0)
    with place.client.producer() as producer:
        for first in range(0, place.extent.rows, CHUNK):
            numbers = range(first, min(first + CHUNK, place.extent.rows))
            keys = pa.array([f"{number % KEYS:0{KEY_BYTES}}" for number in numbers])
            values = pa.array([_value(number, chance) for number in numbers])
            producer.put_many(TOPIC, pa.table({"key": keys, "value": values}))
    place.topic().write.option("compression", "lz4").parquet(place.files)
    number = f"CAST(CAST(substring(value, 1, {NUMBER_BYTES}) AS STRING) AS BIGINT)"
    some = place.parquet().where(f"{number} < {place.extent.written}")
    some.write.option("compression", "lz4").parquet(place.some_files)


def _value(number: int, chance: random.Random) -> str:
    """Returns a value with the number in front; the rest compresses to about half."""
    return f"{number:0{NUMBER_BYTES}}{chance.randbytes((VALUE_BYTES - NUMBER_BYTES) // 2).hex()}"


def _timed(work: Callable[[], None]) -> float:
    begin_s = time.perf_counter()
    work()
    return time.perf_counter() - begin_s


def _throw_away(frame: DataFrame) -> float:
    return _timed(lambda: frame.write.format("noop").mode("overwrite").save())


def _topic(place: Place, number: int) -> float:
    return _throw_away(place.topic())


def _floor(place: Place, number: int) -> float:
    place.spark.dataSource.register(Floor)
    reader = place.spark.read.format("floor").options(rows=place.extent.rows, tasks=PARTITIONS)
    return _throw_away(reader.load())


def _parquet(place: Place, number: int) -> float:
    return _throw_away(place.parquet())


def _connector(place: Place, number: int) -> float:
    seconds: float = place.connector.ask(
        "time_read", options={"kafka.bootstrap.servers": place.bootstrap, "subscribe": TOPIC}
    )
    return seconds


def _topic_counted(place: Place, number: int) -> float:
    return _throw_away(place.topic("key BINARY").groupBy("key").count())


def _parquet_counted(place: Place, number: int) -> float:
    return _throw_away(place.parquet().groupBy("key").count())


def _sink(place: Place, number: int) -> float:
    def write(topic: str) -> float:
        rows = place.spark.read.parquet(place.some_files).select("key", "value")
        writer = rows.write.format("millstream").options(bootstrap=place.bootstrap, topic=topic).mode("append")
        return _timed(writer.save)

    return _into_a_topic(place, f"sink-{number}", write)


def _connector_sink(place: Place, number: int) -> float:
    def write(topic: str) -> float:
        options = {"kafka.bootstrap.servers": place.bootstrap, "topic": topic}
        seconds: float = place.connector.ask("time_write", options=options, files=place.some_files)
        return seconds

    return _into_a_topic(place, f"connector-{number}", write)


def _into_a_topic(place: Place, topic: str, write: Callable[[str], float]) -> float:
    """Writes to a new topic each time, because clients cache metadata by topic name."""
    place.client.create_topic(topic, partitions=PARTITIONS)
    seconds = write(topic)
    ends = place.client.offsets({TopicPartition(topic, partition): "latest" for partition in range(PARTITIONS)})
    stored = sum(each.offset for each in ends.values())
    assert stored == place.extent.written, f"{stored} of {place.extent.written} rows were stored"
    place.client.delete_topic(topic)
    return seconds


def _archive(place: Place, number: int) -> float:
    with tempfile.TemporaryDirectory(dir=place.directory) as to:
        return _timed(lambda: _archived(place, to))


def _archived(place: Place, to: str) -> None:
    rows = archive(place.spark, TOPIC, to, bootstrap=place.bootstrap, once=True).rows
    assert rows == place.extent.rows, f"{rows} of {place.extent.rows} rows were archived"


def _parquet_written(place: Place, number: int) -> float:
    """Writes Parquet files with the compression of archives."""
    with tempfile.TemporaryDirectory(dir=place.directory) as to:
        writer = place.parquet().write.option("compression", "zstd").option("parquet.compression.codec.zstd.level", "1")
        return _timed(lambda: writer.mode("overwrite").parquet(to))


WAYS = (
    Way("topic", _topic),
    Way("rows that are there", _floor),
    Way("Parquet files", _parquet),
    Way("connector", _connector),
    Way("topic, counted", _topic_counted),
    Way("Parquet files, counted", _parquet_counted),
    Way("sink", _sink, writes=True),
    Way("connector's sink", _connector_sink, writes=True),
    Way("archive", _archive),
    Way("Parquet files to Parquet files", _parquet_written),
)
