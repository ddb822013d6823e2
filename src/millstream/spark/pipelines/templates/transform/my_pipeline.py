"""Transforms a topic into another one, message by message.

Run it with `millstream pipeline run my_pipeline.py`: it reads new messages until Ctrl-C, and continues there at the
next start. With --once it reads the available messages and ends.
"""

SOURCE = "orders"
TARGET = "my_pipeline"

messages = (
    spark.readStream.format("millstream")
    .option("topic", SOURCE)
    .option("startingOffsets", "earliest")  # for the first start; later starts use the checkpoint
    .option("valueFormat", "string")
    .option("group", "my_pipeline")  # `millstream group describe my_pipeline` shows its lag
    .load()
)

changed = messages.where("value <> ''").selectExpr("key", "upper(value) AS value")

(
    changed.writeStream.queryName("my_pipeline")
    .format("millstream")
    .option("topic", TARGET)
    .option("checkpointLocation", "my_pipeline.checkpoint")
    .start()
)
