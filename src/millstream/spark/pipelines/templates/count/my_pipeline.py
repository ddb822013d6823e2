"""How many messages each key has: a stream of counts, from topic to topic.

Run it with `millstream pipeline run my_pipeline.py`: it counts until Ctrl-C, and goes on there the next time. With
--once it counts what is there, and ends. Whenever a count has changed, the new one is a message.
"""

SOURCE = "orders"
TARGET = "my_pipeline"

messages = (
    spark.readStream.format("millstream")
    .schema("key BINARY")  # what is not needed is not read
    .option("topic", SOURCE)
    .option("startingOffsets", "earliest")  # for the first start; after that the checkpoint knows
    .load()
)

counts = messages.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")

(
    counts.writeStream.queryName("my_pipeline")
    .format("millstream")
    .outputMode("update")
    .option("topic", TARGET)
    .option("checkpointLocation", "my_pipeline.checkpoint")
    .start()
)
