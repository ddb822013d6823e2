"""From topic to topic: a flow that reads one as a stream, and a sink that it goes to."""

import os

from pyspark import pipelines as dp

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "localhost:9092")

dp.create_sink("changed", "penstock", {"bootstrap": BOOTSTRAP, "topic": "my_pipeline"})


@dp.append_flow(target="changed")
def change():
    reader = spark.readStream.format("penstock").option("bootstrap", BOOTSTRAP).option("topic", "orders")
    rows = reader.option("startingOffsets", "earliest").option("valueFormat", "string").load()
    return rows.selectExpr("key", "upper(value) AS value")
