"""Runs a driver on a Spark cluster in a process of its own, because a process has only one session.

python -m spark.cluster.driver MASTER ARCHIVE

It executes calls that it receives from the test.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.servant import serve
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millstream.spark import session
from millstream.spark.archive import archive, verify
from millstream.spark.pipelines.pipeline_run import Pipeline, reading_once
from millstream.spark.pipelines.python_file import compiled, run_python
from spark.quick_java import QUICK_JAVA
from spark.site import LONG_S, SETTINGS, batch_sizes, numbers

Options = Mapping[str, str]


class Driver:
    """The operations that a test can call."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._query: StreamingQuery | None = None

    def read(self, options: Options) -> list[int]:
        """Returns the values of a table as sorted numbers."""
        return numbers(self._spark.read.format("millstream").options(**options).load())

    def count(self, options: Options) -> Mapping[str, int]:
        """Returns the number of rows per key. The shuffle makes executors exchange rows."""
        rows = self._spark.read.format("millstream").options(**options).load()
        return {bytes(row["key"]).decode(): row["count"] for row in rows.groupBy("key").count().collect()}

    def tasks(self) -> list[int]:
        """Returns the number of finished tasks of each executor that has finished any."""
        context: Any = self._spark.sparkContext._jsc
        found = context.sc().statusStore().executorList(False)
        each = [found.apply(number) for number in range(found.size())]
        return [one.completedTasks() for one in each if one.id() != "driver" and one.completedTasks()]

    def archive(self, topic: str, to: str, bootstrap: str) -> int:
        """Updates a topic's archive and verifies it; returns the number of added rows."""
        rows = archive(self._spark, topic, to, bootstrap=bootstrap, once=True).rows
        (verdict,) = verify(self._spark, to, bootstrap=bootstrap)
        assert verdict.behind == 0
        assert verdict.compared == verdict.rows
        return rows

    def run(self, file: str, bootstrap: str) -> list[tuple[str, int]]:
        """Runs a pipeline file as the command does; returns its queries, with the number of rows that each has read."""
        path = Path(file)
        pipeline = Pipeline(self._spark, file=path)
        try:
            with reading_once():
                run_python(path, compiled(path), (), {"spark": self._spark, "bootstrap": bootstrap})
                pipeline.wait()
        finally:
            pipeline.end(lambda line: None, 0.0)
        return [(state.name, state.rows) for state in pipeline.watch.states()]

    def start(self, options: Options, to: Options, checkpoint: str) -> None:
        """Starts a stream from topic to topic."""
        rows = self._spark.readStream.format("millstream").options(**options).load().select("key", "value")
        writer = rows.writeStream.format("millstream").options(**to).option("checkpointLocation", checkpoint)
        self._query = writer.trigger(availableNow=True).start()

    def finish(self) -> list[int]:
        """Waits for the end of the stream and returns the sizes of its batches."""
        assert self._query is not None
        assert self._query.awaitTermination(LONG_S)
        return list(batch_sizes(self._query))


def main(master: str, archive: str) -> Mapping[str, Callable[..., Any]]:
    settings = {
        "spark.archives": f"{archive}#environment",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        # The first task waits for all workers.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    spark = session("cluster", master=master, java="bundled", settings=SETTINGS | settings)
    spark.sparkContext.setLogLevel("OFF")
    driver = Driver(spark)
    orders = (driver.read, driver.count, driver.tasks, driver.archive, driver.run, driver.start, driver.finish)
    return {order.__name__: order for order in orders}


if __name__ == "__main__":
    serve(partial(main, *sys.argv[1:]))
