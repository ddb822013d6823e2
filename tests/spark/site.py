"""What tests of Spark work with: a topic that can be written to, and read as a table or as a stream."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.sdk.sync.client import Client
from millstream.testing import EmbeddedBroker

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
LONG_S = 120
"""Longer than anything takes that ends."""
_POLL_S = 0.002
"""Who looks without a pause takes a core from what is waited for."""


class Site:
    def __init__(self, spark: SparkSession, broker: EmbeddedBroker, client: Client, files: Path, topic: str) -> None:
        self.spark = spark
        self.broker = broker
        self.client = client
        self.files = files
        self.topic = topic

    def write(self, values: Iterable[object], *, partition: int | None = 0, topic: str | None = None) -> None:
        """Each as text; they are stored when this returns."""
        with self.client.producer() as producer:
            for value in values:
                producer.put(topic or self.topic, str(value).encode(), partition=partition)

    def read(self, schema: str | None = None, **options: object) -> DataFrame:
        reader = self.spark.read.format("millstream").options(**self._options(options))
        return (reader if schema is None else reader.schema(schema)).load()

    def values(self, **options: object) -> list[int]:
        """What is read, as numbers in order."""
        return numbers(self.read("value BINARY", **options))

    def stream(self, **options: object) -> "Stream":
        """From the beginning of this topic, unless told otherwise."""
        return Stream(self, self._options({"startingOffsets": "earliest", **options}))

    def _options(self, options: dict[str, object]) -> dict[str, Any]:
        what = {} if options.keys() & {"topic", "topicPattern", "partitions"} else {"topic": self.topic}
        return {"bootstrap": self.broker.bootstrap, **what, **options}


class Stream:
    """A query that stores what it reads, with the batch's number, where the next start of it goes on."""

    def __init__(self, site: Site, options: dict[str, Any]) -> None:
        self._site = site
        self.options = options
        self._files = site.files / "stream"

    def start(self, *, now: bool = False) -> StreamingQuery:
        """`now` reads what is there and ends."""
        frame = self._site.spark.readStream.format("millstream").options(**self.options).load()
        writer: DataStreamWriter = frame.writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._files / "checkpoint"))
        if now:
            writer = writer.trigger(availableNow=True)
        return writer.start(str(self._files / "rows"))

    def run(self) -> StreamingQuery:
        """Read what is there."""
        query = self.start(now=True)
        assert query.awaitTermination(LONG_S)
        return query

    def rows(self) -> DataFrame:
        return self._site.spark.read.parquet(str(self._files / "rows"))

    def values(self) -> list[int]:
        """All that was read so far, in order."""
        return numbers(self.rows())


def until(is_so: Callable[[], bool], what: str) -> None:
    """Look again and again until it is so; a failure that says what never was, where it is not."""
    deadline = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(_POLL_S)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def batch_sizes(query: StreamingQuery) -> Sequence[int]:
    """Of the batches that read something."""
    return [int(each["numInputRows"]) for each in query.recentProgress if each["numInputRows"]]


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had been killed after a batch was written: the next start of the query repeats it."""
    last = max((checkpoint / "commits").glob("*[0-9]"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
