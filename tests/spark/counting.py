"""A driver of its own, to be killed: counts the messages of a topic by key into another, until it has read all.

python -m spark.counting BOOTSTRAP FROM TO CHECKPOINT
"""

import sys

from pyspark.sql import DataFrame

from penstock.spark import session
from spark.site import SETTINGS

ROWS_PER_BATCH = 100


def main(bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    spark = session("counting", master="local[2]", java="bundled", settings=SETTINGS)
    spark.sparkContext.setLogLevel("OFF")
    reader = spark.readStream.format("penstock").option("bootstrap", bootstrap).option("topic", source)
    rows = reader.option("startingOffsets", "earliest").option("maxRowsPerTrigger", ROWS_PER_BATCH).load()
    counts = rows.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")

    def store(batch: DataFrame, number: int) -> None:
        writer = batch.write.format("penstock").option("bootstrap", bootstrap).option("topic", target)
        writer.option("txnId", "counts").option("rowOrder", "sorted").mode("append").save()

    query = counts.writeStream.foreachBatch(store).outputMode("update").option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
