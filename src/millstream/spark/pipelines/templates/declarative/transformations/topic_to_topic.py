"""Defines a flow from topic to topic: it reads one topic as a stream and writes to a sink."""

from pyspark import pipelines as dp

# "given" writes rows in the order in which they are read. After a shuffle (groupBy, join), use "sorted".
dp.create_sink("changed", "millstream", {"topic": "my_pipeline", "rowOrder": "given"})


@dp.append_flow(target="changed")
def change():
    reader = spark.readStream.format("millstream").option("topic", "orders")
    rows = reader.option("startingOffsets", "earliest").option("valueFormat", "string").load()
    return rows.selectExpr("key", "upper(value) AS value")
