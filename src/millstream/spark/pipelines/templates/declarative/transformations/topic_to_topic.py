"""From topic to topic: a flow that reads one as a stream, and a sink that it goes to."""

from pyspark import pipelines as dp

# Rows are written as they are read; after a shuffle (groupBy, join) it has to be "sorted".
dp.create_sink("changed", "millstream", {"topic": "my_pipeline", "rowOrder": "given"})


@dp.append_flow(target="changed")
def change():
    reader = spark.readStream.format("millstream").option("topic", "orders")
    rows = reader.option("startingOffsets", "earliest").option("valueFormat", "string").load()
    return rows.selectExpr("key", "upper(value) AS value")
