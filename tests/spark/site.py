"""Provides the environment of the Spark tests: a topic that can be written, and read as a table or as a stream."""

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
"""Timeout for everything that must end."""
_POLL_S = 0.002
"""Pause between checks. Polling without a pause would take a core from the process under test."""


class Site:
    """A Spark session, a broker, a client, and a topic of one test."""

    def __init__(self, spark: SparkSession, broker: EmbeddedBroker, client: Client, files: Path, topic: str) -> None:
        self.spark = spark
        self.broker = broker
        self.client = client
        self.files = files
        self.topic = topic

    def write(self, values: Iterable[object], *, partition: int | None = 0, topic: str | None = None) -> None:
        """Writes each value as text. All values are stored when this returns."""
        with self.client.producer() as producer:
            for value in values:
                producer.put(topic or self.topic, str(value).encode(), partition=partition)

    def read(self, schema: str | None = None, **options: object) -> DataFrame:
        reader = self.spark.read.format("millstream").options(**self._options(options))
        return (reader if schema is None else reader.schema(schema)).load()

    def values(self, **options: object) -> list[int]:
        """Returns the values of a table as sorted numbers."""
        return numbers(self.read("value BINARY", **options))

    def stream(self, **options: object) -> "Stream":
        """Returns a stream of this topic, by default from its beginning."""
        return Stream(self, self._options({"startingOffsets": "earliest", **options}))

    def _options(self, options: dict[str, object]) -> dict[str, Any]:
        what = {} if options.keys() & {"topic", "topicPattern", "partitions"} else {"topic": self.topic}
        return {"bootstrap": self.broker.bootstrap, **what, **options}


class Stream:
    """A query that stores its rows in Parquet files. Each start continues from the checkpoint of the previous one."""

    def __init__(self, site: Site, options: dict[str, Any]) -> None:
        self._site = site
        self.options = options
        self._files = site.files / "stream"

    def start(self, *, now: bool = False) -> StreamingQuery:
        """Starts the query. With `now` it reads the available messages and ends."""
        frame = self._site.spark.readStream.format("millstream").options(**self.options).load()
        writer: DataStreamWriter = frame.writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._files / "checkpoint"))
        if now:
            writer = writer.trigger(availableNow=True)
        return writer.start(str(self._files / "rows"))

    def run(self) -> StreamingQuery:
        """Reads the available messages and waits for the end."""
        query = self.start(now=True)
        assert query.awaitTermination(LONG_S)
        return query

    def rows(self) -> DataFrame:
        return self._site.spark.read.parquet(str(self._files / "rows"))

    def values(self) -> list[int]:
        """Returns everything that was read so far, as sorted numbers."""
        return numbers(self.rows())


def until(is_so: Callable[[], bool], what: str) -> None:
    """Waits until the condition is true. Fails with `what` if it does not become true in time."""
    deadline = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(_POLL_S)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def batch_sizes(query: StreamingQuery) -> Sequence[int]:
    """Returns the sizes of the batches that read something."""
    return [int(each["numInputRows"]) for each in query.recentProgress if each["numInputRows"]]


def forget_last_commit(checkpoint: Path) -> None:
    """Removes the last commit from the checkpoint, so that the next start repeats that batch.

    The result is the same as if the driver had been killed after it wrote the batch.
    """
    last = max((checkpoint / "commits").glob("*[0-9]"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
