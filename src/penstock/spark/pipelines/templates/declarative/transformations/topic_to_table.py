"""From a topic to a table, which grows with each run; `counts.sql` works on it."""

import os

from pyspark import pipelines as dp

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "localhost:9092")


@dp.table
def messages():
    reader = spark.readStream.format("penstock").option("bootstrap", BOOTSTRAP).option("topic", "orders")
    return reader.option("startingOffsets", "earliest").option("valueFormat", "string").load()
