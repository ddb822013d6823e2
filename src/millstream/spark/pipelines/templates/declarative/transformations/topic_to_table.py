"""Appends a topic to a table in each run; `counts.sql` reads the table."""

from pyspark import pipelines as dp


@dp.table
def messages():
    reader = spark.readStream.format("millstream").option("topic", "orders")
    return reader.option("startingOffsets", "earliest").option("valueFormat", "string").load()
