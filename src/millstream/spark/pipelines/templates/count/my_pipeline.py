"""Counts the messages of each key in one topic and writes each changed count to another topic.

Run it with `millstream pipeline run my_pipeline.py`: it counts until Ctrl-C, and continues there at the next start.
With --once it counts the available messages and ends.
"""

SOURCE = "orders"
TARGET = "my_pipeline"

messages = (
    spark.readStream.format("millstream")
    .schema("key BINARY")  # other columns are not read
    .option("topic", SOURCE)
    .option("startingOffsets", "earliest")  # for the first start; later starts use the checkpoint
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
