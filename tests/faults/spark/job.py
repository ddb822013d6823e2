"""Runs a Spark driver with two queries of one topic: one counts messages by key, the other changes each message.

python -m faults.spark.job MASTER BOOTSTRAP SOURCE COUNTS COPIES CHECKPOINTS ROWS_PER_BATCH

It runs until its standard input ends. A failed query is started again. A start is retried if another driver still locks
the checkpoint, or if a process that Spark connects to was killed. Each retry is reported on standard error.
"""

import select
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millstream.spark import session
from millstream.spark.checkpoints import CheckpointInUseError
from spark.quick_java import QUICK_JAVA
from spark.site import SETTINGS

TASKS = 3
MORE_SETTINGS = {
    # The test reads the batches' offsets at the end.
    "spark.sql.streaming.minBatchesToRetain": "1000000",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
}
FAILED = "a query failed"
GONE = "the driver's part of a query was gone"


@dataclass(frozen=True)
class Job:
    spark: SparkSession
    bootstrap: str
    source: str
    counts: str
    copies: str
    checkpoints: str
    rows_per_batch: str

    def rows(self) -> DataFrame:
        reader = self.spark.readStream.format("millstream").option("bootstrap", self.bootstrap)
        reader = reader.option("topic", self.source).option("startingOffsets", "earliest")
        return reader.option("maxRowsPerTrigger", self.rows_per_batch).option("minPartitions", TASKS).load()

    def count(self) -> StreamingQuery:
        counted = self.rows().groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")
        return self._written(counted, self.counts, "update")

    def copy(self) -> StreamingQuery:
        changed = self.rows().selectExpr("key", "upper(CAST(value AS STRING)) AS value")
        return self._written(changed, self.copies, "append")

    def _written(self, rows: DataFrame, topic: str, mode: str) -> StreamingQuery:
        writer = rows.writeStream.format("millstream").option("bootstrap", self.bootstrap).option("topic", topic)
        return writer.outputMode(mode).option("checkpointLocation", f"{self.checkpoints}/{topic}").start()


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    while True:
        try:
            return start()
        except CheckpointInUseError as error:
            say(str(error))
        except Py4JJavaError as error:
            if not is_gone(str(error)):
                raise
            say(f"{GONE}: {error.java_exception}")
        time.sleep(0.1)


def is_gone(error: str) -> bool:
    """True if the error means that Spark's process for the driver's part of sources and sinks was killed.

    Spark keeps several connections to such processes, and detects the end of each connection separately.
    """
    return any(each in error for each in ("Stream closed", "Broken pipe"))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def main(master: str, *arguments: str) -> None:
    spark = session("killed", master=master, java="bundled", settings=SETTINGS | MORE_SETTINGS)
    spark.sparkContext.setLogLevel("OFF")
    job = Job(spark, *arguments)
    starts = [partial(started, job.count), partial(started, job.copy)]
    queries = [start() for start in starts]
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        for number, query in enumerate(queries):
            if not query.isActive:
                error = str(query.exception())
                say(f"{GONE if is_gone(error) else FAILED}: {error}")
                queries[number] = starts[number]()
    for query in queries:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
