"""How many messages each key has: a stream of counts, from topic to topic.

Run it with `penstock pipeline run my_pipeline.py`: it counts until Ctrl-C, and goes on there the next time. With --once
it counts what is there, and ends. Whenever a count has changed, the new one is a message.
"""

SOURCE = "orders"
TARGET = "my_pipeline"

messages = (
    spark.readStream.format("penstock")
    .schema("key BINARY")  # what is not needed is not read
    .option("bootstrap", bootstrap)
    .option("topic", SOURCE)
    .option("startingOffsets", "earliest")
    .load()
)

counts = messages.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")


def store(batch, number):
    """Under a txnId, a batch that is repeated after a crash adds only what is missing."""
    writer = batch.write.format("penstock").option("bootstrap", bootstrap).option("topic", TARGET)
    writer.option("txnId", "counts").option("rowOrder", "sorted").mode("append").save()


(
    counts.writeStream.queryName("my_pipeline")
    .foreachBatch(store)
    .outputMode("update")
    .option("checkpointLocation", "my_pipeline.checkpoint")
    .start()
)
