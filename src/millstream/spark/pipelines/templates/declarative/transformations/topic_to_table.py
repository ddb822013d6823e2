"""From a topic to a table, which grows with each run; `counts.sql` works on it."""

from pyspark import pipelines as dp


@dp.table
def messages():
    reader = spark.readStream.format("millstream").option("topic", "orders")
    return reader.option("startingOffsets", "earliest").option("valueFormat", "string").load()
